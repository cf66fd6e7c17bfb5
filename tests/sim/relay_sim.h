// SPDX-License-Identifier: Apache-2.0
// RelaySim runs a whole job with relays on one thread, as Survival does for a job without relays.
// It uses the real coordinators, shards and encoders of the parent job and of every rack, and the
// real RelayStep between them, with faults from seeds. Every step must agree at both levels with
// RelayReference, which has no network. If the relays do not wait for each other, AsyncChecks
// checks the parent job, and each rack's workers must have the parameters of their relay.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "tests/sim/survival.h"

namespace sluice {

struct SimWorld;

enum class RelayLevel { kParentJob, kRack };

struct RelayStrike {
  Fault fault;
  RelayLevel level;
};
std::string ToString(const RelayStrike& strike);
// Returns whether the fault exists at the level.
bool MayStrike(const RelayStrike& strike);

struct RelaySimOptions {
  SurvivalOptions above;            // The relays are its ranks; its data is the whole job's.
  std::vector<uint32_t> racks;      // Workers per rack.
  compress::CodecSpec uplink;       // From workers to their relay.
  std::vector<RelayStrike> faults;  // In this order, at times drawn from the seed.
};

struct RelaySimReport {
  SurvivalReport all;  // Totals over all jobs, including rollbacks.
  // Scheduled faults that struck, by level.
  std::map<Fault, uint64_t> faults_above;
  std::map<Fault, uint64_t> faults_in_racks;
  uint64_t rollbacks_above = 0;
  uint64_t rollbacks_in_racks = 0;
  uint64_t relays_back = 0;  // Relays that resumed their steps while the other relays waited.
};

RelaySimReport RunRelays(const RelaySimOptions& options);
// Runs the job in a world of its own, which supplies all draws.
RelaySimReport RunRelays(const RelaySimOptions& options, SimWorld* world);

// Draws a fault that may strike.
RelayStrike SomeRelayStrike(CounterRandom* random);

// Draws a job, codecs and faults from `seed`.
RelaySimOptions RandomRelayOptions(uint64_t seed);

// Like RandomRelayOptions, for relays that do not wait for each other.
RelaySimOptions RandomAsyncRelayOptions(uint64_t seed);

std::string Describe(const RelaySimOptions& options);

}  // namespace sluice
