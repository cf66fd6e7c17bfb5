// Jobs with relays, taken apart. The workers of a job are in racks; a relay sums what its rack's
// workers send, and is one worker to the servers, of as much weight as there are contributions in
// the sum. So a job consists of one above, whose workers are the relays, and one for each rack.
// Both are ordinary jobs to servers and sessions. Pure.
#pragma once

#include <cstdint>

#include "job/job_spec.h"

namespace sluice::job {

// Where a worker of the whole job is.
struct RackPlace {
  uint32_t relay = 0;
  uint32_t rank = 0;  // In its rack.
};

// `rank` is below job.workers; the job has relays.
RackPlace FindRackPlace(const JobSpec& job, uint32_t rank);

// The ranks of a rack are those of the whole job from here on.
uint32_t FirstRankOf(const JobSpec& job, uint32_t relay);

// What the servers run: the job itself if it has no relays. Compression is the job's.
JobSpec JobOfServers(const JobSpec& job);

// What the rack of `relay` runs: its workers, with relays.uplink and lossless results, in a
// checkpoint folder of its own below the job's. It is another job than those of other racks and
// than that of the servers (its hash differs), so that nobody joins the wrong one. Its checkpoints
// are those of the job above, and a loss always takes the rack back to one.
JobSpec JobOfRack(const JobSpec& job, uint32_t relay);

}  // namespace sluice::job
