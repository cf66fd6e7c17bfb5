// SPDX-License-Identifier: Apache-2.0
// GroupGuard: kills a process group when the process that started the guard ends.
#pragma once

#include <sys/types.h>

namespace sluice::cli {

// The guard is a process in the group. Not thread-safe.
class GroupGuard {
 public:
  GroupGuard() = default;  // Guards nothing.
  // Guards the group of a child that has not been waited for. If the system is out of processes or
  // descriptors, the guard does nothing.
  explicit GroupGuard(pid_t group);
  GroupGuard(GroupGuard&& other) noexcept;
  GroupGuard& operator=(GroupGuard&&) = delete;
  // Ends the guard, not the group.
  ~GroupGuard() { End(); }

  void End();

 private:
  pid_t pid_ = -1;
  int life_ = -1;  // A pipe. Its other end, in the guard, reads the end of this process.
};

}  // namespace sluice::cli
