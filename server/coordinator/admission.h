// SPDX-License-Identifier: Apache-2.0
// Checks if a process may take part in a job: if it belongs to the job, and if its place is free.
// Pure.
#pragma once

#include "absl/status/status.h"
#include "protocol/membership.h"
#include "protocol/shard_control.h"
#include "server/coordinator/job_run.h"

namespace sluice::server {

// Returns why the worker cannot join. OK also for a worker that must wait for its rank.
absl::Status CheckJoin(const JobRun& run, const protocol::WorkerJoin& join);
// Returns why the process cannot serve its shard.
absl::Status CheckArrival(const JobRun& run, const protocol::ShardArrival& arrival);

}  // namespace sluice::server
