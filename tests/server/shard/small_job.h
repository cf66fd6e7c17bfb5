// SPDX-License-Identifier: Apache-2.0
// A small job on one shard with real codecs, for tests of a shard's state.
#pragma once

#include <vector>

#include "tests/compress/one_chunk.h"
#include "tests/server/shard/shard_fixture.h"

namespace sluice::server {

inline constexpr uint32_t kSmallJobRanks = 3;

// Uses `spec` in both directions. If the downlink does not support `spec`, the downlink uses topk
// with error feedback.
inline ShardOptions SmallJobOptions(const compress::CodecSpec& spec) {
  ShardOptions options;
  options.table = {
      {.name = "a", .shape = {48, 32}, .strides = {}, .dtype = protocol::DType::kFloat32},
      {.name = "b", .shape = {40, 12}, .strides = {}, .dtype = protocol::DType::kFloat32},
      {.name = "c", .shape = {5}, .strides = {}, .dtype = protocol::DType::kFloat32}};
  options.exchange.compression.uplink = spec;
  options.exchange.compression.downlink =
      compress::DownlinkRefusal(spec).empty() ? spec : Spec("topk:10%/ef");
  options.exchange.compression.min_elements = 100;
  options.exchange.compression.layout = {.chunk_elements = 512, .bundle_elements = 700};
  options.exchange.compression.seed = 5;
  options.layout =
      *protocol::BuildLayout(options.table, 1, options.exchange.compression.layout,
                             protocol::WholeRows(options.exchange.compression, options.table));
  options.job_uid = kJob;
  for (uint32_t rank = 0; rank < kSmallJobRanks; ++rank) options.incarnations.push_back(100 + rank);
  return options;
}

inline compress::Compressor SmallJobWorker(const ShardOptions& options, uint32_t rank) {
  return {protocol::ChunkConfigs(options.exchange.compression, options.table, options.layout,
                                 protocol::Direction::kUplink),
          {.seed = 5, .sender = rank}};
}

// Returns the contribution of `rank`. The worker encodes gradients that depend only on the step,
// the chunk and the rank. Rank 1 skips every fourth step.
inline protocol::ExchangeRequest SmallJobContribution(const ShardOptions& options,
                                                      compress::Compressor* worker, uint32_t rank,
                                                      uint64_t step, uint32_t bundle) {
  protocol::ExchangeRequest exchange;
  exchange.sender = {.job_uid = kJob,
                     .term = options.term,
                     .rank = rank,
                     .incarnation = options.incarnations[rank],
                     .generation = options.generation};
  exchange.step = step;
  exchange.bundle = bundle;
  exchange.acked_step = step - 1;
  exchange.skip = step % 4 == 1 && rank == 1;
  if (exchange.skip) return exchange;
  for (const uint32_t chunk : options.layout.bundles[0][bundle].chunks) {
    std::vector<std::byte> frame;
    const std::vector<float> gradient =
        compress::HeavyTailed(options.layout.chunks[chunk].count, step * 1000 + 10 * chunk + rank);
    Check(worker->Encode(chunk, step, gradient, &frame).ok(), "it is finite");
    exchange.frames.emplace_back(reinterpret_cast<const char*>(frame.data()), frame.size());
  }
  return exchange;
}

// Passes all results of a step to `worker`.
inline void EndSmallJobStep(const ShardOptions& options, uint64_t step,
                            const std::vector<protocol::ExchangeReply>& results,
                            compress::Compressor* worker) {
  worker->EndStep(step);
  for (const protocol::ExchangeReply& result : results) {
    for (size_t i = 0; i < result.results.size(); ++i) {
      worker->Observe(options.layout.bundles[0][result.bundle].chunks[i],
                      protocol::FrameBytes(result.results[i]));
    }
  }
}

}  // namespace sluice::server
