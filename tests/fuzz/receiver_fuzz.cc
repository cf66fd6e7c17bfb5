// SPDX-License-Identifier: Apache-2.0
// Fuzzer for receivers: a receiver must either refuse a sender's bytes or continue to work for the
// other senders in all later steps, with an intact memory. Input: a spec and its line break,
// senders - 1 (a byte, modulo 4), element count (2 bytes), then the action of each sender in each
// step, in order:
//   0          does not take part
//   1 s m      sends the encoding of gradient number s, with the size m / 16
//   2 n b...   like 1 0 16, with n changes (at: 2 bytes, to: a byte), sealed
//   3 f z b... z (2 bytes) bytes as the payload of format f
// The first byte of an action is taken modulo 4.

#include "tests/compress/one_chunk.h"
#include "tests/fuzz/fuzz_input.h"

namespace sluice {
namespace {

constexpr size_t kCountMax = 2048;
constexpr int kStepsMax = 16;

class ReceiverRun {
 public:
  ReceiverRun(const compress::CodecSpec& spec, uint32_t senders, size_t count)
      : config_{.count = count,
                .spec = spec,
                .id = 1,
                .tensor = 2,
                .rows = compress::RowsOf(count)},
        aggregator_(compress::MakeAggregator(config_, senders)) {
    for (uint32_t sender = 0; sender < senders; ++sender) {
      senders_.emplace_back(absl::MakeConstSpan(&config_, 1),
                            compress::Compressor::Options{5, sender});
    }
  }

  void Step(uint64_t step, FuzzInput* input) {
    std::vector<float> sum(config_.count);
    uint32_t added = 0;
    for (uint32_t sender = 0; sender < senders_.size(); ++sender) {
      const std::vector<std::byte> frame = NextFrame(sender, step, input);
      if (frame.empty()) continue;
      const bool valid = aggregator_->Validate(sender, frame).ok();
      Check(aggregator_->Validate(sender, frame).ok() == valid, "validation changes nothing");
      Check(!valid || compress::ValidateFrame(frame, config_.count).ok(),
            "a receiver takes valid frames");
      if (!valid) continue;
      aggregator_->Add({{sender, frame}}, absl::MakeSpan(sum));
      ++added;
    }
    if (added > 0) {
      aggregator_->Close(added, absl::MakeSpan(sum));
      Publish();
    }
    for (compress::Compressor& sender : senders_) sender.EndStep(step);
  }

 private:
  std::vector<std::byte> Honest(uint32_t sender, uint64_t step, uint8_t seed, float size) {
    std::vector<std::byte> frame;
    const absl::Status status =
        senders_[sender].Encode(0, step, compress::HeavyTailed(config_.count, seed, size), &frame);
    if (!status.ok()) frame.clear();  // The sender's residual no longer fits in a float.
    return frame;
  }

  std::vector<std::byte> NextFrame(uint32_t sender, uint64_t step, FuzzInput* input) {
    const uint8_t action = input->Byte() % 4;
    if (action == 0) return {};
    if (action == 1) {
      const uint8_t seed = input->Byte();
      const float size = static_cast<float>(input->Byte()) / 16;
      std::vector<std::byte> frame = Honest(sender, step, seed, size);
      return frame;
    }
    if (action == 2) {
      std::vector<std::byte> frame = Honest(sender, step, 0, 1);
      for (int changes = input->Byte() % 8; changes > 0 && !frame.empty(); --changes) {
        const size_t at = input->Short() % frame.size();
        frame[at] = static_cast<std::byte>(input->Byte());
      }
      SealFrame(&frame);
      return frame;
    }
    const auto format = static_cast<compress::FormatId>(input->Byte());
    const absl::Span<const std::byte> payload = input->Bytes(input->Short());
    std::vector<std::byte> frame;
    compress::AppendFrame(format, config_.count, payload, &frame);
    return frame;
  }

  void Publish() {
    std::vector<std::byte> published = CodecFrame();
    aggregator_->AppendShared(&published);
    Check(compress::ValidateFrames(published, config_.count).ok(), "what is published is valid");
    for (compress::Compressor& sender : senders_) {
      if (sender.observes(0)) sender.Observe(0, published);
    }
  }

  // Returns a frame of zeros. It replaces the mean, which may not be finite after such input.
  std::vector<std::byte> CodecFrame() const {
    std::vector<std::byte> frame;
    const std::vector<float> zeros(config_.count);
    Check(compress::EncodeFrame(*compress::CodecFor("none"), {.gradient = zeros}, &frame).ok(),
          "zeros are finite");
    return frame;
  }

  const compress::ChunkConfig config_;
  const std::unique_ptr<compress::Aggregator> aggregator_;
  std::vector<compress::Compressor> senders_;
};

void CheckReceiver(FuzzInput input) {
  const std::optional<compress::CodecSpec> spec = input.Spec();
  if (!spec.has_value()) return;
  const uint32_t senders = 1 + input.Byte() % 4;
  const size_t count = input.Short() % (kCountMax + 1);
  ReceiverRun run(*spec, senders, count);
  for (int step = 0; step < kStepsMax && !input.empty(); ++step) {
    run.Step(static_cast<uint64_t>(step), &input);
  }
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::CheckReceiver({data, size});
  return 0;
}
