// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/recovery_outlook.h"

namespace sluice::server {
namespace {

RecoveryFacts FactsOf(const JobRun& run) {
  const CoordinatorOptions& options = run.options();
  RecoveryFacts facts{.has_checkpoints = run.has_checkpoints(),
                      .replay_limit = options.checkpoint.replay_limit,
                      .why_no_replay = options.why_no_replay,
                      .is_elastic = run.is_elastic(),
                      .needs_results = options.exchange.in_lockstep(),
                      .shards_update = options.shards_update,
                      .phase = run.phase(),
                      .parameters_agree = run.term().parameters_agree,
                      .checkpoint_step = run.book().newest()};
  for (const Member& member : run.roster()) facts.contributions_from.push_back(member.replay_from);
  for (const ShardSeat& seat : run.fleet()) {
    facts.results_from.push_back(seat.state == ShardState::kAwaitsReplay
                                     ? std::nullopt
                                     : std::optional(seat.health.results_from));
  }
  return facts;
}

}  // namespace

RecoveryOutlook::RecoveryOutlook(const JobRun& run) : run_(run), policy_(FactsOf(run)) {}

std::string RecoveryOutlook::Explain(const RepairObstacle& obstacle) const {
  return policy_.Explain(obstacle, obstacle.is_at_shard()
                                       ? Describe(run_.fleet()[obstacle.holder])
                                       : run_.roster().Describe(obstacle.holder));
}

std::string RecoveryOutlook::WhyNoRepair(bool shard_lost, bool worker_lost) const {
  const std::optional<RepairObstacle> obstacle = policy_.ToRepair(shard_lost, worker_lost);
  return obstacle.has_value() ? Explain(*obstacle) : "";
}

std::string RecoveryOutlook::WhyRollback() const {
  return Class() == RecoveryClass::kRollback ? Explain(*policy_.ToNextRepair()) : "";
}

}  // namespace sluice::server
