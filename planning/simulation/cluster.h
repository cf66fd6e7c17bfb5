// SPDX-License-Identifier: Apache-2.0
// Cluster: the machines of a simulated job, their links, and what disturbs them. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::planning {

// A machine's link to its switch, or a rack's link to the core of the network. Both directions work
// at the same time.
struct LinkSpec {
  double up_bps = 0;     // Bits per second away from the machine or rack; 0 means no limit.
  double down_bps = 0;   // Bits per second towards it; 0 means no limit.
  double latency_s = 0;  // One way, from one end of the link to the other.
  // Each direction passes this many bytes at once after it was idle, as a token bucket does.
  double burst_bytes = 0;
  // Share of the packets that are lost, in [0, 1). Losses limit the rate of each connection that
  // crosses the link (ConnectionLimit).
  double loss = 0;
};

// A worker that computes more slowly than the others in every step.
struct SlowWorker {
  uint32_t worker = 0;
  double factor = 1;  // Multiplies the computing time; above 0.
};

struct StragglerSpec {
  std::vector<SlowWorker> slow{};
  // The computing time of each worker and step is multiplied by exp(sigma * z), where z has the
  // standard normal distribution. 0 disables this.
  double sigma = 0;
};

// An outage with this end, in seconds, or a later one does not end.
inline constexpr double kForGood = 1e9;

// A time during which a worker is down.
struct Outage {
  double begin_s = 0;
  double end_s = 0;
  uint32_t worker = 0;

  friend bool operator==(const Outage&, const Outage&) = default;
};

struct Cluster {
  LinkSpec worker{};  // Each worker's machine has this link.
  LinkSpec shard{};   // Each shard's machine has this link.
  // If true, shard k has no machine of its own and runs on the machine of worker k modulo the
  // number of workers. Messages between processes of a machine cross no link.
  bool colocated = false;
  // Number of racks or sites. Worker w is in rack w modulo `racks`, and shard k in rack k modulo
  // `racks`. With 1, there are no links between racks.
  uint32_t racks = 1;
  LinkSpec rack{};  // Each rack has this link.
  // TCP connections share a busy link unevenly. Each time a connection begins to send, its share is
  // multiplied by exp(share_sigma * z), where z has the standard normal distribution. 0: equal
  // shares.
  double share_sigma = 0;
  uint64_t seed = 1;  // Seeds the shares and the stragglers.
  StragglerSpec stragglers{};
  std::vector<Outage> outages{};  // By time of begin. Those of one worker do not overlap.
};

}  // namespace sluice::planning
