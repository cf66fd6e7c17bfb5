#include "compress/aggregator.h"

#include "absl/strings/str_cat.h"
#include "compress/frame.h"
#include "compress/intsum.h"
#include "compress/sign.h"

namespace sluice {
namespace {

class AdditiveAggregator final : public Aggregator {
 public:
  explicit AdditiveAggregator(size_t count) : count_(count) {}

  absl::Status Validate(uint32_t, absl::Span<const std::byte> frame) const override {
    absl::Status valid = ValidateFrame(frame, count_);
    if (!valid.ok()) return valid;
    if (FrameFormat(frame).decode_add != nullptr) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("a ", FrameFormat(frame).name, " frame for a chunk whose codec is another"));
  }

  void Add(absl::Span<const SenderFrame> frames, absl::Span<float> sum) override {
    for (const SenderFrame& frame : frames) {
      FrameFormat(frame.frame).decode_add(FramePayload(frame.frame), sum);
    }
  }

  void Close(uint32_t n, absl::Span<float> sum) override {
    const float divisor = static_cast<float>(n);
    for (float& x : sum) x /= divisor;
  }

 private:
  const size_t count_;
};

}  // namespace

void Aggregator::AppendShared(std::vector<std::byte>*) const {}

std::unique_ptr<Aggregator> MakeAggregator(const ChunkConfig& config, uint32_t senders) {
  if (config.spec.codec == CodecId::kIntSum) {
    return MakeIntSumAggregator(config.count, config.spec, senders);
  }
  if (config.spec.codec == CodecId::kSignSgd) return MakeVoteAggregator(config.count);
  return MakeAdditiveAggregator(config.count);
}

std::unique_ptr<Aggregator> MakeAdditiveAggregator(size_t count) {
  return std::make_unique<AdditiveAggregator>(count);
}

}  // namespace sluice
