// RestartPolicy: which ends of a process call for its restart, when, and how often at most. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace sluice::cli {

struct RestartLimits {
  absl::Duration first_delay = absl::Milliseconds(200);  // Doubles with each restart.
  absl::Duration delay_max = absl::Seconds(30);
  uint32_t restarts_max = 10;
  // A process that stays up for so long begins with the first delay again.
  absl::Duration forget_after = absl::Minutes(10);
};

// A signal, or an exit that says that the others were lost. Every other end is a program's own
// decision and would come again.
bool CallsForRestart(int wait_status);

class RestartPolicy {
 public:
  explicit RestartPolicy(const RestartLimits& limits = {}) : limits_(limits) {}

  // Call it when `process` died: how long to wait before it is started again. None: it was started
  // again too often.
  std::optional<absl::Duration> OnDeath(const std::string& process, absl::Time now);

  const RestartLimits& limits() const { return limits_; }
  // Since the run began, by process; only those that were started again.
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
