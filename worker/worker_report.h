// SPDX-License-Identifier: Apache-2.0
// WorkerReport: the JSON that sluice-worker writes to --report, for the launcher and for scripts.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "worker/train/train.h"

namespace sluice::job {
struct JobSpec;
}  // namespace sluice::job

namespace sluice::worker {

// One flat object: job, rank, exit (0) and all figures of the report. It includes test_* and
// judged_by (loss or accuracy) only if this rank tested, and best_* only if this rank keeps a
// best.pt. Bytes are sums over all steps.
std::string SuccessJson(const job::JobSpec& spec, uint32_t rank, const TrainReport& report);

// One flat object: job, rank, exit and error.
std::string FailureJson(const job::JobSpec& spec, uint32_t rank, int exit_code,
                        absl::string_view error);

absl::Status WriteReport(const std::string& path, const std::string& json);

}  // namespace sluice::worker
