// SPDX-License-Identifier: Apache-2.0
// Scenario: a job and its machines and links, as far as they determine the time and the bytes of a
// step.
#pragma once

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "base/enum_names.h"
#include "compress/codec_spec.h"
#include "planning/estimate/model_size.h"
#include "protocol/job_defaults.h"

namespace sluice::planning {

enum class Placement : uint8_t {
  kSeparate,     // Every process has a machine and a link of its own.
  kWithWorkers,  // Shards run on machines of workers and share their links.
  // All processes share the cores of one machine, as in `sluice run`. Each has a simulated link.
  // Computing takes none of the cores, as on an accelerator.
  kOneMachine,
};
constexpr auto NamesOf(Placement) {
  return std::to_array<EnumName<Placement>>({{Placement::kSeparate, "separate"},
                                             {Placement::kWithWorkers, "with-workers"},
                                             {Placement::kOneMachine, "one-machine"}});
}

// A full-duplex link.
struct LinkShape {
  double bits_per_second = 1e9;
  double up_bits_per_second = 0;  // From workers to the network; 0 if it equals the other rate.
  double latency_s = 0;           // One way.
  double burst_bytes = 0;         // Bytes that pass at once after the link was idle.

  double up_rate() const { return up_bits_per_second > 0 ? up_bits_per_second : bits_per_second; }
};

// Local steps (mode local_sgd); the defaults mean none.
struct LocalSteps {
  uint32_t steps = 1;      // H: steps of a worker between two exchanges of the same parameters.
  uint32_t fragments = 1;  // Parts of the model that are exchanged in turns.
  uint32_t delay = 0;      // Steps of training that go on during an exchange.

  friend bool operator==(const LocalSteps&, const LocalSteps&) = default;
};

struct Scenario {
  ModelSize model{};
  uint32_t workers = 1;
  uint32_t shards = 1;
  // Number of sites, among which workers are divided evenly. All machines of a site share the
  // site's link. 0: every machine has a link of its own.
  uint32_t sites = 0;
  bool relays = false;  // One relay in each site sums the contributions of its workers.
  double site_bits_per_second = 10e9;  // Link of each machine within a site.
  Placement placement = Placement::kWithWorkers;
  // Threads of each worker and each shard that encode, sum and apply. A relay has one.
  uint32_t threads = 1;
  LinkShape link{};
  double compute_s = 0;  // Forward and backward pass.
  // Share of the compute time during which gradients become ready.
  double overlap = protocol::defaults::kControlOverlap;
  compress::CodecSpec up{};
  compress::CodecSpec down{};
  compress::CodecSpec relay_up{.codec = compress::CodecId::kInt8};  // From workers to their relay.
  LocalSteps local{};
  // Shards keep parameters and the state of the optimizer.
  bool optimizer_on_shards = false;
  double optimizer_state_bytes = 0;  // Per parameter, on the shards.
  bool checkpoints = false;
  bool quorum = false;
  double replay_limit_bytes = static_cast<double>(protocol::defaults::kCheckpointReplayLimit);
};

inline constexpr uint32_t kWorkersMax = 100'000;
inline constexpr uint32_t kShardsMax = 256;
inline constexpr uint32_t kThreadsMax = 256;
inline constexpr double kRateMax = 1e13;  // Bits per second.
inline constexpr double kSecondsMax = 1e5;

// Fails with INVALID_ARGUMENT if a figure is outside its limits or two contradict each other. The
// message names the figure, its value and the limit.
absl::Status CheckScenario(const Scenario& scenario);

// Senders that the shards see at one link: a site's workers, or its relay.
uint32_t SendersPerLink(const Scenario& scenario);
// Number of senders that the shards see.
uint32_t Senders(const Scenario& scenario);
// Links of workers: the sites, or the workers.
uint32_t Links(const Scenario& scenario);

}  // namespace sluice::planning
