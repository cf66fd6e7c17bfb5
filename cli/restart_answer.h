// SPDX-License-Identifier: Apache-2.0
// RestartAnswer: whether one shard of a job may be restarted now, and what the job does then. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "sluice/v1/coordinator.pb.h"

namespace sluice::cli {

struct RestartAnswer {
  bool safe = false;  // No step is lost for good, and the job continues.
  // A new checkpoint can be requested now, and less work is repeated after it.
  bool checkpoint_helps = false;
  std::string text{};  // One paragraph.
};

// Fails with FAILED_PRECONDITION if the job has ended, and with NOT_FOUND if it has no such shard.
absl::StatusOr<RestartAnswer> MayRestart(const v1::GetStatusReply& received, uint32_t shard);

}  // namespace sluice::cli
