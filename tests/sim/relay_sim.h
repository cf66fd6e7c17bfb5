// RelaySim runs a whole job with relays on one thread, as Survival does for a job without relays.
// It uses the real coordinators, shards and encoders of the parent job and of every rack, and the
// real RelayStep between them, with faults from seeds. Every step must agree at both levels with
// RelayReference, which has no network.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/survival.h"

namespace sluice {

enum class RelayFault {
  kKillRelay,   // Kills a relay and all servers of its rack.
  kKillWorker,  // Kills a worker of a rack.
  kKillShard,   // Kills a shard of the parent job, except shard 0.
  kKillCoordinator,
  kKillTwo,     // Kills two of the relays, workers and parent servers.
  kPowerCut,    // Kills all processes.
  kPauseRelay,  // The relay stands still for a while.
  kPauseWorker,
  kPauseShard,  // Pauses a shard of the parent job.
  kClockGap,    // The parent job's coordinator stands still.
  kCutRelay,    // Separates a rack from the parent job for a while.
  kCutWorker,   // Separates a worker from its relay for a while.
  kMuteRelay,   // The relay's heartbeats are lost for a while.
  kMuteWorker,
  kBreakAbove,  // Breaks a stream between a relay and a shard.
  kBreakInRack,
  kBreakControl,  // Breaks the control stream of a shard of the parent job.
  kTwoInstances,  // A shard of the parent job runs twice.
  kDamageAbove,   // A file of the newest checkpoint changes on disk.
  kDamageInRack,
  kLoseRelaysDisk,  // A relay dies and loses all files that it wrote.
  kDiskFull,        // All writes fail for a while.
};
inline constexpr size_t kRelayFaults = static_cast<size_t>(RelayFault::kDiskFull) + 1;
std::string ToString(RelayFault fault);

struct RelaySimOptions {
  SurvivalOptions above;        // The relays are its ranks; its data is the whole job's.
  std::vector<uint32_t> racks;  // Workers per rack.
  compress::CodecSpec uplink;   // From workers to their relay.
  std::vector<RelayFault> faults;
};

struct RelaySimReport {
  SurvivalReport all;  // Totals over all jobs, including rollbacks.
  std::vector<uint64_t> faults = std::vector<uint64_t>(kRelayFaults);
  uint64_t rollbacks_above = 0;
  uint64_t rollbacks_in_racks = 0;
  uint64_t relays_back = 0;  // Relays that resumed their steps while the other relays waited.
};

RelaySimReport RunRelays(const RelaySimOptions& options);

// Draws a job, codecs and faults from `seed`.
RelaySimOptions RandomRelayOptions(uint64_t seed);

std::string Describe(const RelaySimOptions& options);

}  // namespace sluice
