// SPDX-License-Identifier: Apache-2.0
// ProcessSet: starts, monitors and ends all processes of a run.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "cli/launch/child_process.h"

namespace sluice::cli {

enum class Role { kServer, kWorker };

// Not thread-safe. The thread that starts children must outlive them (child_process.h). The
// destructor kills all children.
class ProcessSet {
 public:
  explicit ProcessSet(const Clock* clock, absl::Duration grace = absl::Seconds(5))
      : clock_(clock), grace_(grace) {}

  absl::Status Start(Role role, const ChildOptions& options);

  // Schedules a restart at `when`, with the same command and the same log. Call this after Wait has
  // returned `ended`. Until StartDue restarts the process, it counts as running. After BeginEnd or
  // KillAll, no process is started.
  void StartAgainAt(const ChildProcess& ended, absl::Time when);
  // Restarts the processes whose restart is due. Pointers to the ended processes become invalid.
  absl::Status StartDue();
  // Cancels all pending restarts.
  void ForgetStarts();

  // Waits up to `timeout` for output, for the end of a child, or for `other_fd` to become readable
  // (-1 means no descriptor). Returns the children that have ended since the last call, in the
  // order of their start.
  std::vector<const ChildProcess*> Wait(absl::Duration timeout, int other_fd);

  // Sends SIGTERM to all children. After the grace time, Wait sends SIGKILL to children that still
  // run. A second call has no effect.
  void BeginEnd();
  void KillAll();
  bool ending() const { return kill_at_ != absl::InfiniteFuture(); }

  bool AllEnded() const;
  bool AllEnded(Role role) const;
  // Returns true if all processes of the role have ended with exit code 0.
  bool AllEndedWell(Role role) const;
  bool IsWorker(const ChildProcess& child) const;
  // Returns the children in the order of their first start.
  const std::vector<std::unique_ptr<ChildProcess>>& children() const { return children_; }

 private:
  const Clock* const clock_;
  const absl::Duration grace_;
  std::vector<std::unique_ptr<ChildProcess>> children_;
  std::vector<Role> roles_;  // Parallel to children_.
  std::vector<ChildOptions> options_;
  std::vector<bool> reported_;        // Wait has returned this child.
  std::vector<absl::Time> start_at_;  // Infinite if the child will not be restarted.
  absl::Time kill_at_ = absl::InfiniteFuture();
};

}  // namespace sluice::cli
