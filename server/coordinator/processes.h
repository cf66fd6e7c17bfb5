// SPDX-License-Identifier: Apache-2.0
// Lists the workers and shards of a job together: for its status, and for messages about missing
// and lost processes. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/control/slowest_stream.h"
#include "server/coordinator/job_status.h"
#include "server/coordinator/roster.h"
#include "server/coordinator/shard_fleet.h"

namespace sluice::server {

// Returns the processes that a term still needs. Empty if it needs none.
std::string MissingProcesses(const Roster& roster, const ShardFleet& fleet);
// Returns the processes that the job waits for.
std::string LostProcesses(const Roster& roster, const ShardFleet& fleet);
// Adds the members, the shards and the removed workers to the status.
void AddProcesses(const Roster& roster, const ShardFleet& fleet, absl::Time now, JobStatus* status);
// Returns what each shard has reported about its streams, from shard 0 on.
std::vector<ShardStreams> StreamsOf(const ShardFleet& fleet);
// Adds the processes that wait for a disk or a file.
void AddWaits(const Roster& roster, const ShardFleet& fleet, absl::Time now, JobStatus* status);

}  // namespace sluice::server
