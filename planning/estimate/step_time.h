// SPDX-License-Identifier: Apache-2.0
// StepTime: how long a step takes. An exchange is a pipeline of stages that pass bundles on. Each
// stage needs one or more resources. The pipeline takes as long as its busiest resource is in use,
// plus the time in which one bundle passes the stages that do not use this resource.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/enum_names.h"
#include "planning/estimate/machine_figures.h"
#include "planning/estimate/scenario.h"
#include "planning/estimate/traffic.h"

namespace sluice::planning {

enum class Resource : uint8_t {
  kBackward,  // The pass that produces gradients.
  kEncoder,   // A worker's thread that encodes.
  kMessages,  // A worker's threads that send and receive.
  kSiteOut,   // A relay's link, from its workers.
  kSiteIn,    // A relay's link, to its workers.
  kRelay,     // A relay's thread that sums and encodes.
  kRelayMessages,
  kLinkOut,  // A worker's or a site's link, to the network.
  kLinkIn,   // The same link, from the network.
  kShardIn,  // A shard's link.
  kShardOut,
  kShard,          // A shard's thread that sums and encodes.
  kShardMessages,  // A shard's threads that send and receive.
  kTrainer,        // A worker's thread that applies results.
  kMachine,        // The cores of a machine that all processes share.
};
constexpr auto NamesOf(Resource) {
  return std::to_array<EnumName<Resource>>({{Resource::kBackward, "computing"},
                                            {Resource::kEncoder, "encoding in workers"},
                                            {Resource::kMessages, "messages of workers"},
                                            {Resource::kSiteOut, "links to relays"},
                                            {Resource::kSiteIn, "links from relays"},
                                            {Resource::kRelay, "summing in relays"},
                                            {Resource::kRelayMessages, "messages of relays"},
                                            {Resource::kLinkOut, "links of workers, out"},
                                            {Resource::kLinkIn, "links of workers, in"},
                                            {Resource::kShardIn, "links of shards, in"},
                                            {Resource::kShardOut, "links of shards, out"},
                                            {Resource::kShard, "summing in shards"},
                                            {Resource::kShardMessages, "messages of shards"},
                                            {Resource::kTrainer, "applying in workers"},
                                            {Resource::kMachine, "the machine's processors"}});
}

// One bundle's use of a resource takes seconds / pieces.
struct Load {
  Resource resource;
  double seconds = 0;  // In the whole exchange.
};

struct Stage {
  std::vector<Load> loads{};
  double seconds = 0;  // At least the seconds of each load.
  double pieces = 1;   // Number of bundles that pass the stage one after the other.
};

struct PipelineTime {
  double seconds = 0;
  Resource busiest = Resource::kBackward;
};
// `stages` must not be empty.
PipelineTime TimeOf(absl::Span<const Stage> stages);

struct StepTime {
  double exchange_s = 0;  // From complete gradients until the means are applied.
  double exposed_s = 0;   // The part of a step that computing does not hide.
  double step_s = 0;      // Mean over all steps.
  Resource busiest = Resource::kBackward;
  double worker_cpu_s = 0;  // Processor time of exchanges in a worker, per step.
  double shard_cpu_s = 0;   // The same in a shard.
};

// `scenario` must be valid. Passes on the errors of FiguresOf.
absl::StatusOr<StepTime> StepTimeOf(const Scenario& scenario, const MachineFigures& machine);

}  // namespace sluice::planning
