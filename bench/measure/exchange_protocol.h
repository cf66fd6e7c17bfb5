// The lines between `sluice bench exchange` and its workers: orders on their standard input,
// answers on their standard output, among lines of their logs. Pure. Times are CLOCK_MONOTONIC's,
// which all processes of a machine share.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "protocol/stage_times.h"

namespace sluice::bench {

struct TurnOrder {
  bool leave = false;      // The last one: leave the job and end.
  int64_t start_ns = 0;    // When the turn begins, the same for all workers.
  int64_t compute_ns = 0;  // Gradients become ready one after the other over so long.
};

// What one worker saw of one exchange.
struct TurnReport {
  int64_t started_ns = 0;
  int64_t ready_ns = 0;      // The last gradient was there.
  int64_t submitted_ns = 0;  // The last Submit had returned.
  int64_t waited_ns = 0;     // Wait had returned.
  int64_t applied_ns = 0;    // Every tensor's mean was there.
  // Of this exchange alone.
  uint64_t bytes_up = 0;  // Serialized messages.
  uint64_t bytes_down = 0;
  int64_t encode_ns = 0;
  int64_t cpu_ns = 0;  // Of all its threads, from started to applied.
  std::array<int64_t, protocol::kStages> stage_cpu_ns{};  // Of that, by stage.
  uint64_t peak_rss_bytes = 0;                            // Since the process began.

  friend bool operator==(const TurnReport&, const TurnReport&) = default;
};

struct WorkerAnswer {
  std::optional<TurnReport> turn;  // None: it has joined.
};

std::string FormatOrder(const TurnOrder& order);  // A line.
absl::StatusOr<TurnOrder> ParseOrder(absl::string_view line);

std::string FormatJoined();  // A line.
std::string FormatTurn(const TurnReport& report);
// Nothing for a line of its log. INVALID_ARGUMENT: an answer that is none.
absl::StatusOr<std::optional<WorkerAnswer>> ParseAnswer(absl::string_view line);

}  // namespace sluice::bench
