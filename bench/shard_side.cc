// SPDX-License-Identifier: Apache-2.0
#include "bench/shard_side.h"

#include <numeric>
#include <utility>

#include "base/check.h"
#include "compress/codec_spec.h"

namespace sluice::bench {

std::vector<compress::ChunkConfig> ConfigsOf(const std::string& spec, uint32_t chunks) {
  const absl::StatusOr<compress::CodecSpec> parsed = compress::ParseCodecSpec(spec);
  Check(parsed.ok(), parsed.status().message());
  std::vector<compress::ChunkConfig> configs;
  for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
    configs.push_back({.count = kChunkElements, .spec = *parsed, .id = chunk});
  }
  return configs;
}

std::vector<uint32_t> FirstNumbers(uint32_t count) {
  std::vector<uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

std::vector<std::string> StringsOf(absl::Span<const std::vector<std::byte>> frames) {
  std::vector<std::string> strings;
  for (const std::vector<std::byte>& frame : frames) {
    strings.emplace_back(reinterpret_cast<const char*>(frame.data()), frame.size());
  }
  return strings;
}

ShardSide::ShardSide(const std::string& downlink, uint32_t chunks, size_t threads,
                     std::vector<std::vector<std::string>> contributions)
    : counts_(chunks, kChunkElements),
      chunks_(FirstNumbers(chunks)),
      contributions_(std::move(contributions)),
      threads_(threads, nullptr),
      pool_(size_t{chunks} * kChunkElements, &threads_),
      downlink_(ConfigsOf(downlink, chunks),
                {.seed = 1, .sender = compress::Compressor::kShardSender}) {
  for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
    aggregators_.push_back(compress::MakeAdditiveAggregator(kChunkElements));
    pointers_.push_back(aggregators_.back().get());
  }
}

void ShardSide::Admit(bool keeps_frames) {
  const auto senders = static_cast<uint32_t>(contributions_.size());
  bundle_ =
      std::make_unique<server::OpenBundle>(counts_, pointers_, senders, 0, &pool_, keeps_frames);
  for (uint32_t rank = 0; rank < senders; ++rank) {
    bundle_->Admit(rank, 0, 0, contributions_[rank], absl::UnixEpoch());
  }
}

void ShardSide::Close() {
  const absl::Status encoded = downlink_.EncodeInLanes(
      threads_.For(protocol::Stage::kEncode), chunks_, ++step_,
      [this](size_t chunk, size_t lane) { return bundle_->MeanOf(chunk, lane); }, &frames_);
  Check(encoded.ok(), encoded.message());
  downlink_.EndStep(step_);
}

}  // namespace sluice::bench
