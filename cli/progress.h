// How a running job looks: a coordinator's status as a table for a terminal or as one line for a
// log. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "sluice/v1/coordinator.pb.h"

namespace sluice::cli {

// All workers of a job as one.
struct ProgressTotals {
  uint64_t step = 0;  // The slowest worker's.
  uint64_t total_steps = 0;
  double loss = 0;                // Mean over workers.
  double samples_per_second = 0;  // Sum.
  double bytes_up_per_step = 0;   // Of one worker, mean.
  double bytes_down_per_step = 0;
  double ratio_up = 0;  // Dense fp32 / sent; 0: nothing was sent yet.
  double ratio_down = 0;
  uint32_t joined = 0;
  uint32_t attached_shards = 0;
  absl::Duration time_left =
      absl::InfiniteDuration();  // The slowest worker's; infinite: not known.
};
ProgressTotals TotalsOf(const v1::GetStatusReply& status);

// What a status does not know of the run around it.
struct ProgressFrame {
  absl::Duration elapsed;
  absl::string_view page_url{};    // Empty: none.
  uint32_t restarts = 0;           // Of processes that died.
  absl::string_view last_death{};  // What died last, and how often; empty: nothing.
};

// A block of lines, each at most `width` columns; never more than kTableRowsMax workers. One more
// if something was lost, one if it was brought back, one if the next loss would be a rollback
// although the job asks for more.
inline constexpr size_t kTableRowsMax = 16;
std::vector<std::string> ProgressTable(const v1::GetStatusReply& status, const ProgressFrame& frame,
                                       size_t width);

// "0:15 step 120/468 loss 0.412 5210 samples/s up 9.20 KiB (98x) down 20.1 KiB (45x) per step and
// worker, eta 0:31"; ", checkpoint 100, 2 restarts" where there are such.
std::string ProgressLine(const v1::GetStatusReply& status, const ProgressFrame& frame);

}  // namespace sluice::cli
