// SPDX-License-Identifier: Apache-2.0
// Samples of a job's status that advance second by second.
#pragma once

#include "server/coordinator/job_history.h"
#include "server/coordinator/job_status.h"

namespace sluice::server {

inline absl::Time SecondOf(double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

inline JobStatus RunningJob(uint32_t workers) {
  JobStatus status;
  status.phase = protocol::JobPhase::kRunning;
  status.world_size = workers;
  for (uint32_t rank = 0; rank < workers; ++rank) {
    status.members.push_back({.rank = rank, .host = "h", .joined = true});
  }
  status.shards.push_back({.shard = 0, .address = "h:1", .attached = true});
  return status;
}

// Adds `steps` steps with `split` to `member`. Each step sends 100 bytes up and 50 down for 4000
// dense bytes.
inline void Step(uint64_t steps, const StepSplit& split, MemberStatus* member) {
  const auto count = static_cast<double>(steps);
  member->progress.step += steps;
  member->progress.bytes_up += 100 * steps;
  member->progress.bytes_down += 50 * steps;
  member->progress.dense_bytes_up += 4000 * steps;
  member->progress.dense_bytes_down += 4000 * steps;
  member->timings.steps += steps;
  member->timings.compute_seconds += count * split.compute;
  member->timings.encode_seconds += count * split.encode / 2;
  member->timings.decode_seconds += count * split.encode / 2;
  member->timings.exchange_seconds += count * (split.wait + split.transfer);
  member->waited_seconds += count * split.wait;
}

}  // namespace sluice::server
