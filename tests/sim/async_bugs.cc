#include "tests/sim/async_bugs.h"

#include <vector>

#include "base/check.h"
#include "compress/codec_table.h"
#include "compress/frame.h"

namespace sluice {
namespace {

std::vector<std::byte> BytesOf(const std::string& text) {
  const absl::Span<const std::byte> bytes = protocol::FrameBytes(text);
  return {bytes.begin(), bytes.end()};
}

}  // namespace

std::shared_ptr<const protocol::ShardSnapshot> Forged(AsyncBug bug,
                                                      const protocol::ShardSnapshot& snapshot) {
  auto forged = std::make_shared<protocol::ShardSnapshot>(snapshot);
  if (bug == AsyncBug::kClocksNotRestored) {
    for (uint64_t& clock : forged->clocks) clock = snapshot.step;
  }
  if (bug == AsyncBug::kPublishedNotRestored) {
    for (compress::SavedState& chunk : forged->replica) {
      if (chunk.contains("published")) chunk["published"] = chunk["parameters"];
    }
  }
  return forged;
}

protocol::ExchangeReply Forged(AsyncBug bug, uint32_t rank, const protocol::ExchangeReply& answer) {
  protocol::ExchangeReply forged = answer;
  if (bug == AsyncBug::kNameWithheld && rank == 1 && answer.checkpoint_step > answer.step) {
    forged.checkpoint_step = 0;
  }
  if (bug == AsyncBug::kPlanWithheld && rank == 0) forged.plan = nullptr;
  const bool several = bug == AsyncBug::kPublicationLost || bug == AsyncBug::kPublicationsMerged;
  if (!several || answer.exact || answer.results.empty()) return forged;
  for (std::string& chunk : forged.results) {
    const std::vector<std::byte> bytes = BytesOf(chunk);
    absl::Span<const std::byte> rest = bytes;
    const absl::Span<const std::byte> first = compress::PopFrame(&rest);
    if (rest.empty()) continue;
    if (bug == AsyncBug::kPublicationLost) {
      chunk.erase(0, first.size());
      continue;
    }
    std::vector<float> sum(compress::ReadFrameHeader(first)->count);
    compress::AddValidFrames(bytes, absl::MakeSpan(sum));
    std::vector<std::byte> merged;
    const std::unique_ptr<compress::Codec> exact =
        compress::MakeCodec({.codec = compress::CodecId::kNone});
    Check(compress::EncodeFrame(*exact, {.gradient = sum, .residual = {}}, &merged).ok(),
          "sums are finite");
    chunk.assign(reinterpret_cast<const char*>(merged.data()), merged.size());
  }
  forged.record.result_checksum = protocol::BundleChecksum(forged.results);
  return forged;
}

}  // namespace sluice
