// SPDX-License-Identifier: Apache-2.0
// Reads parts of checkpoints from other servers' disks, in jobs with `checkpoint.store: shards`
// whose number of shards has changed.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "net/grpc/transport.h"
#include "protocol/shard_control.h"

namespace sluice::server {

// Reads the part of run `job_uid` from the server that has it, and verifies its size and checksum.
// Blocks until the transfer ends, or until it is slower than 1 MiB/s after half a minute. Fails
// with NOT_FOUND if the part is not there, DATA_LOSS if it is damaged, FAILED_PRECONDITION if that
// server has another run's parts, and UNAVAILABLE if a retry may succeed.
absl::StatusOr<std::string> FetchPart(const net::Transport& transport,
                                      const protocol::FormerState& state, uint64_t job_uid);

}  // namespace sluice::server
