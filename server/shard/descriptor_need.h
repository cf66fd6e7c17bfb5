// DescriptorNeed: how many file descriptors one server of a job takes, by use. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "job/job_spec.h"

namespace sluice::server {

// Each need includes these, for connections that have made no allowed call yet.
inline constexpr uint64_t kNewcomerDescriptors = 128;

struct DescriptorNeed {
  uint32_t shard = 0;
  uint64_t workers = 0;     // At most at a time; of a job with relays: relays.
  uint64_t per_worker = 0;  // Connections of each.
  uint64_t shards = 0;      // Others, each with a connection to this one or from it.
  uint64_t http = 0;        // Connections to the HTTP ports of the process.
  uint64_t files = 0;

  // To the gRPC port: those of the job, and of programs that ask how it goes.
  uint64_t connections() const;
  uint64_t total() const;
  std::string ToString() const;  // The total and its parts.
};

// `http`: connections that the HTTP ports of the process take.
DescriptorNeed NeedOf(const job::JobSpec& job, uint32_t shard, uint64_t http);

// RESOURCE_EXHAUSTED: `limit`, that of the process, is less than the need; says by how much, and
// who can raise it.
absl::Status CheckDescriptors(const DescriptorNeed& need, uint64_t limit);

// The same for servers that share a process, which needs `others` beside: how many each may use,
// all of `limit` together.
absl::StatusOr<std::vector<uint64_t>> ShareDescriptors(const std::vector<DescriptorNeed>& needs,
                                                       uint64_t others, uint64_t limit);

}  // namespace sluice::server
