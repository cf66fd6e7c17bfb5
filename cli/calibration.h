// SPDX-License-Identifier: Apache-2.0
// Calibration: measures the figures of this machine for `sluice estimate`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "planning/estimate/machine_figures.h"

namespace sluice::cli {

struct CalibrationOptions {
  std::string program;  // Path of sluice, which measures exchanges with sluice-server.
  std::string temporary_folder;
  std::vector<std::string> environment;
  // The tensors on which codecs are measured: a model, or a file (bench/measure/table_file.h).
  std::string model = "resnet50";
  std::string table_path{};
  std::vector<std::string> specs;  // Codecs to measure besides those of planning::UsualFigures.
  // Called after each measurement; may be empty.
  std::function<void(const std::string& what)> progress;
};

// Measures each codec on one core, and exchanges between one worker and one shard over loopback.
// Takes half a minute on a quiet machine, and at most five minutes. Call this on the main thread.
// Fails with INVALID_ARGUMENT for an invalid spec, and with the error of a measurement otherwise.
absl::StatusOr<planning::MachineFigures> CalibrateMachine(const CalibrationOptions& options);

// What an exchange between one worker and one shard measured.
struct LoopbackFigures {
  double exchange_ms = 0;
  // Processor time of an exchange, without that of encoding, summing and applying.
  double worker_messages_s = 0;
  double shard_messages_s = 0;
  double moved_bytes = 0;  // Sent and received by the worker.
};

// Reads the report of `sluice bench exchange`. Fails with INTERNAL if it has no such figures.
absl::StatusOr<LoopbackFigures> ReadLoopbackReport(absl::string_view json);

}  // namespace sluice::cli
