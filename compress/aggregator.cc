// SPDX-License-Identifier: Apache-2.0
#include "compress/aggregator.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compress/codecs/countsketch.h"
#include "compress/codecs/intsum.h"
#include "compress/codecs/lsh.h"
#include "compress/codecs/sign.h"
#include "compress/feedback/difference.h"
#include "compress/frame.h"
#include "compress/simd/accumulate.h"
#include "hwy/cache_control.h"

namespace sluice::compress {
namespace {

class AdditiveAggregator final : public Aggregator {
 public:
  explicit AdditiveAggregator(size_t count) : count_(count) {}

  absl::Status Validate(uint32_t, absl::Span<const std::byte> frame) const override {
    absl::Status valid = ValidateFrame(frame, count_);
    if (!valid.ok()) return valid;
    if (IsAddend(FrameFormat(frame))) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("a ", FrameFormat(frame).name, " frame for a chunk with another codec"));
  }

  void Add(absl::Span<const SenderFrame> frames, absl::Span<float> sum) override {
    PrefetchFrames(frames);
    while (!frames.empty()) {
      const FormatEntry& format = FrameFormat(frames.front().frame);
      absl::Span<const std::byte> payloads[kTogether];
      size_t alike = 0;
      while (alike < std::min(frames.size(), kTogether) &&
             FrameFormat(frames[alike].frame).id == format.id) {
        payloads[alike] = FramePayload(frames[alike].frame);
        ++alike;
      }
      if (alike > 1 && format.decode_add_all != nullptr) {
        format.decode_add_all(absl::MakeConstSpan(payloads).first(alike), sum);
      } else {
        for (size_t i = 0; i < alike; ++i) format.decode_add(payloads[i], sum);
      }
      frames.remove_prefix(alike);
    }
  }

  void Close(uint32_t n, absl::Span<float> sum) override {
    DivideBy(static_cast<float>(n), sum.data(), sum.size());
  }

 private:
  // Number of frames that are added in one pass over the sum.
  static constexpr size_t kTogether = 16;

  const size_t count_;
};

}  // namespace

void PrefetchFrames(absl::Span<const SenderFrame> frames) {
  constexpr size_t kLine = 64;
  // Size of a frame's header and of the scales or exponents after it, for a chunk of usual size.
  constexpr size_t kStart = 640;
  for (const SenderFrame& frame : frames) {
    for (size_t at = 0; at < std::min(kStart, frame.frame.size()); at += kLine) {
      hwy::Prefetch(frame.frame.data() + at);
    }
  }
}

void Aggregator::AppendShared(std::vector<std::byte>*) const {}

std::unique_ptr<Aggregator> MakeAggregator(const ChunkConfig& config, uint32_t senders) {
  if (HasMemory(config.spec.compensator.id)) {
    ChunkConfig differences = config;
    differences.spec.compensator = {.id = CompensatorId::kNone};
    return MakeDifferenceAggregator(config.spec, config.count, senders,
                                    MakeAggregator(differences, senders));
  }
  if (config.spec.codec == CodecId::kIntSum) {
    return MakeIntSumAggregator(config.count, config.spec, senders);
  }
  if (config.spec.codec == CodecId::kCountSketch) {
    return MakeSketchAggregator(config.count, config.spec.level);
  }
  if (config.spec.codec == CodecId::kLsh) return MakeLshAggregator(config.count, senders);
  if (config.spec.codec == CodecId::kSignSgd) return MakeVoteAggregator(config.count);
  return MakeAdditiveAggregator(config.count);
}

std::unique_ptr<Aggregator> MakeAdditiveAggregator(size_t count) {
  return std::make_unique<AdditiveAggregator>(count);
}

}  // namespace sluice::compress
