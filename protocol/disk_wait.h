// SPDX-License-Identifier: Apache-2.0
// DiskWait: a wait for a disk or a file, which a process reports to the coordinator.
#pragma once

#include <string>

#include "absl/time/time.h"

namespace sluice::protocol {

struct DiskWait {
  // A human-readable description of the wait. Empty if the process is not waiting.
  std::string what{};
  absl::Duration lasts{};
  // Why the last attempt failed. Empty until an attempt has failed.
  std::string trouble{};

  friend bool operator==(const DiskWait&, const DiskWait&) = default;
};

}  // namespace sluice::protocol
