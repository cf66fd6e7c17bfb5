// SPDX-License-Identifier: Apache-2.0
// The lines between `sluice bench exchange` and its workers. Workers read orders from standard
// input, and write answers among log lines to standard output. Pure. Times come from
// CLOCK_MONOTONIC, which all processes of a machine share.
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
  bool leave = false;      // The last order: leave the job and exit.
  int64_t start_ns = 0;    // Start of the turn, the same for all workers.
  int64_t compute_ns = 0;  // Duration over which gradients become ready one after the other.
};

// One worker's measurement of one exchange.
struct TurnReport {
  int64_t started_ns = 0;
  int64_t ready_ns = 0;      // Time when the last gradient was ready.
  int64_t submitted_ns = 0;  // Time when the last Submit had returned.
  int64_t applied_ns = 0;    // Time when every tensor's mean was applied and Wait had returned.
  int64_t apply_ns = 0;      // Time spent applying means, most of it before Wait.
  // The figures below cover only this exchange. Bytes are counted in serialized messages.
  uint64_t bytes_up = 0;
  uint64_t bytes_down = 0;
  int64_t encode_ns = 0;
  // Processor time of all threads of the worker, from started_ns to applied_ns.
  int64_t cpu_ns = 0;
  // The part of cpu_ns that was spent in each stage.
  std::array<int64_t, protocol::kStages> stage_cpu_ns{};
  // Largest resident memory since the process began.
  uint64_t peak_rss_bytes = 0;

  friend bool operator==(const TurnReport&, const TurnReport&) = default;
};

struct WorkerAnswer {
  std::optional<TurnReport> turn;  // Absent in the answer that reports a join.
};

std::string FormatOrder(const TurnOrder& order);  // Includes the end of the line.
absl::StatusOr<TurnOrder> ParseOrder(absl::string_view line);

std::string FormatJoined();  // Includes the end of the line.
std::string FormatTurn(const TurnReport& report);
// Returns nullopt for a log line. Fails with INVALID_ARGUMENT for a malformed answer.
absl::StatusOr<std::optional<WorkerAnswer>> ParseAnswer(absl::string_view line);

}  // namespace sluice::bench
