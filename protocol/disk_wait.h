// DiskWait: a wait for a disk or a file, which a process reports to the coordinator.
#pragma once

#include <string>

#include "absl/time/time.h"

namespace sluice::protocol {

struct DiskWait {
  // A description of the wait for a person. Empty if the process does not wait.
  std::string what{};
  absl::Duration lasts{};
  // The reason why the last try failed. Empty until the first try has failed.
  std::string trouble{};

  friend bool operator==(const DiskWait&, const DiskWait&) = default;
};

}  // namespace sluice::protocol
