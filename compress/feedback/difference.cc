// SPDX-License-Identifier: Apache-2.0
#include "compress/feedback/difference.h"

#include <bit>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/float_bits.h"
#include "compress/codec_table.h"
#include "compress/coding/accumulator.h"
#include "compress/frame.h"
#include "compress/simd/compensate.h"

namespace sluice::compress {
namespace {

// Beyond these limits, a sum of many senders' differences might overflow. The shard would skip such
// a step, although the senders' memories would already have moved.
constexpr float kLargestGradient = 0x1p100f;
constexpr float kLargestDifference = 0x1p110f;

class Difference final : public Compensator {
 public:
  Difference(const CodecSpec& spec, size_t count)
      : contracts_(spec.compensator.id == CompensatorId::kEf21),
        step_size_(MemoryStepSize(spec)),
        memory_(count) {}

  absl::Status Check(absl::Span<const float> gradient) const override {
    if (gradient.size() != memory_.size()) {
      return absl::InvalidArgumentError(absl::StrCat("gradient has ", gradient.size(),
                                                     " elements, the chunk has ", memory_.size()));
    }
    const absl::StatusOr<float> largest = LargestMagnitude(gradient, {});
    if (!largest.ok()) return largest.status();
    const uint32_t difference = Subtract(gradient.data(), memory_.data(), memory_.size(), nullptr);
    if (*largest <= kLargestGradient && difference <= std::bit_cast<uint32_t>(kLargestDifference)) {
      return absl::OkStatus();
    }
    size_t i = 0;
    while (std::abs(gradient[i]) <= kLargestGradient &&
           std::abs(gradient[i] - memory_[i]) <= kLargestDifference) {
      ++i;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("gradient is too large to be sent as a difference: element ", i, " is ",
                     gradient[i], " (the limit is 2^100), its memory is ", memory_[i],
                     contracts_ ? "; scale the loss down or use /ef"
                                : "; scale the loss down, or lower the step size of diana"));
  }

  absl::Status Encode(const Codec& codec, EncodeInput input,
                      std::vector<std::byte>* frame) override {
    EncodeScratch own;
    if (input.scratch == nullptr) input.scratch = &own;
    std::vector<float>& difference = input.scratch->compensated;
    difference.resize(memory_.size());
    Subtract(input.gradient.data(), memory_.data(), memory_.size(), difference.data());
    input.gradient = difference;
    input.residual = {};
    if (contracts_) {
      input.scratch->dropped.assign(memory_.size(), 0.0f);
      input.residual = absl::MakeSpan(input.scratch->dropped);
    }
    input.finite = true;
    const size_t at = frame->size();
    absl::Status encoded = EncodeFrame(codec, input, frame);
    if (!encoded.ok()) return encoded;
    Move(step_size_, absl::MakeConstSpan(*frame).subspan(at), &difference);
    return absl::OkStatus();
  }

  absl::Status ReturnFrame(absl::Span<const std::byte> frame) override {
    absl::Status valid = ValidateFrame(frame, memory_.size());
    if (!valid.ok()) return valid;
    std::vector<float> decoded;
    Move(-step_size_, frame, &decoded);
    return absl::OkStatus();
  }

  absl::Span<const float> residual() const override { return {}; }

  std::vector<StateField> State() override { return {{"memory", &memory_, memory_.size()}}; }

 private:
  // Computes memory += step times the decoded frame, with `*decoded` as a buffer. The function
  // decodes the frame instead of using the encoder's remainder, because the receiver also adds the
  // decoded values.
  void Move(float step, absl::Span<const std::byte> frame, std::vector<float>* decoded) {
    decoded->assign(memory_.size(), 0.0f);
    FrameFormat(frame).decode_add(FramePayload(frame), absl::MakeSpan(*decoded));
    AddScaled(step, decoded->data(), decoded->size(), memory_.data());
  }

  const bool contracts_;  // True for EF21.
  const float step_size_;
  std::vector<float> memory_;
};

class DifferenceAggregator final : public Aggregator {
 public:
  DifferenceAggregator(const CodecSpec& spec, size_t count, uint32_t senders,
                       std::unique_ptr<Aggregator> inner)
      : memory_is_mean_(spec.compensator.id == CompensatorId::kEf21),
        step_size_(MemoryStepSize(spec)),
        senders_(senders),
        inner_(std::move(inner)),
        memory_(count) {}

  absl::Status Validate(uint32_t sender, absl::Span<const std::byte> frame) const override {
    return inner_->Validate(sender, frame);
  }

  void Add(absl::Span<const SenderFrame> frames, absl::Span<float> sum) override {
    inner_->Add(frames, sum);
  }

  void Close(uint32_t n, absl::Span<float> sum) override {
    inner_->Close(n, sum);
    const float step = step_size_ * (static_cast<float>(n) / static_cast<float>(senders_));
    for (size_t i = 0; i < memory_.size(); ++i) {
      const float before = memory_[i], moved = before + step * sum[i];
      sum[i] = memory_is_mean_ ? moved : before + sum[i];
      // The job's own senders cannot cause an overflow. If hostile senders do, only this step's
      // mean is lost, and later means are valid.
      memory_[i] = IsFinite(moved) ? moved : before;
    }
  }

  void AppendShared(std::vector<std::byte>* out) const override { inner_->AppendShared(out); }

  std::vector<StateField> State() override {
    std::vector<StateField> fields = inner_->State();
    fields.push_back({"memory", &memory_, memory_.size()});
    return fields;
  }

  size_t state_bytes() const override {
    return inner_->state_bytes() + memory_.size() * sizeof(float);
  }

 private:
  const bool memory_is_mean_;  // True for EF21.
  const float step_size_;
  const uint32_t senders_;
  const std::unique_ptr<Aggregator> inner_;
  std::vector<float> memory_;
};

}  // namespace

bool HasMemory(CompensatorId compensator) {
  return compensator == CompensatorId::kEf21 || compensator == CompensatorId::kDiana;
}

float MemoryStepSize(const CodecSpec& spec) {
  if (spec.compensator.id == CompensatorId::kEf21) return 1;
  if (spec.compensator.level != 0) return static_cast<float>(spec.compensator.level);
  return static_cast<float>(1 / (1 + VarianceBound(spec)));
}

std::unique_ptr<Compensator> MakeDifference(const CodecSpec& spec, size_t count) {
  return std::make_unique<Difference>(spec, count);
}

std::unique_ptr<Aggregator> MakeDifferenceAggregator(const CodecSpec& spec, size_t count,
                                                     uint32_t senders,
                                                     std::unique_ptr<Aggregator> inner) {
  return std::make_unique<DifferenceAggregator>(spec, count, senders, std::move(inner));
}

}  // namespace sluice::compress
