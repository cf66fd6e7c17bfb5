// SPDX-License-Identifier: Apache-2.0
// `sluice evict` and `sluice set`: commands of an administrator to a running job.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/log_level.h"
#include "cli/status.h"

namespace sluice::cli {

struct EvictCommand {
  uint32_t rank = 0;
  std::string reason;
  bool allow_rollback = false;
};

// An unset field changes nothing.
struct SetCommand {
  std::optional<absl::Duration> lease_timeout{};
  std::optional<LogLevel> log_level{};
};

// Both ask the coordinator of `options`, whose `json` and `watch` they ignore, and print what the
// job does or uses then. They return the exit code of the program: 0; 1 if the coordinator refuses
// or does not answer; 2 if a file of `security` is invalid.
int EvictRank(const StatusOptions& options, const EvictCommand& command);
int ChangeSettings(const StatusOptions& options, const SetCommand& command);

}  // namespace sluice::cli
