// Adapters around a worker's encoder and a shard's answers: as they are, or with a planted bug.
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
  virtual compress::SavedCompressor Save() const = 0;
  virtual absl::Status Restore(const compress::SavedCompressor& saved, bool plans) = 0;
  virtual absl::Span<const float> Residual(uint32_t chunk) const = 0;
};

std::unique_ptr<SimEncoder> MakeSimEncoder(SurvivalBug bug, const protocol::TensorTable& table,
                                           const protocol::Layout& layout,
                                           const protocol::CompressionSpec& compression,
                                           uint32_t rank);

// What a shard with the bug would read of its part of a checkpoint.
void PlantInReplica(SurvivalBug bug, protocol::ShardSnapshot* snapshot);

// What a shard with the bug would answer: it sums what arrived, as it arrived.
class AnswerForger {
 public:
  AnswerForger(const SurvivalOptions& options, const protocol::Layout& layout)
      : options_(options), layout_(layout) {}

  void Arrived(uint32_t shard, const protocol::Exchange& exchange);
  // The answer itself unless the bug concerns it.
  std::shared_ptr<const protocol::ExchangeAnswer> Answer(
      uint32_t shard, std::shared_ptr<const protocol::ExchangeAnswer> answer);

 private:
  bool enabled() const {
    return options_.bug == SurvivalBug::kSumInArrivalOrder ||
           options_.bug == SurvivalBug::kDividedByWorldSize;
  }
  std::shared_ptr<const protocol::ExchangeAnswer> Sum(const BundleKey& key,
                                                      const protocol::ExchangeAnswer& answer,
                                                      SurvivalBug bug) const;

  const SurvivalOptions& options_;
  const protocol::Layout& layout_;
  std::map<BundleKey, std::vector<protocol::Exchange>>
      arrived_;  // First copies, in order of arrival.
};

}  // namespace sluice
