// SPDX-License-Identifier: Apache-2.0
// RelayReference computes the only valid course of a job with relays, step by step without
// messages, processes or faults: each rack's contributions, the sums that its relay forwards, the
// relays' contributions, and the results on the way down. It also proves that no gradient is lost
// at either level: the sent values and the residuals add up to the input.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compress/aggregator.h"
#include "compress/compressor.h"
#include "server/shard/shard_parameters.h"
#include "tests/sim/balance.h"
#include "tests/sim/reference.h"
#include "worker/core/bundle_encoder.h"

namespace sluice {

// One of the jobs that make up a job with relays.
class PartReference final : public JobReference {
 public:
  // All arguments outlive it. `parameters` are the workers' parameters.
  PartReference(const SurvivalOptions& options, const protocol::TensorTable& table,
                const protocol::Layout& layout, const std::vector<std::vector<float>>& parameters);

  const ReferenceBundle& bundle(const BundleKey& key) const override { return bundles_.at(key); }
  const std::vector<std::vector<float>>& parameters() const override { return parameters_; }
  absl::Span<const float> UplinkResidual(uint32_t rank, uint32_t chunk) const override {
    return encoders_[rank].compressor().residual(chunk);
  }
  absl::Span<const float> DownlinkResidual(uint32_t chunk) const override {
    if (replica_.has_value()) return replica_->Owed(chunk);
    return downlinks_[layout_.chunks[chunk].shard].residual(chunk);
  }

  using Values = std::vector<std::vector<float>>;  // By position in the bundle.

  // `given` holds each rank's values for the bundle's chunks and the number of contributions in
  // them. Returns their sum and its number of contributions. In step 0, only rank 0's values count.
  struct Given {
    Values values;
    uint32_t weight = 0;  // 0 if the rank skips the step.
  };
  std::pair<Values, uint32_t> Sum(const BundleKey& key, const std::vector<Given>& given);
  // Closes the bundle with a mean over `n`, or with what the ranks' parameters lack of the shards',
  // and returns the values that the ranks decode.
  Values Publish(const BundleKey& key, uint32_t n, const Values& mean);
  // Closes the bundle as a job without a parent does.
  Values Close(const BundleKey& key, uint32_t n, Values sum);
  // Follows the job's schedule of plans. Call this before each step.
  void BeginStep(uint64_t step);
  void EndStep(uint64_t step, uint32_t shard) { downlinks_[shard].EndStep(step); }
  void CheckBalances(const std::string& whose, std::vector<std::string>* violations) const;

 private:
  worker::EncodedBundle Encode(const BundleKey& key, uint32_t rank, const Given& given);

  const SurvivalOptions& options_;
  const protocol::TensorTable& table_;
  const protocol::Layout& layout_;
  const std::vector<std::vector<float>>& parameters_;
  std::shared_ptr<const protocol::CompressionPlan> plan_;  // The plan in force; not in a rack.
  std::vector<compress::ChunkConfig> downlink_base_;       // Without a plan, by chunk.
  std::vector<worker::BundleEncoder> encoders_;
  std::vector<compress::Compressor> downlinks_;                     // By shard.
  std::vector<std::unique_ptr<compress::Aggregator>> aggregators_;  // By chunk.
  std::optional<server::ShardParameters> replica_;  // By chunk; only with a rule, not in a rack.
  std::map<BundleKey, ReferenceBundle> bundles_;
  std::map<std::pair<uint32_t, uint32_t>, Balance> uplink_balances_;  // By rank and chunk.
  std::map<uint32_t, Balance> downlink_balances_;                     // By chunk.
};

class RelayReference {
 public:
  // `above` and `racks` outlive it.
  RelayReference(const SurvivalOptions& above, const std::vector<SurvivalOptions>& racks);

  const JobReference& above() const { return *above_; }
  const JobReference& rack(uint32_t relay) const { return *racks_[relay]; }
  const std::vector<std::string>& violations() const { return violations_; }

 private:
  void RunStep(uint64_t step);
  // Returns what the workers of a rack compute in this step.
  std::vector<PartReference::Given> GivenIn(uint32_t relay, const BundleKey& key) const;
  void TakeMean(const BundleKey& key, const PartReference::Values& mean);

  const SurvivalOptions& above_options_;
  const std::vector<SurvivalOptions>& rack_options_;
  const protocol::TensorTable table_;
  const protocol::Layout layout_;
  std::vector<std::vector<float>> parameters_;
  std::vector<std::vector<float>> momentum_;
  std::vector<std::vector<float>> means_;  // The step's means, by tensor.
  std::vector<std::vector<std::vector<std::vector<float>>>> values_;  // By relay, rank and tensor.
  std::unique_ptr<PartReference> above_;
  std::vector<std::unique_ptr<PartReference>> racks_;
  std::vector<std::string> violations_;
};

}  // namespace sluice
