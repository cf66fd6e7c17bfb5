// SPDX-License-Identifier: Apache-2.0
#include "cli/launch/group_guard.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace sluice::cli {
namespace {

// Makes only system calls. Other threads may hold locks at the fork, and nothing releases these
// locks in the child.
[[noreturn]] void Guard(pid_t group, int life) {
  // Signals to the group are meant for the others. Only SIGKILL ends the guard.
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  if (::setpgid(0, group) != 0) ::_exit(1);
  // No pipe or port of the launcher may remain open because of the guard.
  constexpr int kLife = 3;
  if (life != kLife) ::dup2(life, kLife);
  ::close_range(0, kLife - 1, 0);
  ::close_range(kLife + 1, ~0u, 0);
  char byte = 0;
  while (::read(kLife, &byte, 1) < 0 && errno == EINTR) {
  }
  ::kill(-group, SIGKILL);
  ::_exit(0);
}

}  // namespace

GroupGuard::GroupGuard(pid_t group) {
  std::array<int, 2> ends = {-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return;
  pid_ = ::fork();
  if (pid_ == 0) Guard(group, ends[0]);
  ::close(ends[0]);
  life_ = ends[1];
  // The group must have the guard before this process waits for the group's leader.
  if (pid_ > 0) ::setpgid(pid_, group);
}

GroupGuard::GroupGuard(GroupGuard&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), life_(std::exchange(other.life_, -1)) {}

void GroupGuard::End() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_ = -1;
  if (life_ >= 0) ::close(life_);
  life_ = -1;
}

}  // namespace sluice::cli
