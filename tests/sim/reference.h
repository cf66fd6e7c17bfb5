// Reference: the one way in which a job of mode `sync` can go, with updates on the workers or on
// the shards, computed step by step without messages, processes or faults; what every shard and
// worker does is held against it. It proves for itself that no gradient is lost: what was sent and
// the residuals add up to the gradients.
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
#include "server/shard/replica.h"
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

// How one job can go.
class JobReference {
 public:
  virtual ~JobReference() = default;
  virtual const ReferenceBundle& bundle(const BundleKey& key) const = 0;
  // The rest is of the job's end.
  virtual const std::vector<std::vector<float>>& parameters() const = 0;
  virtual absl::Span<const float> UplinkResidual(uint32_t rank, uint32_t chunk) const = 0;
  virtual absl::Span<const float> DownlinkResidual(uint32_t chunk) const = 0;
};

class Reference final : public JobReference {
 public:
  Reference(const SurvivalOptions& options, const protocol::TensorTable& table,
            const protocol::Layout& layout);

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

  // Of a job whose plans go by what is measured, which is not run when this is made. Plans of the
  // steps up to `step` are known, by their first step, but for that of the job's first.
  using Plans = std::map<uint64_t, std::shared_ptr<const protocol::CompressionPlan>>;
  void RunTo(uint64_t step, const Plans& plans);
  // Once, after the last step.
  void CheckAll();

 private:
  using Frames = std::vector<std::string>;

  void RunStep(uint64_t step);
  // As the job's schedule says, whoever makes plans.
  void FollowSchedule(uint64_t step);
  void TakeUp(std::shared_ptr<const protocol::CompressionPlan> plan);
  void RecodeDownlink(uint32_t shard);
  std::vector<worker::EncodedBundle> EncodeBundles(uint64_t step, uint32_t shard, uint32_t bundle);
  void AddToTotals(uint32_t rank, uint32_t chunk, absl::Span<const float> gradient,
                   const std::string* frame);
  // The result's frames. Parameters of step 0, as rank 0 sent them, are `sent`.
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
  // Gives what is to be published of a chunk whose mean this is.
  absl::Span<const float> Update(uint64_t step, uint32_t chunk, absl::Span<const float> mean);

  const SurvivalOptions options_;
  const protocol::TensorTable& table_;
  const protocol::Layout& layout_;
  std::vector<worker::BundleEncoder> encoders_;            // By rank.
  std::vector<compress::Compressor> downlinks_;            // By shard: thresholds are its own.
  std::vector<compress::ChunkConfig> downlink_base_;       // Without a plan, by chunk.
  std::shared_ptr<const protocol::CompressionPlan> plan_;  // Of a job with a schedule: of the step.
  uint64_t next_step_;
  std::optional<server::Replica> replica_;                          // With a rule; by chunk.
  std::vector<std::unique_ptr<compress::Aggregator>> aggregators_;  // By chunk.
  std::vector<std::vector<std::vector<float>>> values_;  // Of the step, by rank and tensor.
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, Frames> published_;  // Not yet observed, by
                                                                          // rank, shard, bundle.
  std::vector<std::vector<float>> parameters_;
  std::vector<std::vector<float>> momentum_;
  std::vector<std::vector<float>> means_;  // Of the step, by tensor.
  std::map<BundleKey, ReferenceBundle> bundles_;
  std::map<std::pair<uint32_t, uint32_t>, Balance> uplink_totals_;  // By rank and chunk.
  std::map<uint32_t, Balance> downlink_totals_;                     // By chunk.
  std::vector<std::string> violations_;
};

// How the workers of a simulated job apply a step's mean; of step 0 it is the parameters.
void ApplyMean(uint64_t step, absl::Span<const float> mean, absl::Span<float> parameters,
               absl::Span<float> momentum);

uint32_t HashParameters(const std::vector<std::vector<float>>& parameters);

}  // namespace sluice
