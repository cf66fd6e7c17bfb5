// SPDX-License-Identifier: Apache-2.0
// AsyncChecks checks a simulated job in mode async or ssp, which has no single valid course. It
// compares each shard with an AsyncMirror, and follows the clocks, checkpoints and plans of every
// term. It also plants the bugs of these modes around the shards.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "protocol/compression_plan.h"
#include "protocol/exchange.h"
#include "protocol/layout.h"
#include "protocol/shard_control.h"
#include "server/shard/async_shard.h"
#include "tests/sim/async_mirror.h"
#include "tests/sim/planted_bugs.h"
#include "tests/sim/survival.h"
#include "worker/core/pipeline.h"

namespace sluice {

class AsyncChecks {
 public:
  // All arguments outlive it. Violations go to the report.
  AsyncChecks(const SurvivalOptions& options, const protocol::TensorTable& table,
              const protocol::Layout& layout, SurvivalReport* report);

  // Continues the checks of an earlier run, all of whose processes have ended.
  void Continue(const AsyncChecks& earlier) { saved_ = earlier.saved_; }

  // Shards, by process. `restored_term` is the term that wrote the restored checkpoint.
  void ShardBegins(uint32_t process, const server::Shard& shard, const protocol::StartShard& start,
                   uint32_t restored_term);
  // Lets the shard handle a request and checks its effects.
  std::vector<server::ShardEffect> Handle(uint32_t process, server::StreamId stream,
                                          const protocol::ExchangeRequest& exchange, absl::Time now,
                                          server::Shard* shard);
  // Checks an answer and returns the answer that the rank receives.
  std::shared_ptr<const protocol::ExchangeReply> Answer(
      uint32_t process, uint32_t rank, std::shared_ptr<const protocol::ExchangeReply> answer);
  // A shard has learned of other holders of ranks.
  void HoldersChanged(uint32_t process, const std::vector<uint64_t>& incarnations) {
    shards_.at(process).mirror.SetHolders(incarnations);
  }
  // Checks a shard's Tick and its effects.
  void Ticked(uint32_t process, const server::Shard& shard,
              const std::vector<server::ShardEffect>& effects);
  void ShardEnds(uint32_t process, const server::Shard& shard);

  // Workers, by rank.
  void WorkerBegins(const protocol::Sender& sender, bool is_newcomer,
                    const worker::Pipeline& pipeline);
  // Returns whether this is the rank's newest process.
  bool IsCurrent(const protocol::Sender& sender) const {
    const Rank& rank = ranks_[sender.rank];
    return rank.term == sender.term && rank.incarnation == sender.incarnation;
  }
  void StepBegins(uint32_t rank) { ranks_[rank].coded_by = ranks_[rank].told_plan; }
  void Encodes(const worker::EncodeTask& task);
  void CheckSent(uint32_t shard, const protocol::ExchangeRequest& exchange,
                 const std::vector<std::vector<float>>& parameters);
  void Hears(uint32_t rank, uint32_t shard, const protocol::ExchangeReply& answer,
             const worker::Pipeline& pipeline);
  void StepDone(uint32_t rank, const worker::Pipeline& pipeline);
  void Saves(uint32_t rank, uint64_t step);
  void WorkerEnds(uint32_t rank, const SimEncoder& encoder);

  // Every checkpoint that the last term has named must have all parts.
  void CheckAtTheEnd();

 private:
  struct Shard {
    uint32_t number = 0;
    uint32_t term = 0;
    uint64_t plan = 0;  // The newest plan that it knows.
    AsyncMirror mirror;
  };
  struct Rank {
    uint32_t term = 0;
    uint32_t generation = 0;
    uint64_t incarnation = 0;
    bool catches_up = false;
    uint64_t told_plan = 0;  // The plan number in the last result of shard 0's first bundle.
    std::optional<uint64_t> told_in;  // The step of that result.
    uint64_t coded_by = 0;            // The plan that codes the open step.
    double owed = 0;
  };
  struct Term {
    std::set<uint64_t> named;  // Steps of checkpoints.
    // Parts of checkpoints, by step and rank or shard.
    std::set<std::pair<uint64_t, uint32_t>> of_ranks;
    std::set<std::pair<uint64_t, uint32_t>> of_shards;
    std::map<uint64_t, protocol::CompressionPlan> plans;  // Known plans, by number.
  };

  void Violate(std::string what) {
    if (!what.empty() && report_.violations.size() < 8) {
      report_.violations.push_back(std::move(what));
    }
  }
  void CheckEffects(const Shard& shard, const std::vector<server::ShardEffect>& effects);
  void CheckResult(const Shard& shard, uint32_t rank, const protocol::ExchangeReply& answer);
  void CheckBase(uint32_t shard, const protocol::ExchangeRequest& exchange,
                 const std::vector<std::vector<float>>& parameters);
  void CheckPlan(uint32_t shard, const protocol::ExchangeRequest& exchange);

  const SurvivalOptions& options_;
  const protocol::TensorTable& table_;
  const protocol::Layout& layout_;
  SurvivalReport& report_;
  std::map<uint32_t, Shard> shards_;  // By process.
  std::vector<Rank> ranks_;
  std::map<uint32_t, Term> terms_;
  // The mirrors at each checkpoint, by term, step and shard.
  std::map<std::tuple<uint32_t, uint64_t, uint32_t>, AsyncMirror> saved_;
};

}  // namespace sluice
