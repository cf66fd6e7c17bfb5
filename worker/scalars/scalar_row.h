// ScalarRow: what a run tells of itself at one step, as a line of scalars.csv and as points of
// TensorBoard's curves.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace sluice::worker {

// Losses, speeds and traffic are means over the steps since the row before; each is none where the
// row has none.
struct ScalarRow {
  uint64_t step = 0;        // Finished ones.
  uint64_t epoch = 0;       // Finished ones.
  double wall_seconds = 0;  // Of training since the job began; not of work that was lost.
  std::optional<double> loss{};
  std::optional<double> learning_rate{};  // Of this step.
  std::optional<double> samples_per_second{};
  std::optional<double> step_ms{};
  std::optional<double> bytes_up{};  // Of a step, as serialized messages.
  std::optional<double> bytes_down{};
  std::optional<double> ratio_up{};  // Dense fp32 / sent.
  std::optional<double> ratio_down{};
  std::optional<double> exposed_seconds{};  // Of a step: spent waiting for its exchange.
  std::optional<double> test_accuracy{};    // 0 to 1.
  std::optional<double> test_loss{};
};

struct ScalarColumn {
  absl::string_view name;  // In scalars.csv.
  absl::string_view tag;   // In TensorBoard.
  std::optional<double> ScalarRow::*value;
  double tag_scale = 1;  // The tag's value / the column's.
};

// In the order of the file, after step, epoch and wall_seconds.
absl::Span<const ScalarColumn> ScalarColumns();

}  // namespace sluice::worker
