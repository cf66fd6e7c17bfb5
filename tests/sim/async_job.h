// Runs a whole asynchronous job in one thread, from a seed, with real shards, pipelines and
// encoders. Streams break at any message, messages are duplicated, workers and shards are slow or
// pause, and the job takes checkpoints and rolls back. AsyncJob checks its invariants throughout
// the run against parameters that it computes separately. See docs/simulation.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "job/control_spec.h"
#include "job/optimizer_spec.h"
#include "protocol/compression_spec.h"

namespace sluice {

// Each planted bug changes the simulation around the tested code.
enum class AsyncBug {
  kNone,
  kRepeatCountsAgain,   // A repeat is taken for the next step's contribution.
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
  kPlanNotPassedOn,       // A shard never learns of a plan.
};

struct AsyncOptions {
  uint64_t seed = 1;
  uint32_t ranks = 4;
  uint32_t shards = 2;
  std::string mode = "async";
  uint32_t staleness = 0;  // The largest allowed lag in mode ssp, in steps.
  bool staleness_aware_lr = false;
  job::OptimizerSpec rule{.name = "sgd", .lr = 1};
  protocol::CompressionSpec compression;
  uint64_t steps = 20;
  uint64_t quiet_steps = 0;  // Steps at the end, in which all gradients are 0.
  double skip_share = 0;
  double nan_share = 0;
  double break_share = 0;      // Share of messages.
  double duplicate_share = 0;  // Share of messages.
  uint32_t checkpoints = 0;    // Number of checkpoints to request.
  uint32_t rollbacks = 0;
  double slowest = 1;  // The slowest rank's step time, relative to the other ranks.
  job::ControlSpec control;
  AsyncBug bug = AsyncBug::kNone;
};

AsyncOptions RandomAsyncOptions(uint64_t seed);
// Like RandomAsyncOptions, with a schedule of densities.
AsyncOptions RandomPlannedAsyncOptions(uint64_t seed);
std::string Describe(const AsyncOptions& options);

struct AsyncReport {
  std::vector<std::string> violations;  // Empty if every check passed.
  uint64_t updates = 0;
  uint64_t publications = 0;
  uint64_t exact_results = 0;
  uint64_t breaks = 0;
  uint64_t repeats = 0;
  uint64_t rollbacks = 0;
  uint64_t checkpoints = 0;  // Complete checkpoints.
  uint64_t waits = 0;        // PENDING answers.
  uint64_t staleness_max = 0;
  uint64_t plans = 0;
  double owed = 0;  // Sum of squares of what shards and workers still owe at the end.
};

AsyncReport RunAsyncJob(const AsyncOptions& options);

}  // namespace sluice
