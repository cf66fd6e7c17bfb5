// RelaySim: a whole job with relays on one thread, as Survival has it of one without: the real
// coordinators, shards and encoders of the job above and of every rack, and the real RelayStep
// between them, with faults from seeds. Whatever happens, every step must go at both levels as in
// RelayReference, which has no network.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/survival.h"

namespace sluice {

enum class RelayFault {
  kKillRelay,   // And with it all servers of its rack.
  kKillWorker,  // Of a rack.
  kKillShard,   // Above; any but shard 0.
  kKillCoordinator,
  kKillTwo,      // Of relays, workers and servers above.
  kPowerCut,     // Everything at once.
  kPauseRelay,   // It stands still for a while; so do the next two.
  kPauseWorker,  //
  kPauseShard,   // Above.
  kClockGap,     // Of the coordinator above.
  kCutRelay,     // Its rack from the job above, for a while.
  kCutWorker,    // From its relay.
  kMuteRelay,    // Its heartbeats are lost for a while.
  kMuteWorker,
  kBreakAbove,  // A stream of a relay and a shard.
  kBreakInRack,
  kBreakControl,  // Of a shard above.
  kTwoInstances,  // Of a shard above.
  kDamageAbove,   // A file of the newest checkpoint changes on disk.
  kDamageInRack,
  kLoseRelaysDisk,  // It dies, and all that it ever wrote is gone.
  kDiskFull,        // Nothing can be written for a while.
};
inline constexpr size_t kRelayFaults = static_cast<size_t>(RelayFault::kDiskFull) + 1;
std::string ToString(RelayFault fault);

struct RelaySimOptions {
  SurvivalOptions above;        // Its ranks are relays; its data is the job's.
  std::vector<uint32_t> racks;  // Workers of each.
  compress::CodecSpec uplink;   // Of workers to their relay.
  std::vector<RelayFault> faults;
};

struct RelaySimReport {
  SurvivalReport all;  // Of all jobs together; rollbacks too.
  std::vector<uint64_t> faults = std::vector<uint64_t>(kRelayFaults);
  uint64_t rollbacks_above = 0;
  uint64_t rollbacks_in_racks = 0;
  uint64_t relays_back = 0;  // That took up their steps again while the others waited.
};

RelaySimReport RunRelays(const RelaySimOptions& options);

// A job, codecs and faults drawn from `seed`.
RelaySimOptions RandomRelayOptions(uint64_t seed);

std::string Describe(const RelaySimOptions& options);

}  // namespace sluice
