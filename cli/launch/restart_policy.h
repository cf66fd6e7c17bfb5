// SPDX-License-Identifier: Apache-2.0
// RestartPolicy: decides whether a process that ended is restarted, when, and how often at most.
// Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace sluice::cli {

struct RestartLimits {
  absl::Duration first_delay = absl::Milliseconds(200);  // The delay doubles with each restart.
  absl::Duration delay_max = absl::Seconds(30);
  uint32_t restarts_max = 10;
  // If a process runs for this long, its next restart uses first_delay again.
  absl::Duration forget_after = absl::Minutes(10);
};

// Returns true if a signal ended the process, or if its exit code means that it lost its peers.
// After any other end, a restarted process would end in the same way.
bool CallsForRestart(int wait_status);

class RestartPolicy {
 public:
  explicit RestartPolicy(const RestartLimits& limits = {}) : limits_(limits) {}

  // Call this when `process` has died. Returns the delay before its restart, or no value if the
  // process was restarted too often.
  std::optional<absl::Duration> OnDeath(const std::string& process, absl::Time now);

  const RestartLimits& limits() const { return limits_; }
  // Number of restarts since the run began, by process. Contains only processes that were
  // restarted.
  const std::map<std::string, uint32_t>& restarts() const { return restarts_; }
  uint32_t total() const { return total_; }

 private:
  struct Recent {
    uint32_t restarts = 0;
    absl::Time last = absl::InfinitePast();
  };

  const RestartLimits limits_;
  std::map<std::string, Recent> recent_;
  std::map<std::string, uint32_t> restarts_;
  uint32_t total_ = 0;
};

}  // namespace sluice::cli
