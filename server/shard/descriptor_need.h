// SPDX-License-Identifier: Apache-2.0
// DescriptorNeed: the number of file descriptors that one server of a job needs, by purpose. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "job/job_spec.h"

namespace sluice::server {

// Every need includes these descriptors for connections that have made no allowed call yet.
inline constexpr uint64_t kNewcomerDescriptors = 128;

struct DescriptorNeed {
  uint32_t shard = 0;
  uint64_t workers = 0;     // Maximum number of workers; relays in a job with relays.
  uint64_t per_worker = 0;  // Number of each worker's connections.
  uint64_t shards = 0;      // Number of shards connected to this one.
  uint64_t followers = 0;   // Maximum number of followers and of uploads for them.
  uint64_t http = 0;        // Connections to the HTTP ports of the process.
  uint64_t files = 0;

  // Connections to the gRPC port, both from the job and from programs that query its status.
  uint64_t connections() const;
  uint64_t total() const;
  std::string ToString() const;  // Returns the total and its parts as text.
};

// Returns one server's need. `http` is the number of connections that its HTTP ports accept.
DescriptorNeed NeedOf(const job::JobSpec& job, uint32_t shard, uint64_t http);

// Fails with RESOURCE_EXHAUSTED if the need exceeds `limit`, the limit of the process. The message
// contains both numbers and explains how to raise the limit.
absl::Status CheckDescriptors(const DescriptorNeed& need, uint64_t limit);

// Performs the same check for several servers in one process, which needs `others` more
// descriptors. Returns the number of descriptors that each server may use. Together, these use all
// of `limit`.
absl::StatusOr<std::vector<uint64_t>> ShareDescriptors(const std::vector<DescriptorNeed>& needs,
                                                       uint64_t others, uint64_t limit);

}  // namespace sluice::server
