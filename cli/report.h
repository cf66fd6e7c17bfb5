// SPDX-License-Identifier: Apache-2.0
// Report: the report of a run, made from the reports of its workers: checks, JSON and text. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace sluice::cli {

// The best test result of a run. The run keeps its parameters as best.pt.
struct BestParameters {
  uint64_t step = 0;
  double test_accuracy = 0;
  double test_loss = 0;
};

// The contents of a file from sluice-worker --report.
struct WorkerReport {
  uint32_t rank = 0;
  uint64_t steps = 0;
  uint64_t parameters = 0;  // Number of elements of the model.
  uint64_t rounds = 0;      // Equal to `steps` except with local steps.
  // Rounds since the worker's last session began. The byte counts cover these rounds.
  uint64_t exchanged_steps = 0;
  uint64_t bytes_up = 0;  // Bytes of serialized messages.
  uint64_t bytes_down = 0;
  double wall_seconds = 0;
  double samples_per_second = 0;
  // Number of steps in which the worker left out a bundle because a gradient was not finite.
  uint64_t skipped = 0;
  std::optional<double> staleness;   // Mean; for jobs whose workers do not wait for each other.
  std::optional<double> train_loss;  // Empty if the loss is not a number.
  double step_ms_p50 = 0;
  double step_ms_p95 = 0;
  std::optional<double> wait_ms;        // Mean per step; only in reports of Python sessions.
  std::optional<double> test_accuracy;  // Set for the rank that tests.
  std::optional<double> test_loss;
  // True for text models, whose accuracy is that of the next token.
  bool judged_by_loss = false;
  std::optional<BestParameters> best;
  std::string parameters_sha256;  // Lower-case hexadecimal. Empty if it is unknown.
};

// Fails with INVALID_ARGUMENT if a field is missing or has the wrong type. The message names the
// field.
absl::StatusOr<WorkerReport> ParseWorkerReport(absl::string_view json);

// Lost and repaired processes of a run with job checkpoints.
struct SurvivalFacts {
  std::map<std::string, uint32_t> restarts;  // By process name; contains only restarted processes.
  uint32_t rollbacks = 0;
  uint32_t repairs = 0;  // Number of processes that came back without a rollback.
};

// Facts that the launcher provides.
struct RunFacts {
  std::string job_name;
  std::string mode = "sync";
  // True if ranks must agree on the parameters in this mode.
  bool ranks_agree = true;
  uint32_t workers = 0;
  uint32_t shards = 0;
  uint64_t seed = 0;
  bool dense = false;
  std::string output;     // Folder for the results. Empty if there is none.
  std::string link_rate;  // As given on the command line. Empty if links are not paced.
  double wall_seconds = 0;
  std::map<std::string, int> exit_codes;  // By process name; from the last start of each process.
  std::optional<SurvivalFacts> survival;  // Empty if the job has no checkpoints.
};

struct RunReport {
  RunFacts facts;
  uint64_t steps = 0;
  uint64_t rounds = 0;
  uint64_t parameters = 0;
  double train_seconds = 0;          // Time of the slowest worker.
  std::optional<double> train_loss;  // Mean of all workers. Empty if a worker has none.
  uint64_t skipped = 0;              // Sum of all workers.
  std::optional<double> staleness;   // Mean of all workers.
  double samples_per_second = 0;     // Sum of all workers.
  std::optional<double> test_accuracy;
  std::optional<double> test_loss;
  bool judged_by_loss = false;
  std::optional<BestParameters> best;
  double bytes_up = 0;  // Per worker and step.
  double bytes_down = 0;
  double ratio_up = 0;  // Dense fp32 bytes divided by sent bytes. 0 if nothing was sent.
  double ratio_down = 0;
  double step_ms_p50 = 0;  // Time of the slowest worker.
  double step_ms_p95 = 0;
  std::optional<double> wait_ms;  // Time of the worker that waits longest.
  std::string parameters_sha256;  // The first worker's hash if they differ.
};

// Fails with DATA_LOSS if the workers must end with equal parameters but do not. Fails with
// INVALID_ARGUMENT if the reports do not belong to one run.
absl::StatusOr<RunReport> CombineReports(const RunFacts& facts,
                                         absl::Span<const WorkerReport> workers);

// Returns the complete report as a JSON object with "ok": true.
std::string ReportJson(const RunReport& report);
// Returns the report of a failed run as JSON: "ok": false, the reason, and the end of each process.
std::string FailureJson(const RunFacts& facts, absl::string_view failure);

std::string ReportSummary(const RunReport& report);

}  // namespace sluice::cli
