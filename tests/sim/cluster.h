// Cluster: real pipelines, encoders and shards on one thread, over a network that loses, repeats,
// delays and reorders what a transport could, all from seeds; afterwards everything is held against
// a reference.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "job/job_spec.h"

namespace sluice {

// Mistakes that the simulation must find. They live in adapters around the real parts.
enum class PlantedBug {
  kNone,
  kRetryEncodesAgain,       // Instead of repeating the bytes.
  kRepeatCountsAgain,       // A repeat gets another key, so that it is not known as one.
  kResultAppliedTwice,      // When it comes twice.
  kSumInArrivalOrder,       // Instead of rank order.
  kDividedByWorldSize,      // Instead of by what was included.
  kResidualLostOnSkip,      // When a gradient was not finite.
  kResidualTakenBackTwice,  // What was sent goes back into the residual, although it was admitted.
};

struct ClusterOptions {
  uint64_t data_seed = 0;     // Gradients, skips, parameters.
  uint64_t network_seed = 0;  // Delays, faults, the order in which gradients get ready.
  uint32_t ranks = 3;
  uint32_t shards = 2;
  uint64_t steps = 5;
  CompressionSpec compression;
  uint64_t window_bytes = 4096;
  bool tight_memory = false;  // So that shards answer BUSY.
  bool parameters_agree = true;
  double skip_share = 0.1;     // Of (rank, step): out of data.
  double nan_share = 0.1;      // Of (rank, step): one tensor is not finite.
  double break_share = 0.03;   // Of messages: the stream breaks with it, or right after it.
  double repeat_share = 0.05;  // Of messages: arrives again later.
  double slow_share = 0.1;     // Of messages: takes 50 times as long.
  uint32_t breaks_max = 60;    // Then faults stop.
  bool check_balance = true;   // Codecs with feedback owe what they leave out.
  PlantedBug bug = PlantedBug::kNone;
};

struct ClusterReport {
  std::vector<std::string> violations;  // Empty: every promise held.
  uint32_t results_hash = 0;            // Of all means of all steps.
  uint32_t trace_hash = 0;              // Of everything that happened, with its time.
  uint64_t breaks = 0;
  uint64_t repeats = 0;  // Contributions that a shard knew already.
  uint64_t late = 0;     // Messages of a stream that had been replaced.
  uint64_t busy = 0;
  uint64_t not_finite = 0;  // Bundles skipped for a gradient that was not finite.
  uint64_t contributions = 0;
};

ClusterReport RunCluster(const ClusterOptions& options);

// A job, a codec and faults drawn from `seed`, which is also both seeds.
ClusterOptions RandomClusterOptions(uint64_t seed);

// For a failure message: enough to run it again.
std::string Describe(const ClusterOptions& options);

}  // namespace sluice
