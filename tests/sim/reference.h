// SPDX-License-Identifier: Apache-2.0
// Reference computes the only valid course of a `sync` job, with updates on the workers or on the
// shards, step by step without messages, processes or faults. The simulation compares every shard
// and worker with the reference. It also proves that no gradient is lost: the sent values and the
// residuals add up to the gradients. The number of ranks may change between two steps, as in a job
// that is resumed with another number of workers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "compress/aggregator.h"
#include "compress/compressor.h"
#include "protocol/exchange.h"
#include "protocol/layout.h"
#include "server/shard/shard_parameters.h"
#include "tests/sim/balance.h"
#include "tests/sim/survival.h"
#include "worker/core/bundle_encoder.h"

namespace sluice {

struct BundleKey {
  uint64_t step = 0;
  uint32_t shard = 0;
  uint32_t bundle = 0;
  friend auto operator<=>(const BundleKey&, const BundleKey&) = default;
};

struct ReferenceBundle {
  std::vector<protocol::Included> included;  // By rank.
  uint32_t n = 0;
  float rate = 0;
  uint32_t result_checksum = 0;
};

// The valid course of one job.
class JobReference {
 public:
  virtual ~JobReference() = default;
  virtual const ReferenceBundle& bundle(const BundleKey& key) const = 0;
  // The remaining methods describe the end of the job.
  virtual const std::vector<std::vector<float>>& parameters() const = 0;
  virtual absl::Span<const float> UplinkResidual(uint32_t rank, uint32_t chunk) const = 0;
  virtual absl::Span<const float> DownlinkResidual(uint32_t chunk) const = 0;
};

// The number of ranks by the last step before it holds, except the number in the options.
using RankChanges = std::map<uint64_t, uint32_t>;

class Reference final : public JobReference {
 public:
  // The options' number of ranks holds until the first change.
  Reference(const SurvivalOptions& options, const protocol::TensorTable& table,
            const protocol::Layout& layout, RankChanges changes = {});

  const ReferenceBundle& bundle(const BundleKey& key) const override { return bundles_.at(key); }
  const std::vector<std::vector<float>>& parameters() const override { return parameters_; }
  absl::Span<const float> UplinkResidual(uint32_t rank, uint32_t chunk) const override {
    return encoders_[rank].compressor().residual(chunk);
  }
  absl::Span<const float> DownlinkResidual(uint32_t chunk) const override {
    if (replica_.has_value()) return replica_->Owed(chunk);
    return downlinks_[layout_.chunks[chunk].shard].residual(chunk);
  }
  const std::vector<std::string>& violations() const { return violations_; }

  // For a job whose plans depend on measurements, which the constructor does not run. `plans` holds
  // the plans of the steps up to `step` by their first step, except the job's first plan.
  using Plans = std::map<uint64_t, std::shared_ptr<const protocol::CompressionPlan>>;
  void RunTo(uint64_t step, const Plans& plans);
  // Call it once, after the last step.
  void CheckAll();

 private:
  using Frames = std::vector<std::string>;

  void RunStep(uint64_t step);
  void MakeAggregators();
  // Gives the next step another number of ranks.
  void ChangeRanks(uint32_t ranks);
  void ChangeRanksIfDue();
  void CheckMerged(const std::vector<std::vector<std::vector<float>>>& before);
  void Adopt(std::shared_ptr<const protocol::CompressionPlan> plan);
  void RecodeDownlink(uint32_t shard);
  std::vector<worker::EncodedBundle> EncodeBundles(uint64_t step, uint32_t shard, uint32_t bundle);
  void AddToTotals(uint32_t rank, uint32_t chunk, absl::Span<const float> gradient,
                   const std::string* frame);
  // Returns the result's frames. In step 0, `sent` holds rank 0's parameters.
  Frames Close(uint64_t step, uint32_t shard, uint32_t bundle,
               const std::vector<worker::EncodedBundle>& sent);
  Frames EncodeMean(uint64_t step, const std::vector<uint32_t>& chunks, uint32_t n,
                    std::vector<std::vector<float>>* sums);
  void CheckPlainSum(uint64_t step, uint32_t chunk, const std::vector<worker::EncodedBundle>& sent,
                     const std::vector<float>& mean);
  void CheckBalance(const std::string& whose, const Balance& totals,
                    absl::Span<const float> residual);
  void CheckBalances();
  void CheckReplica();
  void TakeResult(uint64_t step, uint32_t chunk, const std::string& frame,
                  const std::vector<worker::EncodedBundle>& sent);
  // Applies the chunk's mean and returns the values to publish.
  absl::Span<const float> Update(uint64_t step, uint32_t chunk, absl::Span<const float> mean);

  const SurvivalOptions options_;
  const protocol::TensorTable& table_;
  const protocol::Layout& layout_;
  const RankChanges changes_;
  uint32_t ranks_;
  std::vector<worker::BundleEncoder> encoders_;  // By rank.
  // By shard, because each shard has its own thresholds.
  std::vector<compress::Compressor> downlinks_;
  std::vector<compress::ChunkConfig> downlink_base_;  // Configuration without a plan, by chunk.
  // The current step's plan in a job with a schedule.
  std::shared_ptr<const protocol::CompressionPlan> plan_;
  uint64_t changed_before_ = 0;  // The step before which the number of ranks changed last.
  uint64_t next_step_;
  std::optional<server::ShardParameters> replica_;                  // Only with a rule; by chunk.
  std::vector<std::unique_ptr<compress::Aggregator>> aggregators_;  // By chunk.
  std::vector<std::vector<std::vector<float>>> values_;  // The step's values, by rank and tensor.
  // Results to observe, by rank, shard, bundle.
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, Frames> published_;
  std::vector<std::vector<float>> parameters_;
  std::vector<std::vector<float>> momentum_;
  std::vector<std::vector<float>> means_;  // The step's means, by tensor.
  std::map<BundleKey, ReferenceBundle> bundles_;
  std::map<std::pair<uint32_t, uint32_t>, Balance> uplink_totals_;  // By rank and chunk.
  std::map<uint32_t, Balance> downlink_totals_;                     // By chunk.
  std::vector<std::string> violations_;
};

// Returns the plan that begins with `step` by the job's schedule, worked out independently of the
// plan maker. Returns null if none begins. `last` is the plan in force before the step, or null.
std::shared_ptr<const protocol::CompressionPlan> PlanOfSchedule(
    const SurvivalOptions& options, const protocol::TensorTable& table, uint64_t step,
    const protocol::CompressionPlan* last);

// Gives a shard's downlink the codecs of the plan, or those of the job file if the plan is null.
// `base` is the configuration from the job file, by chunk.
void RecodeReferenceDownlink(const protocol::CompressionPlan* plan,
                             absl::Span<const compress::ChunkConfig> base,
                             const protocol::Layout& layout, uint32_t shard,
                             compress::Compressor* downlink);

// Applies a step's mean as a simulated job's workers do. In step 0, the mean is the parameters.
void ApplyMean(uint64_t step, absl::Span<const float> mean, absl::Span<float> parameters,
               absl::Span<float> momentum);

uint32_t HashParameters(const std::vector<std::vector<float>>& parameters);

}  // namespace sluice
