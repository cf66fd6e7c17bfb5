// SPDX-License-Identifier: Apache-2.0
// ScalarRow: a run's figures at one step, as a line of scalars.csv and as points of TensorBoard's
// curves.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace sluice::worker {

// Losses, speeds and traffic are means over the steps since the previous row. Absent values do not
// apply to the row.
struct ScalarRow {
  uint64_t step = 0;        // Finished steps.
  uint64_t epoch = 0;       // Finished epochs.
  double wall_seconds = 0;  // Training time since the start of the job, without lost work.
  std::optional<double> loss{};
  std::optional<double> learning_rate{};  // Rate of this step.
  std::optional<double> samples_per_second{};
  std::optional<double> step_ms{};
  std::optional<double> bytes_up{};  // Per step, as serialized messages.
  std::optional<double> bytes_down{};
  std::optional<double> ratio_up{};  // Dense fp32 bytes / sent bytes.
  std::optional<double> ratio_down{};
  std::optional<double> exposed_seconds{};  // Per step: time spent waiting for its exchange.
  std::optional<double> test_accuracy{};    // 0 to 1.
  std::optional<double> test_loss{};
};

struct ScalarColumn {
  absl::string_view name;  // Column in scalars.csv.
  absl::string_view tag;   // Tag in TensorBoard.
  std::optional<double> ScalarRow::*value;
  double tag_scale = 1;  // Ratio of the tag's value to the column's.
};

// Returns the columns after step, epoch and wall_seconds, in the order of the file.
absl::Span<const ScalarColumn> ScalarColumns();

}  // namespace sluice::worker
