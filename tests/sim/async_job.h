// A whole job whose workers do not wait for each other, in one thread and from a seed: real shards,
// pipelines and encoders; streams that break at any message, messages that come twice, slow and
// pausing workers and shards, checkpoints and rollbacks. What a run must be like is checked all the
// while, against parameters that are computed apart. docs/simulation.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "job/control_spec.h"
#include "job/optimizer_spec.h"
#include "protocol/compression_spec.h"

namespace sluice {

// What a planted bug changes, beside the code that is tested.
enum class AsyncBug {
  kNone,
  kRepeatCountsAgain,     // A repeat is taken for the step after it.
  kContributionLost,      // One is answered and never reaches the shard.
  kPublicationLost,       // A result lacks the first of several publications.
  kPublicationsMerged,    // Several are one frame.
  kWaitingForgotten,      // Who waits for the slowest is never answered.
  kBoundTooFar,           // Ranks may be one step further ahead than the job says.
  kStalenessForgotten,    // Told as 0.
  kNameWithheld,          // A rank hears of a checkpoint when it has passed it.
  kClocksNotRestored,     // All ranks begin after the checkpoint's step, whatever is in it.
  kPublishedNotRestored,  // What was owed is taken for published.
  kPlanWithheld,          // A rank never hears of a plan.
  kPlanNotPassedOn,       // Nor does a shard.
};

struct AsyncOptions {
  uint64_t seed = 1;
  uint32_t ranks = 4;
  uint32_t shards = 2;
  std::string mode = "async";
  uint32_t staleness = 0;  // ssp
  bool staleness_aware_lr = false;
  job::OptimizerSpec rule{.name = "sgd", .lr = 1};
  protocol::CompressionSpec compression;
  uint64_t steps = 20;
  uint64_t quiet_steps = 0;  // After them: gradients are 0.
  double skip_share = 0;
  double nan_share = 0;
  double break_share = 0;      // Of messages.
  double duplicate_share = 0;  // Likewise.
  uint32_t checkpoints = 0;    // Asked for in the run.
  uint32_t rollbacks = 0;
  double slowest = 1;  // How many times as long the slowest rank takes.
  job::ControlSpec control;
  AsyncBug bug = AsyncBug::kNone;
};

AsyncOptions RandomAsyncOptions(uint64_t seed);
// The same with a schedule of densities.
AsyncOptions RandomPlannedAsyncOptions(uint64_t seed);
std::string Describe(const AsyncOptions& options);

struct AsyncReport {
  std::vector<std::string> violations;  // None: all was as it must be.
  uint64_t updates = 0;
  uint64_t publications = 0;
  uint64_t exact_results = 0;
  uint64_t breaks = 0;
  uint64_t repeats = 0;
  uint64_t rollbacks = 0;
  uint64_t checkpoints = 0;  // Complete.
  uint64_t waits = 0;        // PENDING.
  uint64_t staleness_max = 0;
  uint64_t plans = 0;
  double owed = 0;  // Sum of squares at the end, of shards and workers.
};

AsyncReport RunAsyncJob(const AsyncOptions& options);

}  // namespace sluice
