// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/recovery_policy.h"

#include "absl/strings/str_cat.h"

namespace sluice::server {

absl::string_view ToString(RecoveryClass recovery) {
  switch (recovery) {
    case RecoveryClass::kNone:
      return "none";
    case RecoveryClass::kRollback:
      return "rollback";
    case RecoveryClass::kReplay:
      return "replay";
  }
  return "unknown";
}

using Kind = RepairObstacle::Kind;

std::optional<RepairObstacle> RecoveryPolicy::ToShardReplay() const {
  if (facts_.is_elastic) return RepairObstacle{.kind = Kind::kUnknownParticipants};
  if (IsNoFirstStep()) return RepairObstacle{.kind = Kind::kDifferentParameters};
  for (uint32_t rank = 0; rank < facts_.contributions_from.size(); ++rank) {
    const uint64_t from = facts_.contributions_from[rank];
    if (!Suffices(from)) return RepairObstacle{Kind::kForgottenContributions, rank, from};
  }
  return std::nullopt;
}

std::optional<RepairObstacle> RecoveryPolicy::ToReexecution() const {
  if (IsNoFirstStep()) return RepairObstacle{.kind = Kind::kDifferentParameters};
  if (!facts_.needs_results) return std::nullopt;
  for (uint32_t shard = 0; shard < facts_.results_from.size(); ++shard) {
    const std::optional<uint64_t> from = facts_.results_from[shard];
    if (from.has_value() && !Suffices(*from)) {
      return RepairObstacle{Kind::kForgottenResults, shard, *from};
    }
  }
  return std::nullopt;
}

std::optional<RepairObstacle> RecoveryPolicy::ToRepair(bool shard_lost, bool worker_lost) const {
  std::optional<RepairObstacle> obstacle;
  if (shard_lost) obstacle = ToShardReplay();
  if (!obstacle.has_value() && worker_lost) obstacle = ToReexecution();
  return obstacle;
}

std::optional<RepairObstacle> RecoveryPolicy::ToNextRepair() const {
  if (facts_.replay_limit == 0) return RepairObstacle{.kind = Kind::kNoReplay};
  if (facts_.phase != protocol::JobPhase::kRunning) {
    return RepairObstacle{.kind = Kind::kNotRunning};
  }
  return ToRepair(/*shard_lost=*/true, /*worker_lost=*/true);
}

RecoveryClass RecoveryPolicy::Class() const {
  if (!facts_.has_checkpoints) return RecoveryClass::kNone;
  return ToNextRepair().has_value() ? RecoveryClass::kRollback : RecoveryClass::kReplay;
}

std::string RecoveryPolicy::Explain(const RepairObstacle& obstacle,
                                    absl::string_view holder) const {
  switch (obstacle.kind) {
    case Kind::kNoReplay:
      return facts_.why_no_replay;
    case Kind::kNotRunning:
      return absl::StrCat("the job is ", ToString(facts_.phase));
    case Kind::kUnknownParticipants:
      return "the participants of each step are not known (membership elastic)";
    case Kind::kDifferentParameters:
      return absl::StrCat("there is no checkpoint yet, and ",
                          facts_.shards_update ? "the shards got their parameters from rank 0"
                                               : "the ranks began with different parameters");
    case Kind::kForgottenContributions:
    case Kind::kForgottenResults:
      break;
  }
  const absl::string_view what = obstacle.is_at_shard() ? "results" : "contributions";
  const std::string kept = obstacle.kept_from == 0 ? absl::StrCat("no ", what)
                                                   : absl::StrCat("only ", what, " from step ",
                                                                  obstacle.kept_from, " on");
  return absl::StrCat(holder, " keeps ", kept, ", but step ", facts_.checkpoint_step + 1,
                      " would be needed (checkpoint.replay_limit is ", facts_.replay_limit,
                      " bytes; raise it, or lower checkpoint.interval)");
}

}  // namespace sluice::server
