// SPDX-License-Identifier: Apache-2.0
// How a shard's core is started: its part of the table, its options, and the log lines about its
// start. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "job/job_spec.h"
#include "protocol/shard_control.h"
#include "protocol/snapshot.h"
#include "server/shard/shard.h"
#include "server/shard/shard_stats.h"

namespace sluice::server {

// Divides the table of `start`. Fails with INVALID_ARGUMENT if the job file has another number of
// ranks, or if the table cannot be divided.
absl::StatusOr<protocol::Layout> LayoutFor(const job::JobSpec& job,
                                           const protocol::StartShard& start);

// Returns the options of the core. The caller adds what belongs to its process: the incarnation,
// the threads, the stage times and run_copy.
ShardOptions ShardOptionsFor(const job::JobSpec& job, uint32_t shard,
                             const protocol::StartShard& start, protocol::Layout layout,
                             std::shared_ptr<const protocol::ShardSnapshot> snapshot);

// Returns the limit for the bytes of answers that may wait on one stream of the shard.
uint64_t AnswerBytesMax(const ShardOptions& options);

// Returns the log line about a core that has started. `took` is the time of the start.
std::string DescribeStart(const job::JobSpec& job, const protocol::StartShard& start,
                          const ShardStats& stats, size_t bundles, absl::Duration took);

// Returns a warning if the core keeps fewer results than checkpoint.replay_limit allows; empty if
// it does not.
std::string ReplayWarning(const job::JobSpec& job, const ShardStats& stats);

}  // namespace sluice::server
