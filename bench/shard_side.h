// SPDX-License-Identifier: Apache-2.0
// ShardSide: a shard's work on one bundle, without messages: admit contributions, sum them, and
// encode the mean.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "compress/aggregator.h"
#include "compress/compressor.h"
#include "server/shard/open_bundle.h"
#include "server/shard/shard_threads.h"

namespace sluice::bench {

inline constexpr uint32_t kChunkElements = 65536;

// Returns the configs of chunks with kChunkElements elements. The spec must be valid.
std::vector<compress::ChunkConfig> ConfigsOf(const std::string& spec, uint32_t chunks);
std::vector<uint32_t> FirstNumbers(uint32_t count);
std::vector<std::string> StringsOf(absl::Span<const std::vector<std::byte>> frames);

class ShardSide {
 public:
  // In every step, each sender contributes the same frames, one for each of `chunks`.
  ShardSide(const std::string& downlink, uint32_t chunks, size_t threads,
            std::vector<std::vector<std::string>> contributions);

  // Admits the contributions of the next step, as receiving threads do. With `keeps_frames`, the
  // bundle can return them.
  void Admit(bool keeps_frames = false);
  server::OpenBundle* bundle() { return bundle_.get(); }
  absl::Span<const uint32_t> counts() const { return counts_; }
  // Sums the contributions and encodes the mean.
  void Close();

 private:
  const std::vector<uint32_t> counts_;
  const std::vector<uint32_t> chunks_;
  const std::vector<std::vector<std::string>> contributions_;  // By sender.
  std::vector<std::unique_ptr<compress::Aggregator>> aggregators_;
  std::vector<compress::Aggregator*> pointers_;
  server::ShardThreads threads_;
  server::SumPool pool_;
  compress::Compressor downlink_;
  std::unique_ptr<server::OpenBundle> bundle_;
  std::vector<std::vector<std::byte>> frames_;
  uint64_t step_ = 0;
};

}  // namespace sluice::bench
