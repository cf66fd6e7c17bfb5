// SPDX-License-Identifier: Apache-2.0
// RecoveryPolicy: decides if a job can repair the loss of a process in place, and explains why not.
// A repair needs data that other processes keep. Without that data, the job rolls back, or ends if
// it has no checkpoints. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "protocol/job_phase.h"
#include "server/coordinator/job_status.h"

namespace sluice::server {

// The first kept step of a process that keeps everything.
inline constexpr uint64_t kEverythingKept = 1;

// The facts that decide. A step from which data is kept is 0 if no data is kept.
struct RecoveryFacts {
  bool has_checkpoints = false;
  uint64_t replay_limit = 0;    // In bytes. With 0, every loss causes a rollback.
  std::string why_no_replay{};  // The reason for that.
  bool is_elastic = false;      // Workers join and leave while the job runs.
  // True if a newcomer needs the results of all steps after the checkpoint. In asynchronous modes,
  // it gets the newest parameters instead.
  bool needs_results = true;
  bool shards_update = false;  // The shards keep the parameters.
  protocol::JobPhase phase = protocol::JobPhase::kWaiting;
  bool parameters_agree = true;  // All ranks began with equal parameters.
  uint64_t checkpoint_step = 0;  // Step of the newest complete checkpoint; 0 if there is none.
  // By rank: the first step whose contributions the worker keeps.
  std::vector<uint64_t> contributions_from{};
  // By shard: the first step whose results the shard keeps. Unset for a shard that will replay the
  // steps after the checkpoint and then has their results.
  std::vector<std::optional<uint64_t>> results_from{};
};

// The reason why a loss cannot be repaired.
struct RepairObstacle {
  enum class Kind {
    kNoReplay,                // The job's settings allow no repair.
    kNotRunning,              // The job is not running.
    kUnknownParticipants,     // The participants of a step are not known.
    kDifferentParameters,     // There is no checkpoint, and the ranks' parameters differed.
    kForgottenContributions,  // The worker `holder` has forgotten contributions.
    kForgottenResults,        // The shard `holder` has forgotten results.
  };
  bool is_at_shard() const { return kind == Kind::kForgottenResults; }

  Kind kind = Kind::kNoReplay;
  uint32_t holder = 0;
  uint64_t kept_from = 0;  // The first step that the holder still has.

  friend bool operator==(const RepairObstacle&, const RepairObstacle&) = default;
};

class RecoveryPolicy {
 public:
  explicit RecoveryPolicy(RecoveryFacts facts) : facts_(std::move(facts)) {}

  // Returns what prevents a shard that starts with the newest checkpoint from getting the later
  // steps from the workers.
  std::optional<RepairObstacle> ToShardReplay() const;
  // As ToShardReplay, for a worker, which gets the steps from the shards.
  std::optional<RepairObstacle> ToReexecution() const;
  // Returns what prevents the repair after the loss of shards, of workers, or of both.
  std::optional<RepairObstacle> ToRepair(bool shard_lost, bool worker_lost) const;
  // Returns what prevents the repair of a loss that happens now.
  std::optional<RepairObstacle> ToNextRepair() const;
  // Returns the consequence of a loss that happens now.
  RecoveryClass Class() const;
  // Returns a clause that states the obstacle. `holder` describes the process in `obstacle.holder`.
  std::string Explain(const RepairObstacle& obstacle, absl::string_view holder) const;

 private:
  bool IsNoFirstStep() const { return facts_.checkpoint_step == 0 && !facts_.parameters_agree; }
  // True if data from this step on contains all steps after the checkpoint.
  bool Suffices(uint64_t kept_from) const {
    return kept_from >= 1 && kept_from <= facts_.checkpoint_step + 1;
  }

  const RecoveryFacts facts_;
};

}  // namespace sluice::server
