// SPDX-License-Identifier: Apache-2.0
// JobPhase: the state of a whole job. The coordinator reports the phase to every process.
#pragma once

#include "absl/strings/string_view.h"

namespace sluice::protocol {

enum class JobPhase {
  // The job waits for ranks and shards that have not arrived yet.
  kWaiting,
  kRunning,
  // Every rank has left after its last step.
  kFinished,
  kFailed,
  // The job was rolled back and waits until all ranks and shards have arrived again.
  kRecovering
};

// Returns "waiting", "running", "finished", "failed" or "recovering".
absl::string_view ToString(JobPhase phase);

}  // namespace sluice::protocol
