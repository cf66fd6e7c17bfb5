// RelayReference: the one way in which a job with relays can go, computed step by step without
// messages, processes or faults: what each rack's workers send and its relay hands on, what the
// relays send, and what comes back down. It proves for itself that no gradient is lost at either
// level: what was sent and the residuals add up to what was to be sent.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compress/aggregator.h"
#include "compress/compressor.h"
#include "tests/sim/balance.h"
#include "tests/sim/reference.h"
#include "worker/core/bundle_encoder.h"

namespace sluice {

// One of the jobs that make it up.
class PartReference final : public JobReference {
 public:
  // All outlive it. `parameters` are those of the workers.
  PartReference(const SurvivalOptions& options, const protocol::TensorTable& table,
                const protocol::Layout& layout, const std::vector<std::vector<float>>& parameters);

  const ReferenceBundle& bundle(const BundleKey& key) const override { return bundles_.at(key); }
  const std::vector<std::vector<float>>& parameters() const override { return parameters_; }
  absl::Span<const float> UplinkResidual(uint32_t rank, uint32_t chunk) const override {
    return encoders_[rank].compressor().residual(chunk);
  }
  absl::Span<const float> DownlinkResidual(uint32_t chunk) const override {
    return downlinks_[layout_.chunks[chunk].shard].residual(chunk);
  }

  using Values = std::vector<std::vector<float>>;  // By position in the bundle.

  // What each rank gives of the bundle's chunks: the values, of how many contributions. Returns
  // their sum, and how many are in it; of step 0 rank 0's.
  struct Given {
    Values values;
    uint32_t weight = 0;  // 0: it skips.
  };
  std::pair<Values, uint32_t> Sum(const BundleKey& key, const std::vector<Given>& given);
  // Closes it with a mean over n; what the ranks decode.
  Values Publish(const BundleKey& key, uint32_t n, const Values& mean);
  // As a job does that has nothing above it.
  Values Close(const BundleKey& key, uint32_t n, Values sum);
  void EndStep(uint64_t step, uint32_t shard) { downlinks_[shard].EndStep(step); }
  void CheckBalances(const std::string& whose, std::vector<std::string>* violations) const;

 private:
  worker::EncodedBundle Encode(const BundleKey& key, uint32_t rank, const Given& given);

  const SurvivalOptions& options_;
  const protocol::Layout& layout_;
  const std::vector<std::vector<float>>& parameters_;
  std::vector<worker::BundleEncoder> encoders_;
  std::vector<compress::Compressor> downlinks_;                     // By shard.
  std::vector<std::unique_ptr<compress::Aggregator>> aggregators_;  // By chunk.
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
  // Of the workers of a rack: what they compute in this step.
  std::vector<PartReference::Given> GivenIn(uint32_t relay, const BundleKey& key) const;
  void TakeMean(const BundleKey& key, const PartReference::Values& mean);

  const SurvivalOptions& above_options_;
  const std::vector<SurvivalOptions>& rack_options_;
  const protocol::TensorTable table_;
  const protocol::Layout layout_;
  std::vector<std::vector<float>> parameters_;
  std::vector<std::vector<float>> momentum_;
  std::vector<std::vector<float>> means_;                             // Of the step, by tensor.
  std::vector<std::vector<std::vector<std::vector<float>>>> values_;  // By relay, rank and tensor.
  std::unique_ptr<PartReference> above_;
  std::vector<std::unique_ptr<PartReference>> racks_;
  std::vector<std::string> violations_;
};

}  // namespace sluice
