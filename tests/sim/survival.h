// Survival: a whole job on one thread, with the real coordinator, shards, pipelines and encoders,
// over a network that loses, repeats, delays and reorders, in processes that die, stand still, are
// cut off and find their disks full, damaged or gone, all from seeds. Whatever happens, every step
// must go as in the reference, which has no network.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "job/control_spec.h"
#include "job/optimizer_spec.h"
#include "protocol/compression_spec.h"

namespace sluice {

enum class Fault {
  // Of single messages; their shares are options.
  kLostRequest,    // The stream breaks, and it with it.
  kLostReply,      // The stream breaks when the request has had its effect.
  kRepeated,       // A message of a stream arrives once more, later.
  kDelayed,        // Takes twenty times as long as others.
  kReordered,      // Arrives after what its sender said later, over the next stream.
  kLostHeartbeat,  // Or the answer to it.
  // At moments drawn from the seed.
  kBreak,         // A connection of a worker and a shard.
  kBreakControl,  // A shard's connection to the coordinator, with commands and acknowledgements.
  kMute,          // A worker's heartbeats are lost for a while.
  kPartition,     // A process is cut off from all others for a while.
  kPause,         // A process stands still for a while.
  kClockGap,      // The coordinator's does, beyond a quarter of the lease.
  kKillWorker,
  kKillShard,        // Any but shard 0.
  kKillCoordinator,  // And shard 0 with it.
  kKillTwo,
  kKillWorkerAndShard,
  kPowerCut,      // Everything at once.
  kTwoInstances,  // A shard is started again though it still runs.
  kOtherBytes,    // A worker is killed, and its successor computes something else.
  kDamage,        // A file of the newest checkpoint changes on disk.
  kLoseDisk,      // A process dies, and all that it ever wrote is gone.
  kDiskFull,      // Nothing can be written for a while.
  // Of jobs whose workers come and go; not in kScheduledFaults.
  kAway,     // A worker is killed, and started again after much longer than a lease.
  kGivesUp,  // A worker says that it leaves, and comes again later.
};
inline constexpr Fault kMessageFaults[] = {Fault::kLostRequest, Fault::kLostReply,
                                           Fault::kRepeated,    Fault::kDelayed,
                                           Fault::kReordered,   Fault::kLostHeartbeat};
inline constexpr Fault kScheduledFaults[] = {
    Fault::kBreak,           Fault::kBreakControl, Fault::kMute,       Fault::kPartition,
    Fault::kPause,           Fault::kClockGap,     Fault::kKillWorker, Fault::kKillShard,
    Fault::kKillCoordinator, Fault::kKillTwo,      Fault::kPowerCut,   Fault::kKillWorkerAndShard,
    Fault::kTwoInstances,    Fault::kOtherBytes,   Fault::kDamage,     Fault::kLoseDisk,
    Fault::kDiskFull};
std::string ToString(Fault fault);

// Mistakes that the simulation must find. They live in what stands around the real parts.
enum class SurvivalBug {
  kNone,
  // Of a step.
  kRetryEncodesAgain,       // Instead of repeating the bytes.
  kRepeatCountsAgain,       // A repeat gets another key, so that it is not known as one.
  kResultAppliedTwice,      // When it comes twice.
  kSumInArrivalOrder,       // Instead of rank order.
  kDividedByWorldSize,      // Instead of by what was included.
  kResidualLostOnSkip,      // When a gradient was not finite.
  kResidualTakenBackTwice,  // What was sent goes back into the residual, although it was admitted.
  // Of checkpoints and rollback.
  kStaleSnapshot,            // A shard writes what it owed at the checkpoint before.
  kDownlinkNotRestored,      // A restored shard begins without what it owes.
  kSurvivorKeepsItsState,    // A shard that was not lost does not go back.
  kResidualNotRestored,      // A restored worker begins with empty residuals.
  kOptimizerNotRestored,     // Momentum begins at zero.
  kCursorNotRestored,        // A restored worker begins with the data of the first step.
  kPublishedNotObserved,     // What was published and not yet observed is left out.
  kSavedBeforeApplied,       // A worker's part is of before the step.
  kReportedBeforeDurable,    // A part is reported before it is written.
  kTermNotPersisted,         // A rollback is announced before it is on disk.
  kRestoresOlderCheckpoint,  // The one before the newest, though that is good.
  kLeavesWithoutWaiting,     // A worker is gone when it has finished, whatever the others do.
  // Of updates on the shards.
  kSlotsNotRestored,     // The optimizer of a restored shard begins with nothing.
  kOwedNotRestored,      // A restored shard takes what it has published for its parameters.
  kUpdatesNotCounted,    // Nor goes the count of updates on.
  kRateOfTheStepBefore,  // A worker sends it with its work.
  kUpdateAppliedToMean,  // A worker takes the update in place of its parameters.
  // With plans.
  kPlanTakenUpLate,       // A worker codes the first step of a plan as the one before.
  kPlanNotPassedOn,       // It does not tell other shards of one.
  kWorkerForgetsPlans,    // One that goes on from a checkpoint begins with the job's first plan.
  kShardForgetsPlans,     // So does a shard.
  kAnnouncedPlanNotKept,  // A checkpoint has the plan that holds, not those that were announced.
  kAnnouncedNotRepeated,  // A worker does not tell a shard 0 that was lost what that announced,
  kNoPlanNotRepeated,     // or not that it announced nothing.
  // Of replay and re-execution.
  // With a quorum.
  kLateWorkDropped,    // A shard answers late work, and forgets it.
  kLateWorkCountsNow,  // It takes it for work of its open step.
  kLateAnsweredEarly,  // It answers those too that it has nothing of.
  kQuorumNotKnown,     // A worker does not expect to be left out.
  // With workers that come and go.
  kRemovalNotHeard,           // A shard goes on waiting for who is gone.
  kZombieLetIn,               // It takes what a removed worker sends for its successor's.
  kLearnerWorksAtOnce,        // A newcomer takes itself for a member.
  kLearnerLeavesOutOne,       // It begins one step after the checkpoint that it has.
  kStepsBehindIgnored,        // It does not go on skipping.
  kMemberNotPersisted,        // A worker that takes a rank is announced before it is on disk.
  kResultsLetGoTooEarly,      // A shard forgets results that a checkpoint does not cover yet.
  kOpenStepNotReplayed,       // What of the open step had its result is not sent again.
  kReplacementNotNoticed,     // A worker does not see that another process answers.
  kPredecessorDropped,        // A shard forgets what the rank's last holder sent.
  kRestoredShardClosesAlone,  // A restored shard does not wait for those who did not send again.
  kReleaseBeforeDurable,      // What is kept is let go when a checkpoint is named.
  kTwoShardsServe,            // An instance that was replaced goes on.
  // Of relays.
  kWeightForgotten,          // A sum counts as one contribution.
  kNothingCountsAsOne,       // And so does one of nobody.
  kSumDivided,               // By what is in it, before it goes up.
  kRelayResidualForgotten,   // A relay that joins again owes nothing.
  kRelayKeepsItsSession,     // The job above does not hear that its rack has begun anew.
  kResultPublishedTwice,     // Once more, for the step after it.
  kLossAboveNotTold,         // The rack goes on though its relay's session is over.
  kRackBeginsWithItsNewest,  // Instead of where the job above says.
  kRackNotAsked,             // Whether it has the checkpoint that the job above goes back to.
};

struct SurvivalOptions {
  uint64_t data_seed = 0;   // Gradients, skips, parameters.
  uint64_t fault_seed = 0;  // Delays, faults, the order in which gradients get ready.
  uint32_t ranks = 3;
  uint32_t shards = 2;
  uint64_t steps = 12;
  uint64_t checkpoint_every = 3;              // 0: none; then a lost process would end the job.
  uint64_t replay_limit = uint64_t{1} << 30;  // Bytes; 0: every loss is a rollback.
  protocol::CompressionSpec compression;
  job::ControlSpec control{};  // Of the codecs above.
  // Ranks that close a step without the others, `grace_us` after the last of them came; 0: all do.
  uint32_t quorum = 0;
  int64_t grace_us = 0;
  // Workers come and go: so many of `ranks` begin, and with fewer than `least` the others wait.
  bool elastic = false;
  uint32_t begin = 0;
  uint32_t least = 1;
  // Of a job whose workers are relays, by rank: how many workers each speaks for. Of a rack: how
  // many the whole job has (0: it is none), and which of them its first is.
  std::vector<uint32_t> weights{};
  uint32_t rack_of = 0;
  uint32_t first_rank = 0;
  // What the shards do with the mean; none: they publish it.
  std::optional<job::OptimizerSpec> rule{};
  uint64_t window_bytes = uint64_t{16} << 20;
  bool tight_memory = false;  // So that shards answer BUSY.
  bool parameters_agree = true;
  double skip_share = 0.1;  // Of (rank, step): out of data.
  double nan_share = 0;     // Of (rank, step): one tensor is not finite.
  // Of messages.
  double lost_share = 0;
  double repeat_share = 0;
  double delay_share = 0.05;
  double lost_heartbeat_share = 0;
  uint32_t late_rank = 0xFFFFFFFF;  // Takes long for every step.
  // The last shard is killed when the first worker has heard the first result of this step.
  uint64_t crash_after_result_of = 0;  // 0: never.
  std::vector<Fault> faults;           // In this order, at moments drawn from the seed.
  SurvivalBug bug = SurvivalBug::kNone;
};

struct SurvivalReport {
  std::vector<std::string> violations;  // Empty: every promise held.
  uint32_t parameters_hash = 0;         // Of every rank's, at the end.
  uint32_t trace_hash = 0;              // Of everything that happened, with its time.
  uint64_t delivered = 0;               // Messages.
  std::map<Fault, uint64_t> faults;     // That struck before the job had ended.
  uint64_t rollbacks = 0;
  uint64_t shards_replayed = 0;  // Brought back within a term.
  uint64_t ranks_reexecuted = 0;
  uint64_t checkpoints = 0;
  uint64_t damaged_refused = 0;
  uint64_t plans = 0;    // That shard 0 made, again after losses.
  uint64_t repeats = 0;  // Contributions that a shard knew already.
  uint64_t busy = 0;
  uint64_t not_finite = 0;          // Bundles skipped for a gradient that was not finite.
  uint64_t not_reproducible = 0;    // Successors that were found to compute something else.
  uint64_t left_out = 0;            // Bundles that closed without some rank.
  uint64_t late = 0;                // Work that a later step included.
  uint64_t learners = 0;            // Who joined others that were further,
  uint64_t members = 0;             // and of these, were waited for in the end.
  uint64_t starts_unheard = 0;      // Shards that began, whose word of it was lost.
  uint64_t late_failed_writes = 0;  // Parts that could not be written of complete checkpoints.
  bool ended_by_alarm = false;      // As a job may when kOtherBytes strikes.
};

SurvivalReport RunSurvival(const SurvivalOptions& options);

// A job, a codec and faults drawn from `seed`.
SurvivalOptions RandomSurvivalOptions(uint64_t seed);

// Likewise, of a job whose steps close without those who are late.
SurvivalOptions RandomQuorumOptions(uint64_t seed);

// Likewise, of a job whose workers come and go.
SurvivalOptions RandomElasticOptions(uint64_t seed);

// Likewise, of a job whose codecs' densities change while it runs.
SurvivalOptions RandomPlanOptions(uint64_t seed);
// The schedule of such a job for another one.
SurvivalOptions WithScheduleOf(uint64_t seed, SurvivalOptions options);

// Likewise, by plans that go by what is measured, which is made up.
SurvivalOptions RandomMeasuredOptions(uint64_t seed);

// Who is in which step depends on what came when: then there is no one way for it to go.
inline bool GoesManyWays(const SurvivalOptions& options) {
  return options.quorum > 0 || options.elastic;
}

std::string Describe(const SurvivalOptions& options);

}  // namespace sluice
