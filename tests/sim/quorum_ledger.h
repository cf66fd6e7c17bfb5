// QuorumLedger: what a job whose steps may close without some ranks must keep to. Who is included
// depends on what came when, so that there is no one way to hold it against: instead it keeps book.
// Every piece of work is in exactly one closed bundle, but for that of workers that were removed,
// which is in none or one; every result is recomputed from its record
// and what was sent; all ranks are equal wherever they have been.
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
#include "protocol/snapshot.h"
#include "server/shard/replica.h"
#include "tests/sim/reference.h"
#include "tests/sim/survival.h"

namespace sluice {

class QuorumLedger {
 public:
  QuorumLedger(const SurvivalOptions& options, const protocol::TensorTable& table,
               const protocol::Layout& layout);

  // The term goes on from the checkpoint after `step` that an earlier term wrote; 0: from nothing.
  void Begin(uint32_t term, uint32_t written_in_term, uint64_t step);
  // Who is there, as shards are told.
  void Members(uint32_t term, const std::vector<uint64_t>& incarnations);
  // Plans by which results are coded, before the first that is.
  void Knows(const protocol::CompressionPlan& plan) { plans_[plan.id] = plan; }
  // Of work, all but keys; also again.
  void Sent(uint32_t shard, const protocol::Exchange& exchange);
  // In the order in which the shard closes.
  void Closed(uint32_t shard, const protocol::ExchangeAnswer& answer);
  // What somebody is told must be what was closed.
  void Told(uint32_t shard, const protocol::ExchangeAnswer& answer);
  void Wrote(uint32_t shard, const protocol::ShardSnapshot& snapshot);
  void Reached(uint32_t rank, uint32_t term, uint64_t step, uint32_t parameters_hash);
  // At the end, when what waits was taken into a last step.
  void CheckAllIncluded(uint32_t shard, uint32_t term);
  absl::Span<const float> DownlinkResidual(uint32_t shard, uint32_t term, uint32_t chunk) const;

  // Taken by whoever asks.
  std::vector<std::string> TakeViolations() { return std::exchange(violations_, {}); }
  uint64_t late() const { return late_; }          // Included in a later step.
  uint64_t left_out() const { return left_out_; }  // Bundles that closed without some rank.

 private:
  // A shard's arithmetic, done again.
  struct ShardModel {
    std::vector<compress::ChunkConfig> base;  // Of results, as the job file has it.
    std::optional<compress::Compressor> downlink;
    uint64_t coded_by = 0;  // The plan; 0: the job file.
    std::map<uint32_t, std::unique_ptr<compress::Aggregator>> aggregators;  // By chunk.
    std::optional<server::Replica> replica;                                 // By chunk.
    uint64_t step = 0;                                                      // That closes.
  };
  struct Work {
    std::vector<std::string> frames;
    bool skip = false;
    uint32_t checksum = 0;
    std::optional<uint64_t> in_step;  // That included it.
  };
  // Shard, bundle, rank, step, incarnation.
  using WorkKey = std::tuple<uint32_t, uint32_t, uint32_t, uint64_t, uint64_t>;
  struct Term {
    std::vector<ShardModel> shards;
    std::map<WorkKey, Work> work;
    std::map<BundleKey, protocol::ClosingRecord> closed;
    std::vector<uint64_t> members;  // Incarnations, by rank.
  };
  static Work* FindWork(Term* term, uint32_t shard, uint32_t bundle,
                        const protocol::Included& included);
  void CheckNotLost(const Term& term, const WorkKey& key, const Work& work,
                    const std::string& where);

  ShardModel MakeModel(uint32_t shard) const;
  protocol::ShardSnapshot Save(uint32_t shard, ShardModel* model) const;
  void Restore(const protocol::ShardSnapshot& snapshot, uint32_t shard, ShardModel* model) const;
  float RateOf(const protocol::ClosingRecord& record) const;
  bool CheckRecord(Term* term, uint32_t shard, const protocol::ExchangeAnswer& answer);
  void CodeBy(uint64_t plan, ShardModel* model) const;
  void Advance(uint32_t shard, uint64_t step, ShardModel* model) const;
  std::vector<std::string> Recompute(Term* term, uint32_t shard,
                                     const protocol::ClosingRecord& record);
  void Violate(std::string what) { violations_.push_back(std::move(what)); }

  const SurvivalOptions& options_;
  const protocol::TensorTable& table_;
  const protocol::Layout& layout_;
  std::map<uint32_t, Term> terms_;
  std::map<uint64_t, protocol::CompressionPlan> plans_;  // By number.
  std::map<std::tuple<uint32_t, uint64_t, uint32_t>, protocol::ShardSnapshot>
      written_;                                               // Term, step, shard.
  std::map<std::pair<uint32_t, uint64_t>, uint32_t> hashes_;  // Of parameters, by term and step.
  uint64_t late_ = 0;
  uint64_t left_out_ = 0;
  std::vector<std::string> violations_;
};

}  // namespace sluice
