// SPDX-License-Identifier: Apache-2.0
// Splits a job with relays into its parts. The workers of such a job are in racks. A relay sums the
// contributions of its rack. To the servers, the relay is one worker, whose weight is the number of
// contributions in the sum. So the whole job consists of one job for the servers, whose workers are
// the relays, and one job per rack. Servers and sessions treat each part as an ordinary job. Pure.
#pragma once

#include <cstdint>

#include "job/job_spec.h"

namespace sluice::job {

// The place of one worker of the whole job.
struct RackPlace {
  uint32_t relay = 0;
  uint32_t rank = 0;  // Rank within the rack.
};

// Returns the place of the worker with `rank` in the whole job. `rank` must be below job.workers,
// and the job must have relays.
RackPlace FindRackPlace(const JobSpec& job, uint32_t rank);

// Returns the rank that the first worker of the relay's rack has in the whole job.
uint32_t FirstRankOf(const JobSpec& job, uint32_t relay);

// Returns the job of the servers. This is the job itself if it has no relays. The compression
// settings stay the same.
JobSpec JobOfServers(const JobSpec& job);

// Returns the job of the rack of `relay`: the workers of the rack, with relays.uplink, lossless
// results, and a separate checkpoint folder below the job's folder. Its mode is always a lockstep
// mode: if the relays do not wait for each other, the rack's mode is `sync`. Compression plans
// never change the rack's codecs. The hash differs from the hashes of other racks and of the
// servers' job, so that no process joins the wrong job. The rack makes a checkpoint when the
// servers' job does, and a loss always rolls the rack back to a checkpoint.
JobSpec JobOfRack(const JobSpec& job, uint32_t relay);

}  // namespace sluice::job
