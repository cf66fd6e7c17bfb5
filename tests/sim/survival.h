// SPDX-License-Identifier: Apache-2.0
// Survival runs a whole job on one thread with the real coordinator, shards, pipelines and
// encoders. The network loses, repeats, delays and reorders messages. Processes die, pause, are cut
// off, and find their disks full, damaged or lost. All faults come from seeds. Every step must
// agree with the reference, which has no network.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "job/control_spec.h"
#include "job/exchange_spec.h"
#include "job/merge_spec.h"
#include "job/modes.h"
#include "job/optimizer_spec.h"
#include "protocol/compression_spec.h"

namespace sluice {

enum class Fault {
  // Faults of single messages, with shares in the options.
  kLostRequest,    // The stream breaks, and the request is lost.
  kLostReply,      // The stream breaks after the request has taken effect.
  kRepeated,       // A message of a stream arrives a second time, later.
  kDelayed,        // A message takes twenty times as long as usual.
  kReordered,      // A message arrives after later messages of its sender over the next stream.
  kLostHeartbeat,  // A heartbeat or its answer is lost.
  // Faults at times drawn from the seed.
  kBreak,  // A connection between a worker and a shard breaks.
  // A shard's connection to the coordinator breaks, with its commands and acknowledgements.
  kBreakControl,
  kMute,       // A worker's heartbeats are lost for a while.
  kPartition,  // A process is cut off from all others for a while.
  kPause,      // A process stands still for a while.
  kClockGap,   // The coordinator stands still for more than a quarter of the lease.
  kKillWorker,
  kKillShard,        // Any shard except shard 0.
  kKillCoordinator,  // Kills the process of the coordinator and shard 0.
  kKillTwo,
  kKillWorkerAndShard,
  kPowerCut,            // All processes die at once.
  kTwoInstances,        // A second process starts for a shard that still runs.
  kOtherBytes,          // A worker is killed, and its successor computes other values.
  kDamage,              // A file of the newest checkpoint changes on disk.
  kLoseDisk,            // A process dies and loses all files that it wrote.
  kDiskFull,            // All writes fail for a while.
  kDiskSlow,            // Writes take up to four leases for a while.
  kCheckpointRequests,  // Operators ask for checkpoints, many at once.
  kOneWayCut,           // Messages from one process to another do not arrive for a while.
  kUnreadable,          // No file can be read for a while.
  kNoDescriptors,       // A process can open neither files nor connections for a while.
  kRefused,             // A process's calls are refused for a while, as with an old token.
  kFailsAfterWrite,     // Writes take effect and report an error for a while.
  kWriteOutlives,       // For a while, writes of killed processes are finished.
  kKeepsSending,        // A worker restarts while its old process still sends for a while.
  kHangs,               // A worker stops training for a while, but still sends heartbeats.
  kTwoWorkers,          // A second process starts for a rank whose process only stands still.
  kNewVersion,          // Processes restart with a new version, one after another.
  kOtherWorkers,        // All processes end, and the job resumes with another number of workers.
  kEvicted,             // An administrator evicts a worker.
  // Faults of elastic jobs; not in kScheduledFaults.
  kAway,     // A worker is killed and restarts after much longer than a lease.
  kGivesUp,  // A worker announces that it leaves, and comes back later.
};
inline constexpr Fault kMessageFaults[] = {Fault::kLostRequest, Fault::kLostReply,
                                           Fault::kRepeated,    Fault::kDelayed,
                                           Fault::kReordered,   Fault::kLostHeartbeat};
inline constexpr Fault kScheduledFaults[] = {Fault::kBreak,
                                             Fault::kBreakControl,
                                             Fault::kMute,
                                             Fault::kPartition,
                                             Fault::kPause,
                                             Fault::kClockGap,
                                             Fault::kKillWorker,
                                             Fault::kKillShard,
                                             Fault::kKillCoordinator,
                                             Fault::kKillTwo,
                                             Fault::kPowerCut,
                                             Fault::kKillWorkerAndShard,
                                             Fault::kTwoInstances,
                                             Fault::kOtherBytes,
                                             Fault::kDamage,
                                             Fault::kLoseDisk,
                                             Fault::kDiskFull,
                                             Fault::kDiskSlow,
                                             Fault::kCheckpointRequests,
                                             Fault::kOneWayCut,
                                             Fault::kUnreadable,
                                             Fault::kNoDescriptors,
                                             Fault::kRefused,
                                             Fault::kFailsAfterWrite,
                                             Fault::kWriteOutlives,
                                             Fault::kKeepsSending,
                                             Fault::kHangs,
                                             Fault::kTwoWorkers,
                                             Fault::kNewVersion,
                                             Fault::kOtherWorkers,
                                             Fault::kEvicted};
std::string ToString(Fault fault);

inline constexpr uint64_t kPlenty = uint64_t{1} << 20;  // Enough to keep all results of a job.

// Mistakes that the simulation must find. They are planted in the code around the real components.
enum class SurvivalBug {
  kNone,
  // Bugs in a step.
  kRetryEncodesAgain,   // A retry encodes again instead of repeating the bytes.
  kRepeatCountsAgain,   // A repeat gets another key, so that it is not recognized.
  kResultAppliedTwice,  // A result is applied again when it arrives twice.
  kSumInArrivalOrder,   // Contributions are summed in order of arrival instead of rank.
  // The sum is divided by the number of all ranks instead of the included ones.
  kDividedByWorldSize,
  kResidualLostOnSkip,  // The residual is lost when a gradient was not finite.
  // A contribution returns to the residual although the shard admitted it.
  kResidualTakenBackTwice,
  // Bugs in checkpoints and rollback.
  kStaleSnapshot,          // A shard writes its residuals of the previous checkpoint.
  kDownlinkNotRestored,    // A restored shard begins without its residuals.
  kSurvivorKeepsItsState,  // A surviving shard does not roll back.
  kResidualNotRestored,    // A restored worker begins with empty residuals.
  kOptimizerNotRestored,   // Momentum begins at zero.
  kCursorNotRestored,      // A restored worker begins with the data of the first step.
  kPublishedNotObserved,   // The checkpoint omits results that were published but not yet observed.
  kSavedBeforeApplied,     // A worker's checkpoint part has the state before the step.
  kReportedBeforeDurable,  // A part is reported before it is durable.
  kTermNotPersisted,       // A rollback is announced before it is durable.
  kRestoresOlderCheckpoint,  // Restores the second newest checkpoint although the newest is good.
  kLeavesWithoutWaiting,     // A finished worker leaves without waiting for the others.
  // After a change of the number of workers, each takes over the residual of one old rank.
  kResidualsNotMerged,
  // Bugs in updates on the shards.
  kSlotsNotRestored,     // A restored shard's optimizer begins with empty slots.
  kOwedNotRestored,      // A restored shard takes the published values for its parameters.
  kUpdatesNotCounted,    // A restored shard does not continue the count of updates.
  kRateOfTheStepBefore,  // A worker sends the previous step's rate with its contribution.
  kUpdateAppliedToMean,  // A worker replaces its parameters with the update.
  // Bugs with plans.
  kPlanTakenUpLate,       // A worker codes a plan's first step by the previous plan.
  kPlanNotPassedOn,       // A worker does not pass a plan on to other shards.
  kWorkerForgetsPlans,    // A worker restored from a checkpoint begins with the job's first plan.
  kShardForgetsPlans,     // A shard restored from a checkpoint begins with the job's first plan.
  kAnnouncedPlanNotKept,  // A checkpoint has the current plan but no announced plans.
  kAnnouncedNotRepeated,  // A worker does not tell a new shard 0 about an announced plan.
  kNoPlanNotRepeated,     // A worker does not tell a new shard 0 that no plan was announced.
  // Bugs with a quorum.
  kLateWorkDropped,    // A shard answers late work and drops it.
  kLateWorkCountsNow,  // A shard counts late work as work for its open step.
  kLateAnsweredEarly,  // A shard sends results also to ranks whose work it does not have.
  kQuorumNotKnown,     // A worker does not expect to be left out.
  // Bugs in elastic jobs, and in replay and re-execution.
  kRemovalNotHeard,           // A shard keeps waiting for a removed worker.
  kReplacedWorkerGoesOn,      // A worker ignores that another process holds its rank.
  kZombieLetIn,               // A shard takes a removed worker's contribution for its successor's.
  kLateJoinerWorksAtOnce,     // A newcomer behaves as a member at once.
  kLateJoinerLeavesOutOne,    // A newcomer begins one step too late after its checkpoint.
  kStepsBehindIgnored,        // A worker that is behind does not keep skipping.
  kMemberNotPersisted,        // A worker's membership is announced before it is durable.
  kResultsLetGoTooEarly,      // A shard forgets results that no checkpoint covers yet.
  kOpenStepNotReplayed,       // Work of the open step that already had a result is not resent.
  kReplacementNotNoticed,     // A worker does not notice that another process answers.
  kPredecessorDropped,        // A shard forgets the contributions of the rank's last holder.
  kRestoredShardClosesAlone,  // A restored shard does not wait for ranks that have not resent.
  kReleaseBeforeDurable,      // Kept work is released when a checkpoint is only named.
  kTwoShardsServe,            // A replaced instance keeps serving.
  // Bugs in async and ssp.
  kContributionLost,    // A contribution is answered and never reaches the shard.
  kPublicationLost,     // A result lacks the first of several publications.
  kPublicationsMerged,  // Several publications are merged into one frame.
  kWaitingForgotten,    // A rank that waits for the slowest is never answered.
  kBoundTooFar,         // Ranks may be one step further ahead than the job allows.
  kStalenessForgotten,  // A result reports staleness 0.
  kNameWithheld,        // A rank learns of a checkpoint only after it has passed its step.
  // All ranks begin after the checkpoint's step, whatever their clocks in the checkpoint.
  kClocksNotRestored,
  kPublishedNotRestored,  // The restored state treats owed values as published.
  kPlanWithheld,          // A rank never learns of a plan.
  // Bugs in relays.
  kWeightForgotten,         // A relay's sum counts as one contribution.
  kNothingCountsAsOne,      // An empty sum counts as one contribution.
  kSumDivided,              // The sum is divided by its count before the relay forwards it.
  kRelayResidualForgotten,  // A relay that joins again has lost its residuals.
  kRelayKeepsItsSession,    // The parent job does not learn that the rack has restarted.
  kResultPublishedTwice,    // A result is published again for the next step.
  kLossAboveNotTold,        // The rack continues although its relay's session is over.
  // The rack restores its newest checkpoint instead of the parent's choice.
  kRackBeginsWithItsNewest,
  kRackNotAsked,        // The parent does not ask whether the rack has the checkpoint.
  kRackNotAwaited,      // A relay reports its part before the rack's checkpoint is complete.
  kPlanNotToldToRack,   // A relay does not forward the parent job's plans.
  kParametersAsChange,  // A relay publishes parameters as if they were a change.
};

struct SurvivalOptions {
  uint64_t data_seed = 0;   // Seeds gradients, skips and parameters.
  uint64_t fault_seed = 0;  // Seeds delays, faults, and the order in which gradients become ready.
  uint32_t ranks = 3;
  uint32_t shards = 2;
  uint64_t steps = 12;
  job::Mode mode = job::Mode::kSync;  // Other modes need a rule.
  uint32_t staleness = 0;             // The largest allowed lag in mode ssp, in steps.
  bool staleness_aware_lr = false;
  uint64_t quiet_steps = 0;  // In async and ssp: steps at the end in which all gradients are 0.
  uint64_t checkpoint_interval = 3;  // 0 disables checkpoints; a lost process then ends the job.
  // With the store `shards`, a part is on the disk of a shard, and its worker sends and fetches it.
  bool parts_at_shards = false;
  uint64_t replay_limit = uint64_t{1} << 30;  // In bytes; with 0, every loss causes a rollback.
  protocol::CompressionSpec compression;
  job::ControlSpec control{};  // Controls the codecs above.
  // A step may close `grace_us` after its `quorum`th rank arrived. With 0, a step waits for all
  // ranks.
  uint32_t quorum = 0;
  int64_t grace_us = 0;
  job::MergeSpec merge{};  // Only with a quorum or elastic membership.
  // In an elastic job, `begin` of the `ranks` workers start with the job. With fewer than `least`
  // workers, the others wait.
  bool elastic = false;
  uint32_t begin = 0;
  uint32_t least = 1;
  // `weights`: for a job of relays, the number of workers behind each rank. `rack_of`: for a rack,
  // the number of workers in the whole job (0 if the job is not a rack). `first_rank`: the whole
  // job's number of the rack's first worker.
  std::vector<uint32_t> weights{};
  uint32_t rack_of = 0;
  uint32_t first_rank = 0;
  std::optional<job::ParentPlans> parent_plans{};  // As in job::JobPart.
  // In a rack: the relays do not wait for each other, so the rack has no single valid course.
  bool has_async_parent = false;
  // The shards' update rule. Without one, shards publish the mean.
  std::optional<job::OptimizerSpec> rule{};
  // How long the job waits for a lost process, and for a worker without progress (0: for ever).
  int64_t rejoin_us = 60'000'000;
  int64_t stall_us = 0;
  uint64_t window_bytes = uint64_t{16} << 20;
  bool tight_memory = false;  // Makes shards answer BUSY.
  bool parameters_agree = true;
  double skip_share = 0.1;  // Share of (rank, step) without data.
  double nan_share = 0;     // Share of (rank, step) with one non-finite tensor.
  // Shares of messages.
  double lost_share = 0;
  double repeat_share = 0;
  double delay_share = 0.05;
  double lost_heartbeat_share = 0;
  uint32_t late_rank = 0xFFFFFFFF;  // This rank is slow in every step.
  // The last shard is killed when the first worker has received the first result of this step.
  uint64_t crash_after_result_of = 0;  // 0 disables the kill.
  std::vector<Fault> faults;           // In this order, at times drawn from the seed.
  SurvivalBug bug = SurvivalBug::kNone;
};

struct SurvivalReport {
  std::vector<std::string> violations;  // Empty if every promise held.
  uint32_t parameters_hash = 0;         // Hash of every rank's parameters at the end.
  uint32_t trace_hash = 0;  // Hash of all events and coordinators' effects, with their times.
  uint64_t delivered = 0;   // Messages.
  std::map<Fault, uint64_t> faults;  // Faults that struck before the job ended.
  uint64_t rollbacks = 0;
  uint64_t shards_replayed = 0;  // Shards that were restored within a term.
  uint64_t ranks_reexecuted = 0;
  uint64_t checkpoints = 0;
  uint64_t damaged_refused = 0;
  uint64_t plans = 0;    // Plans that shard 0 made, including repetitions after losses.
  uint64_t repeats = 0;  // Contributions that a shard already had.
  uint64_t busy = 0;
  uint64_t not_finite = 0;          // Bundles skipped because a gradient was not finite.
  uint64_t not_reproducible = 0;    // Successors found to compute other values.
  uint64_t left_out = 0;            // Bundles that closed without some rank.
  uint64_t saved_pending = 0;       // Workers' parts with work that is in no result.
  uint64_t late = 0;                // Work that a later step included.
  uint64_t late_joiners = 0;        // Workers that joined behind the other workers.
  uint64_t members = 0;             // Late joiners that later steps waited for.
  uint64_t starts_unheard = 0;      // Shards that began a term, but whose acknowledgement was lost.
  uint64_t late_failed_writes = 0;  // Failed writes of parts of complete checkpoints.
  uint64_t records_written_late = 0;  // Failed writes of the run's record, which were repeated.
  // In async and ssp.
  uint64_t updates = 0;
  uint64_t publications = 0;
  uint64_t exact_results = 0;
  uint64_t waits = 0;  // PENDING answers.
  uint64_t staleness_max = 0;
  double owed = 0;              // Sum of squares of the residuals of shards and workers at the end.
  bool ended_by_alarm = false;  // Allowed after kOtherBytes has struck.
  bool ended_by_timeout = false;  // Allowed if `rejoin_us` is short.
};

SurvivalReport RunSurvival(const SurvivalOptions& options);

// Draws a job, a codec and faults from `seed`.
SurvivalOptions RandomSurvivalOptions(uint64_t seed);

// Like RandomSurvivalOptions, for a job whose steps close without late ranks.
SurvivalOptions RandomQuorumOptions(uint64_t seed);

// Like RandomSurvivalOptions, for an elastic job.
SurvivalOptions RandomElasticOptions(uint64_t seed);

// Like RandomSurvivalOptions, for a job in mode async or ssp.
SurvivalOptions RandomAsyncOptions(uint64_t seed);
// Like RandomAsyncOptions, with a schedule of densities.
SurvivalOptions RandomPlannedAsyncOptions(uint64_t seed);
// Like RandomAsyncOptions, but the plans follow made-up measurements.
SurvivalOptions RandomMeasuredAsyncOptions(uint64_t seed);
// Like RandomAsyncOptions, with the workers and faults of RandomElasticOptions. Some jobs have
// plans.
SurvivalOptions RandomElasticAsyncOptions(uint64_t seed);

// Like RandomSurvivalOptions, for a job whose codecs change their densities.
SurvivalOptions RandomPlanOptions(uint64_t seed);
// Gives another job the schedule of such a job.
SurvivalOptions WithScheduleOf(uint64_t seed, SurvivalOptions options);

// Like RandomPlanOptions, but the plans follow made-up measurements.
SurvivalOptions RandomMeasuredOptions(uint64_t seed);

// Returns whether every contribution closes alone, so that AsyncChecks checks the job.
inline bool IsAsync(const SurvivalOptions& options) { return options.mode != job::Mode::kSync; }

// Returns whether workers may have to skip steps that went on without them.
inline bool MayLag(const SurvivalOptions& options) { return options.quorum > 0 || options.elastic; }

// Returns whether the ranks in a step depend on arrival times, so that the QuorumLedger checks the
// job.
inline bool GoesManyWays(const SurvivalOptions& options) {
  return MayLag(options) && !IsAsync(options);
}

std::string Describe(const SurvivalOptions& options);

}  // namespace sluice
