// SPDX-License-Identifier: Apache-2.0
// Adapters around a worker's encoder and a shard's answers, which pass data through unchanged or
// plant a bug.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "compress/compressor.h"
#include "protocol/exchange.h"
#include "protocol/snapshot.h"
#include "tests/sim/reference.h"
#include "tests/sim/survival.h"
#include "worker/core/bundle_encoder.h"
#include "worker/core/pipeline.h"

namespace sluice {

class SimEncoder {
 public:
  virtual ~SimEncoder() = default;
  virtual worker::EncodedBundle Encode(const worker::EncodeTask& task) = 0;
  virtual void Observe(const worker::Published& published) = 0;
  virtual void Settle(worker::LateParts late) = 0;
  virtual compress::SavedCompressor Save() const = 0;
  virtual absl::Status Restore(const compress::SavedCompressor& saved, bool plans) = 0;
  virtual absl::Span<const float> Residual(uint32_t chunk) const = 0;
};

std::unique_ptr<SimEncoder> MakeSimEncoder(SurvivalBug bug, const protocol::TensorTable& table,
                                           const protocol::Layout& layout,
                                           const protocol::CompressionSpec& compression,
                                           uint32_t rank);

// Changes `snapshot` to the state that a shard with the bug would read from its checkpoint part.
void PlantInReplica(SurvivalBug bug, protocol::ShardSnapshot* snapshot);

// Applies a repeated result once more if the bug says so. The values are a worker's, by tensor.
void ApplyAgain(const SurvivalOptions& options, const protocol::Layout& layout, uint32_t shard,
                const protocol::ExchangeReply& answer, std::vector<std::vector<float>>* parameters,
                std::vector<std::vector<float>>* momentum);

// Returns the holders of which a shard with the bug hears: with kRemovalNotHeard, only new ones.
std::vector<uint64_t> HeardMembers(SurvivalBug bug, std::vector<uint64_t> incarnations,
                                   const std::vector<uint64_t>& before);

// Forges the answers of a shard with the bug. It sums the contributions in order of arrival.
class AnswerForger {
 public:
  AnswerForger(const SurvivalOptions& options, const protocol::Layout& layout)
      : options_(options), layout_(layout) {}

  void Arrived(uint32_t shard, const protocol::ExchangeRequest& exchange);
  // Returns the answer unchanged unless the bug concerns it.
  std::shared_ptr<const protocol::ExchangeReply> Answer(
      uint32_t shard, std::shared_ptr<const protocol::ExchangeReply> answer);

 private:
  bool enabled() const {
    return options_.bug == SurvivalBug::kSumInArrivalOrder ||
           options_.bug == SurvivalBug::kDividedByWorldSize;
  }
  std::shared_ptr<const protocol::ExchangeReply> Sum(const BundleKey& key,
                                                     const protocol::ExchangeReply& answer,
                                                     SurvivalBug bug) const;

  const SurvivalOptions& options_;
  const protocol::Layout& layout_;
  std::map<BundleKey, std::vector<protocol::ExchangeRequest>>
      arrived_;  // The first copy of each contribution, in order of arrival.
};

}  // namespace sluice
