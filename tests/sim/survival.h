// Survival: a whole job on one thread, with the real coordinator, shards, pipelines and encoders,
// whose processes die, stand still, lose connections and find their disks full or damaged, all from
// seeds. Whatever happens, it must end with the parameters of the run that nothing happened to.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "job/job_spec.h"

namespace sluice {

enum class Fault {
  kKillWorker,
  kKillShard,        // Any but shard 0.
  kKillCoordinator,  // And shard 0 with it.
  kKillTwo,
  kPowerCut,   // Everything at once.
  kPause,      // A process stands still for a while.
  kBreak,      // A connection of a worker and a shard.
  kMute,       // A worker's heartbeats are lost for a while.
  kPartition,  // A process is cut off from all others for a while.
  kDamage,     // A file of the newest checkpoint changes on disk.
  kDiskFull,   // Nothing can be written for a while.
};
inline constexpr Fault kFaults[] = {Fault::kKillWorker, Fault::kKillShard, Fault::kKillCoordinator,
                                    Fault::kKillTwo,    Fault::kPowerCut,  Fault::kPause,
                                    Fault::kBreak,      Fault::kMute,      Fault::kPartition,
                                    Fault::kDamage,     Fault::kDiskFull};
std::string ToString(Fault fault);

// Mistakes that the simulation must find.
enum class SurvivalBug {
  kNone,
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
};

struct SurvivalOptions {
  uint64_t data_seed = 0;
  uint64_t fault_seed = 0;
  uint32_t ranks = 3;
  uint32_t shards = 2;
  uint64_t steps = 12;
  uint64_t checkpoint_every = 3;
  CompressionSpec compression;
  bool parameters_agree = true;
  double skip_share = 0.1;
  std::vector<Fault> faults;  // In this order, at moments drawn from the seed.
  SurvivalBug bug = SurvivalBug::kNone;
};

struct SurvivalReport {
  std::vector<std::string> violations;  // Empty: every promise held.
  uint32_t parameters_hash = 0;         // Of every rank's, at the end.
  uint32_t trace_hash = 0;              // Of everything that happened, with its time.
  uint64_t delivered = 0;               // Messages.
  std::map<Fault, uint64_t> faults;     // That struck before the job had ended.
  uint64_t rollbacks = 0;
  uint64_t checkpoints = 0;
  uint64_t damaged_refused = 0;
};

SurvivalReport RunSurvival(const SurvivalOptions& options);

// A job, a codec and faults drawn from `seed`.
SurvivalOptions RandomSurvivalOptions(uint64_t seed);

std::string Describe(const SurvivalOptions& options);

}  // namespace sluice
