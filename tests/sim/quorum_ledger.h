// SPDX-License-Identifier: Apache-2.0
// QuorumLedger checks a job whose steps may close without some ranks. The included ranks depend on
// arrival times, so that no single reference run exists. The ledger therefore records events and
// checks invariants: every piece of work is in exactly one closed bundle (at most one for a removed
// worker); every result can be recomputed from its record and the contributions; and all ranks have
// equal parameters after the same step.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "compress/aggregator.h"
#include "compress/compressor.h"
#include "protocol/exchange.h"
#include "protocol/layout.h"
#include "protocol/snapshot.h"
#include "server/shard/shard_parameters.h"
#include "tests/sim/reference.h"
#include "tests/sim/survival.h"

namespace sluice {

class QuorumLedger {
 public:
  QuorumLedger(const SurvivalOptions& options, const protocol::TensorTable& table,
               const protocol::Layout& layout);

  // Continues the ledger of an earlier run, all of whose processes have ended.
  void Continue(const QuorumLedger& earlier) {
    plans_ = earlier.plans_;
    written_ = earlier.written_;
    hashes_ = earlier.hashes_;
    late_ = earlier.late_;
    left_out_ = earlier.left_out_;
    saved_pending_ = earlier.saved_pending_;
  }
  // The term starts from the checkpoint after `step` that an earlier term wrote, or from nothing if
  // `step` is 0.
  void Begin(uint32_t term, uint32_t written_in_term, uint64_t step);
  // Records the members that the coordinator announced to shards.
  void Members(uint32_t term, const std::vector<uint64_t>& incarnations);
  // Records a plan. Call it before the first result that the plan codes.
  void Knows(const protocol::CompressionPlan& plan) { plans_[plan.id] = plan; }
  // Records work, but not requests that only carry keys. A repeated call has no effect.
  void Sent(uint32_t shard, const protocol::ExchangeRequest& exchange);
  // Call it in the order in which the shard closes bundles.
  void Closed(uint32_t shard, const protocol::ExchangeReply& answer);
  // Checks that the answer to a worker is the recorded result of the bundle.
  void CheckAnswer(uint32_t shard, const protocol::ExchangeReply& answer);
  void Wrote(uint32_t shard, const protocol::ShardSnapshot& snapshot);
  // Checks that a worker's part holds, in its residuals, the work that is in no result up to its
  // step. `residual_of` returns a chunk's residual without that work.
  void Saved(const protocol::Sender& sender, const protocol::WorkerSnapshot& part,
             absl::FunctionRef<absl::Span<const float>(uint32_t)> residual_of);
  void Reached(uint32_t rank, uint32_t term, uint64_t step, uint32_t parameters_hash);
  // Call it at the end, after a last step has included all waiting work.
  void CheckAllIncluded(uint32_t shard, uint32_t term);
  absl::Span<const float> DownlinkResidual(uint32_t shard, uint32_t term, uint32_t chunk) const;

  // Returns and clears the violations.
  std::vector<std::string> TakeViolations() { return std::exchange(violations_, {}); }
  uint64_t late() const { return late_; }          // Work that a later step included.
  uint64_t left_out() const { return left_out_; }  // Bundles that closed without some rank.
  // Workers' parts with work that is in no result.
  uint64_t saved_pending() const { return saved_pending_; }

 private:
  // Recomputes a shard's arithmetic.
  struct ShardModel {
    std::vector<compress::ChunkConfig> base;  // The results' configuration in the job file.
    std::optional<compress::Compressor> downlink;
    uint64_t coded_by = 0;  // The plan's number; 0 is the job file's configuration.
    std::map<uint32_t, std::unique_ptr<compress::Aggregator>> aggregators;  // By chunk.
    std::optional<server::ShardParameters> replica;                         // By chunk.
    uint64_t step = 0;  // The step whose bundles close next.
  };
  struct Work {
    std::vector<std::string> frames;
    bool skip = false;
    uint32_t checksum = 0;
    protocol::Work made_from{};
    std::optional<uint64_t> in_step;  // The step that included it.
  };
  // The key is (shard, bundle, rank, step, incarnation).
  using WorkKey = std::tuple<uint32_t, uint32_t, uint32_t, uint64_t, uint64_t>;
  struct Term {
    std::vector<ShardModel> shards;
    std::map<WorkKey, Work> work;
    std::map<BundleKey, protocol::ClosingRecord> closed;
    std::vector<uint64_t> members;  // Incarnations by rank.
  };
  static Work* FindWork(Term* term, uint32_t shard, uint32_t bundle,
                        const protocol::Included& included);
  void CheckNotLost(const Term& term, const WorkKey& key, const Work& work,
                    const std::string& where);

  ShardModel MakeModel(uint32_t shard) const;
  protocol::ShardSnapshot Save(uint32_t shard, ShardModel* model) const;
  void Restore(const protocol::ShardSnapshot& snapshot, uint32_t shard, ShardModel* model) const;
  float RateOf(const protocol::ClosingRecord& record) const;
  bool CheckRecord(Term* term, uint32_t shard, const protocol::ExchangeReply& answer);
  void CodeBy(uint64_t plan, ShardModel* model) const;
  void Advance(uint32_t shard, uint64_t step, ShardModel* model) const;
  // Returns the mean of a chunk, or what the job's `merge_` keys set in its place.
  std::vector<float> MeanOf(Term* term, uint32_t shard, const protocol::ClosingRecord& record,
                            size_t position);
  std::vector<std::string> Recompute(Term* term, uint32_t shard,
                                     const protocol::ClosingRecord& record);
  void Violate(std::string what) { violations_.push_back(std::move(what)); }

  const SurvivalOptions& options_;
  const protocol::TensorTable& table_;
  const protocol::Layout& layout_;
  std::map<uint32_t, Term> terms_;
  std::map<uint64_t, protocol::CompressionPlan> plans_;  // By number.
  std::map<std::tuple<uint32_t, uint64_t, uint32_t>, protocol::ShardSnapshot>
      written_;  // By term, step and shard.
  // Hashes of parameters, by term and step.
  std::map<std::pair<uint32_t, uint64_t>, uint32_t> hashes_;
  uint64_t late_ = 0;
  uint64_t left_out_ = 0;
  uint64_t saved_pending_ = 0;
  std::vector<std::string> violations_;
};

}  // namespace sluice
