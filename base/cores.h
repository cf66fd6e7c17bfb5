// How many processor cores this process may keep busy.
#pragma once

#include <string>

namespace sluice {

// At least 1: the cores it may run on, or fewer where a control group (v2: cpu.max, of its group or
// one above) grants less time than that; parts of a core are not counted. The folder and the file
// are the kernel's, but for tests.
int AvailableCores(const std::string& groups = "/sys/fs/cgroup",
                   const std::string& own_group = "/proc/self/cgroup");

}  // namespace sluice
