// SPDX-License-Identifier: Apache-2.0
#include "base/cores.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <thread>

#include "absl/strings/match.h"

namespace sluice {
namespace {

// Returns the path of this process's cgroup (v2), which is on the line that begins with "0::".
// Returns an empty string if there is no such line.
std::string GroupOf(const std::string& own_group) {
  std::ifstream file(own_group);
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, "0::/")) return line.substr(3);
  }
  return "";
}

// Returns the limit in the file `path` as a number of cores. The file contains "QUOTA PERIOD" in
// microseconds; a quota of "max" means no limit.
std::optional<double> LimitIn(const std::string& path) {
  std::ifstream file(path);
  double quota = 0;
  double period = 0;
  if (!(file >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

int CoresToRunOn() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

int AvailableCores(const std::string& groups, const std::string& own_group) {
  double cores = CoresToRunOn();
  std::string group = GroupOf(own_group);
  while (true) {
    while (!group.empty() && group.back() == '/') group.pop_back();
    if (const std::optional<double> limit = LimitIn(groups + group + "/cpu.max")) {
      cores = std::min(cores, *limit);
    }
    if (group.empty()) break;
    group.resize(group.rfind('/'));
  }
  return std::max(1, static_cast<int>(cores));
}

}  // namespace sluice
