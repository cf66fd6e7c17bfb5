// SPDX-License-Identifier: Apache-2.0
// `sluice drain`: says whether a shard may be restarted now, after requesting a checkpoint.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cli/status.h"

namespace sluice::cli {

struct DrainOptions {
  StatusOptions status{};  // `json` and `watch` are not used.
  uint32_t shard = 0;
  bool check_only = false;                     // Request no checkpoint.
  absl::Duration timeout = absl::Minutes(10);  // Limit of the wait for the checkpoint.
};

// Returns an error message for a request for a checkpoint that failed after `timeout` or earlier.
std::string WhyNoCheckpoint(const absl::Status& why, absl::Duration timeout);

// Prints one paragraph (restart_answer.h). Returns the exit code of the program: 0 if the shard may
// be restarted; 1 if not, if there is no such shard, or if no coordinator answers; 2 if a file of
// `security` is invalid; 128 + a signal that ended the wait.
int DrainShard(const DrainOptions& options);

}  // namespace sluice::cli
