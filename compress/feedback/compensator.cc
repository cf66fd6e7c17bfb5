// SPDX-License-Identifier: Apache-2.0
#include "compress/feedback/compensator.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compress/coding/accumulator.h"
#include "compress/feedback/dgc.h"
#include "compress/feedback/difference.h"
#include "compress/frame.h"

namespace sluice::compress {
namespace {

absl::Status CheckSize(size_t found, size_t wanted) {
  if (found == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("gradient has ", found, " elements, the chunk has ", wanted));
}

class ErrorFeedback final : public Compensator {
 public:
  ErrorFeedback(size_t count, double decay) : count_(count), decay_(static_cast<float>(decay)) {}

  absl::Status Check(absl::Span<const float> gradient) const override {
    absl::Status size = CheckSize(gradient.size(), count_);
    return size.ok() ? CheckAccumulator(gradient, residual_) : size;
  }

  absl::Status Encode(const Codec& codec, EncodeInput input,
                      std::vector<std::byte>* frame) override {
    // There is no residual while the codec is lossless and no values are owed.
    if (!codec.lossless()) residual_.resize(count_);
    if (decay_ != 0) {
      for (float& left : residual_) left *= decay_;
    }
    input.residual = absl::MakeSpan(residual_);
    input.finite = true;
    return EncodeFrame(codec, input, frame);
  }

  absl::Status ReturnFrame(absl::Span<const std::byte> frame) override {
    absl::Status valid = ValidateFrame(frame, count_);
    if (!valid.ok()) return valid;
    residual_.resize(count_);
    return DecodeAddFrame(frame, absl::MakeSpan(residual_));
  }

  absl::Span<const float> residual() const override { return residual_; }

  std::vector<float>* MovableResidual() override { return &residual_; }
  std::vector<StateField> State() override { return {{kResidualState, &residual_, count_}}; }

 private:
  const size_t count_;
  const float decay_;            // 0: none.
  std::vector<float> residual_;  // Empty if all values are zero.
};

class NoFeedback final : public Compensator {
 public:
  explicit NoFeedback(size_t count) : count_(count) {}

  absl::Status Check(absl::Span<const float> gradient) const override {
    absl::Status size = CheckSize(gradient.size(), count_);
    return size.ok() ? CheckAccumulator(gradient, {}) : size;
  }

  absl::Status Encode(const Codec& codec, EncodeInput input,
                      std::vector<std::byte>* frame) override {
    input.residual = {};
    input.finite = true;
    return EncodeFrame(codec, input, frame);
  }

  absl::Status ReturnFrame(absl::Span<const std::byte> frame) override {
    return ValidateFrame(frame, count_);
  }

  absl::Span<const float> residual() const override { return {}; }

 private:
  const size_t count_;
};

}  // namespace

std::unique_ptr<Compensator> MakeCompensator(const CodecSpec& spec, size_t count) {
  switch (spec.compensator.id) {
    case CompensatorId::kErrorFeedback:
      return MakeErrorFeedback(count, spec.compensator.level);
    case CompensatorId::kNone:
      return MakeNoFeedback(count);
    case CompensatorId::kDgc:
      return MakeDgc(spec.compensator, count);
    case CompensatorId::kEf21:
    case CompensatorId::kDiana:
      return MakeDifference(spec, count);
  }
  Check(false, "a compensator of the table has a factory");
  return nullptr;
}

std::unique_ptr<Compensator> MakeErrorFeedback(size_t count, double decay) {
  return std::make_unique<ErrorFeedback>(count, decay);
}

std::unique_ptr<Compensator> MakeNoFeedback(size_t count) {
  return std::make_unique<NoFeedback>(count);
}

}  // namespace sluice::compress
