// SPDX-License-Identifier: Apache-2.0
// ServerSpec: the timeouts, limits and ports of a job's servers (section `server` of a job file).
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "protocol/job_defaults.h"

namespace sluice::job {

struct ServerSpec {
  absl::Duration lease_timeout = protocol::defaults::kServerLeaseTimeout;
  absl::Duration heartbeat_interval = protocol::defaults::kServerHeartbeatInterval;
  // A worker that has made no progress for this long cannot renew its lease with heartbeats. 0
  // disables the check.
  absl::Duration stall_timeout = protocol::defaults::kServerStallTimeout;
  // Limit for reaching the coordinator. Workers may start before the coordinator.
  absl::Duration join_timeout = protocol::defaults::kServerJoinTimeout;
  // Limit for reaching a shard, for the first time or after a broken connection.
  absl::Duration connect_timeout = protocol::defaults::kServerConnectTimeout;
  // Only in jobs with checkpoints: the time within which lost processes must return.
  absl::Duration rejoin_timeout = protocol::defaults::kServerRejoinTimeout;
  uint64_t window_bytes = protocol::defaults::kServerWindowBytes;  // Credit of each worker.
  uint64_t max_memory = protocol::defaults::kServerMaxMemory;      // In bytes, of each shard.
  uint16_t port = protocol::defaults::kServerPort;
  uint16_t http_port = protocol::defaults::kServerHttpPort;
};

// Returns the gRPC port of a shard whose command line gives no address: `port` + `shard`. The count
// skips `http_port`, so that all shards of a job can run on one host. Returns 0 (any free port) if
// `port` is 0. Fails with OUT_OF_RANGE if the result would be above 65535.
absl::StatusOr<uint16_t> DefaultGrpcPort(const ServerSpec& server, uint32_t shard);

}  // namespace sluice::job
