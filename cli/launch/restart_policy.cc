// SPDX-License-Identifier: Apache-2.0
#include "cli/launch/restart_policy.h"

#include <sys/wait.h>

#include <algorithm>

#include "app/exit_codes.h"

namespace sluice::cli {

bool CallsForRestart(int wait_status) {
  return WIFSIGNALED(wait_status) || WEXITSTATUS(wait_status) == app::kExitLostPeers;
}

std::optional<absl::Duration> RestartPolicy::OnDeath(const std::string& process, absl::Time now) {
  Recent& recent = recent_[process];
  if (now - recent.last > limits_.forget_after) recent.restarts = 0;
  if (recent.restarts >= limits_.restarts_max) return std::nullopt;
  absl::Duration delay = limits_.first_delay;
  for (uint32_t i = 0; i < recent.restarts && delay < limits_.delay_max; ++i) delay *= 2;
  delay = std::min(delay, limits_.delay_max);
  ++recent.restarts;
  recent.last = now + delay;
  ++restarts_[process];
  ++total_;
  return delay;
}

}  // namespace sluice::cli
