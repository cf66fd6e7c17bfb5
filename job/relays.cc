// SPDX-License-Identifier: Apache-2.0
#include "job/relays.h"

#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/fnv1a.h"

namespace sluice::job {
namespace {

uint64_t HashOfRack(const JobSpec& job, uint32_t relay) {
  Fnv1a hash;
  hash.Add("rack");
  hash.Add(job.hash);
  hash.Add(uint64_t{relay});
  return hash.value();
}

}  // namespace

RackPlace FindRackPlace(const JobSpec& job, uint32_t rank) {
  Check(rank < job.workers, "the rank is one of the job's");
  RackPlace place{.relay = 0, .rank = rank};
  while (place.rank >= job.relays.workers[place.relay]) {
    place.rank -= job.relays.workers[place.relay++];
  }
  return place;
}

uint32_t FirstRankOf(const JobSpec& job, uint32_t relay) {
  const auto begin = job.relays.workers.begin();
  return std::accumulate(begin, begin + relay, 0u);
}

JobSpec JobOfServers(const JobSpec& job) {
  if (!job.relays.enabled()) return job;
  JobSpec above = job;
  above.part.weights = std::exchange(above.relays.workers, {});
  above.workers = static_cast<uint32_t>(above.part.weights.size());
  above.max_workers = above.workers;
  return above;
}

JobSpec JobOfRack(const JobSpec& job, uint32_t relay) {
  JobSpec rack = job;
  rack.part.rack_of = job.workers;
  rack.workers = job.relays.workers[relay];
  rack.max_workers = rack.workers;
  rack.relays.workers.clear();
  rack.hash = HashOfRack(job, relay);
  if (!job.exchange.in_lockstep()) {
    rack.exchange.mode = Mode::kSync;
    rack.exchange.staleness = 0;
    rack.exchange.staleness_aware_lr = false;
    rack.optimizer.location = UpdateLocation::kShards;  // Results are parameters.
    // No optimizer of these workers follows the momentum of plans.
    rack.exchange.control = {};
  } else if (job.exchange.control.makes_plans()) {
    rack.part.parent_plans =
        ParentPlans{.compression = job.exchange.compression,
                    .relays = static_cast<uint32_t>(job.relays.workers.size())};
  }
  // The layout does not change, so that bundles match on both sides of the relay.
  rack.exchange.compression.uplink = job.relays.uplink;
  rack.exchange.compression.downlink = *compress::ParseCodecSpec("none");
  rack.exchange.compression.overrides.clear();
  if (job.checkpoint.enabled()) {
    rack.checkpoint.dir = absl::StrCat(job.checkpoint.dir, "/rack-", relay);
    // The servers' job decides when checkpoints are made. The rack never starts one.
    rack.checkpoint.interval = std::numeric_limits<uint64_t>::max() / 2;
    rack.checkpoint.replay_limit = 0;
  }
  return rack;
}

}  // namespace sluice::job
