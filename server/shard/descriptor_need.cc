// SPDX-License-Identifier: Apache-2.0
#include "server/shard/descriptor_need.h"

#include "absl/strings/str_cat.h"

namespace sluice::server {
namespace {

// Maximum number of concurrent connections from `sluice status`, `sluice run`, probes and the like.
constexpr uint64_t kQuestions = 16;
// Standard streams, listening sockets, and the descriptors of gRPC and of a server's threads. A
// process with two HTTP ports uses 11 of these.
constexpr uint64_t kProcess = 32;
// Descriptors for the log, the lock, the trace, the manifest, and one part of a checkpoint.
constexpr uint64_t kFiles = 8;
// Maximum number of concurrent uploads of parts from workers (server/rpc/checkpoint_store.cc).
constexpr uint64_t kSentParts = 16;

std::string HowToHaveMore(uint64_t need, uint64_t limit) {
  return absl::StrCat(
      ", but this process may have only ", limit, ": raise the hard limit to ", need,
      " or more (`ulimit -Hn` in a root shell, LimitNOFILE= of a systemd unit, --ulimit nofile= of "
      "a container, on Kubernetes the container runtime's limit), or use fewer workers");
}

}  // namespace

uint64_t DescriptorNeed::connections() const {
  return workers * per_worker + shards + followers + kQuestions;
}

uint64_t DescriptorNeed::total() const {
  return connections() + http + files + kNewcomerDescriptors + kProcess;
}

std::string DescriptorNeed::ToString() const {
  return absl::StrCat(
      total(), " file descriptors (workers: ", workers, " with ", per_worker,
      per_worker == 1 ? " connection" : " connections", " each; other shards: ", shards,
      followers == 0 ? "" : absl::StrCat("; followers: ", followers), "; HTTP ports: ", http,
      "; new connections and status requests: ", kQuestions + kNewcomerDescriptors,
      "; files and the process itself: ", files + kProcess, ")");
}

DescriptorNeed NeedOf(const job::JobSpec& job, uint32_t shard, uint64_t http) {
  DescriptorNeed need{
      .shard = shard, .workers = job::RankLimit(job), .per_worker = 1, .http = http};
  // Each worker has one connection to each shard for bundles. It has two more to the coordinator,
  // one for membership calls and one for heartbeats, so that bundles cannot delay these.
  if (shard == 0) need.per_worker += 2;
  const bool stores = job.checkpoint.enabled() && job.checkpoint.at_shards();
  if (stores) ++need.per_worker;
  need.shards = shard == 0 ? job.shards - 1 : 2;
  if (job.followers.enabled()) need.followers = job.followers.max_connected;
  // Rank 0 uploads each type on a connection of its own.
  if (job.followers.enabled() && !job::ShardOptimizer(job).has_value()) {
    need.followers += job.followers.types.size();
  }
  need.files = kFiles + (stores ? kSentParts : 0);
  return need;
}

absl::Status CheckDescriptors(const DescriptorNeed& need, uint64_t limit) {
  if (need.total() <= limit) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("shard ", need.shard, " of this job needs ",
                                                   need.ToString(),
                                                   HowToHaveMore(need.total(), limit)));
}

absl::StatusOr<std::vector<uint64_t>> ShareDescriptors(const std::vector<DescriptorNeed>& needs,
                                                       uint64_t others, uint64_t limit) {
  uint64_t total = others;
  for (const DescriptorNeed& need : needs) total += need.total();
  if (total > limit) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the ", needs.size(), " servers of this process need ", total,
                     " file descriptors, the first of them ", needs.front().ToString(),
                     HowToHaveMore(total, limit)));
  }
  std::vector<uint64_t> shares;
  shares.reserve(needs.size());
  for (const DescriptorNeed& need : needs) {
    shares.push_back(need.total() + (limit - total) / needs.size());
  }
  return shares;
}

}  // namespace sluice::server
