// SPDX-License-Identifier: Apache-2.0
// The number of processor cores that this process may use.
#pragma once

#include <string>

namespace sluice {

// Returns the number of cores on which the process may run. If a control group grants less time
// (v2: cpu.max of its own group or of a group above it), returns that limit instead, rounded down
// to whole cores but at least 1. Only tests pass paths other than the kernel's.
int AvailableCores(const std::string& groups = "/sys/fs/cgroup",
                   const std::string& own_group = "/proc/self/cgroup");

}  // namespace sluice
