// ProcessSet: the processes of one run, started, watched and ended together.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "cli/launch/child_process.h"

namespace sluice::cli {

enum class Role { kServer, kWorker };

// Not thread-safe; the thread that starts children must outlive them (child_process.h). Its
// destructor kills.
class ProcessSet {
 public:
  explicit ProcessSet(const Clock* clock, absl::Duration grace = absl::Seconds(5))
      : clock_(clock), grace_(grace) {}

  absl::Status Start(Role role, const ChildOptions& options);

  // Once Wait has returned `ended`: StartDue starts it again from `when` on, with the same command;
  // its log goes on. Until then it counts as not ended. After BeginEnd or KillAll nothing is
  // started.
  void StartAgainAt(const ChildProcess& ended, absl::Time when);
  // Replaces those whose time has come; pointers to the ended ones are void.
  absl::Status StartDue();
  // Starts none of those that wait for it.
  void ForgetStarts();

  // Waits up to `timeout` for output, for an end, or for `other_fd` to become readable (-1: none).
  // Returns those that ended since the last call, in the order in which they were started.
  std::vector<const ChildProcess*> Wait(absl::Duration timeout, int other_fd);

  // SIGTERM to all now, SIGKILL to those still there after the grace time (sent by Wait). Again: no
  // effect.
  void BeginEnd();
  void KillAll();
  bool ending() const { return kill_at_ != absl::InfiniteFuture(); }

  bool AllEnded() const;
  bool AllEnded(Role role) const;
  // With exit code 0.
  bool AllEndedWell(Role role) const;
  bool IsWorker(const ChildProcess& child) const;
  // In the order in which they were first started.
  const std::vector<std::unique_ptr<ChildProcess>>& children() const { return children_; }

 private:
  const Clock* const clock_;
  const absl::Duration grace_;
  std::vector<std::unique_ptr<ChildProcess>> children_;
  std::vector<Role> roles_;  // Of children_.
  std::vector<ChildOptions> options_;
  std::vector<bool> reported_;        // Wait has returned it.
  std::vector<absl::Time> start_at_;  // Infinite: it is not to be started again.
  absl::Time kill_at_ = absl::InfiniteFuture();
};

}  // namespace sluice::cli
