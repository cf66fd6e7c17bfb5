// SPDX-License-Identifier: Apache-2.0
// Progress: shows a running job. Formats a coordinator's status as a table for a terminal or as one
// line for a log. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "sluice/v1/coordinator.pb.h"

namespace sluice::cli {

// Totals over all workers of a job.
struct ProgressTotals {
  uint64_t step = 0;  // Step of the slowest worker.
  uint64_t total_steps = 0;
  double loss = 0;                // Mean over workers.
  double samples_per_second = 0;  // Sum of all workers.
  double bytes_up_per_step = 0;   // Mean of all workers.
  double bytes_down_per_step = 0;
  double ratio_up = 0;  // Dense fp32 bytes divided by sent bytes. 0 if nothing was sent yet.
  double ratio_down = 0;
  uint32_t joined = 0;
  uint32_t attached_shards = 0;
  // For the slowest worker. Infinite if unknown.
  absl::Duration time_left = absl::InfiniteDuration();
};
ProgressTotals TotalsOf(const v1::GetStatusReply& status);

// Facts about a run that its status does not contain.
struct ProgressFrame {
  absl::Duration elapsed;
  absl::string_view page_url{};  // Empty if there is no page.
  uint32_t restarts = 0;         // Number of restarts of processes that died.
  // Describes the last process that died and how often it was restarted. Empty if no process died.
  absl::string_view last_death{};
};

// Returns a block of lines with at most `width` columns and at most kTableRowsMax workers. The
// block has additional lines in three cases: a process was lost, a lost process came back, or
// losing another process would cause a rollback although the job requests exact recovery.
inline constexpr size_t kTableRowsMax = 16;
std::vector<std::string> ProgressTable(const v1::GetStatusReply& status, const ProgressFrame& frame,
                                       size_t width);

// Returns, for example, "0:15 step 120/468 loss 0.412 5210 samples/s up 9.20 KiB (98x) down 20.1
// KiB (45x) per step and worker, eta 0:31". If they exist, checkpoints and restarts follow, as in
// ", checkpoint 100, 2 restarts".
std::string ProgressLine(const v1::GetStatusReply& status, const ProgressFrame& frame);

}  // namespace sluice::cli
