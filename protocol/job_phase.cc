// SPDX-License-Identifier: Apache-2.0
#include "protocol/job_phase.h"

namespace sluice::protocol {

absl::string_view ToString(JobPhase phase) {
  switch (phase) {
    case JobPhase::kWaiting:
      return "waiting";
    case JobPhase::kRunning:
      return "running";
    case JobPhase::kFinished:
      return "finished";
    case JobPhase::kFailed:
      return "failed";
    case JobPhase::kRecovering:
      return "recovering";
  }
  return "";
}

}  // namespace sluice::protocol
