// SPDX-License-Identifier: Apache-2.0
// Administration: what an administrator may change in a running job: it evicts workers, and it sets
// the lease and the level of the logs. Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/log_level.h"
#include "protocol/membership.h"
#include "server/coordinator/coordinator_effects.h"
#include "server/coordinator/elastic_members.h"
#include "server/coordinator/job_run.h"

namespace sluice::server {

// Settings that can change while the job runs. An unset field changes nothing.
struct RunningSettings {
  std::optional<absl::Duration> lease_timeout{};
  std::optional<LogLevel> log_level{};

  friend bool operator==(const RunningSettings&, const RunningSettings&) = default;
};

struct Eviction {
  uint32_t rank = 0;
  std::string reason{};  // For messages; may be empty.
  bool allow_rollback = false;
};

class Administration {
 public:
  using Effects = CoordinatorEffects;

  // Both must outlive it.
  Administration(JobRun* run, ElasticMembers* elastic) : run_(*run), elastic_(*elastic) {}

  // Takes a rank from its worker. The job then continues as after the loss of the worker. Returns
  // a text that says how. Fails with INVALID_ARGUMENT if the rank does not exist, and with
  // FAILED_PRECONDITION if no worker can be evicted from it, if the job would end without the
  // worker, or if it would roll back and the caller does not allow that. Fails with UNAVAILABLE
  // while the worker's Join waits.
  absl::StatusOr<std::string> Evict(const Eviction& eviction, absl::Time now, Effects* out);
  // Fails with FAILED_PRECONDITION for a process that was evicted. Another process may join. Only
  // the last kEvictedMax processes are known.
  absl::Status CheckNotEvicted(const protocol::WorkerJoin& join) const;

  // Changes what is set in `change`, and returns the settings after that. Without a log level, each
  // process uses its own flags. Fails with INVALID_ARGUMENT if the lease is out of range.
  absl::StatusOr<RunningSettings> Change(const RunningSettings& change, Effects* out);

  static constexpr size_t kEvictedMax = 256;

 private:
  absl::Status CheckEviction(const Eviction& eviction) const;
  std::string WhyRollback(const Eviction& eviction) const;

  JobRun& run_;
  ElasticMembers& elastic_;
  std::deque<uint64_t> evicted_;  // Nonces of processes.
};

}  // namespace sluice::server
