// The report of a run, made from what its workers reported: checked, as JSON, and as text. Pure.
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

// The best test of a run; its parameters are kept as best.pt.
struct BestParameters {
  uint64_t step = 0;
  double test_accuracy = 0;
  double test_loss = 0;
};

// What one sluice-worker writes to its --report file.
struct WorkerReport {
  uint32_t rank = 0;
  uint64_t steps = 0;
  uint64_t parameters = 0;       // Elements of the model.
  uint64_t rounds = 0;           // As many as steps, but in local_sgd.
  uint64_t exchanged_steps = 0;  // Rounds since its last session began: what the bytes are of.
  uint64_t bytes_up = 0;         // Serialized messages.
  uint64_t bytes_down = 0;
  double wall_seconds = 0;
  double samples_per_second = 0;
  uint64_t skipped = 0;  // Steps in which it held something back: a gradient was not finite.
  std::optional<double> staleness;   // Mean, of jobs whose workers do not wait for each other.
  std::optional<double> train_loss;  // None if it is not a number.
  double step_ms_p50 = 0;
  double step_ms_p95 = 0;
  std::optional<double> test_accuracy;  // Of the rank that tests.
  std::optional<double> test_loss;
  bool judged_by_loss = false;  // Of text, whose accuracy is of next tokens.
  std::optional<BestParameters> best;
  std::string parameters_sha256;  // Lower-case hexadecimal.
};

// INVALID_ARGUMENT names the field that is missing or of another type.
absl::StatusOr<WorkerReport> ParseWorkerReport(absl::string_view json);

// What a run with job checkpoints went through.
struct SurvivalFacts {
  std::map<std::string, uint32_t> restarts;  // By process name; only those that were.
  uint32_t rollbacks = 0;
  uint32_t repairs = 0;  // Processes brought back without one.
};

// What the launcher knows.
struct RunFacts {
  std::string job_name;
  std::string mode = "sync";
  bool ranks_agree = true;  // In that mode, on their parameters.
  uint32_t workers = 0;
  uint32_t shards = 0;
  uint64_t seed = 0;
  bool dense = false;
  std::string output;     // Folder of its results; empty: none.
  std::string link_rate;  // As given; empty: not paced.
  double wall_seconds = 0;
  std::map<std::string, int> exit_codes;  // By process name, of its last start.
  std::optional<SurvivalFacts> survival;  // None: the job has no checkpoints.
};

struct RunReport {
  RunFacts facts;
  uint64_t steps = 0;
  uint64_t rounds = 0;
  uint64_t parameters = 0;
  double train_seconds = 0;          // The longest of a worker.
  std::optional<double> train_loss;  // Mean over workers; none if one has none.
  uint64_t skipped = 0;              // Sum.
  std::optional<double> staleness;   // Mean over workers.
  double samples_per_second = 0;     // Sum.
  std::optional<double> test_accuracy;
  std::optional<double> test_loss;
  bool judged_by_loss = false;
  std::optional<BestParameters> best;
  double bytes_up = 0;  // Per worker and step.
  double bytes_down = 0;
  double ratio_up = 0;  // Dense fp32 / sent; 0 if nothing was sent.
  double ratio_down = 0;
  double step_ms_p50 = 0;  // Of the slowest worker.
  double step_ms_p95 = 0;
  std::string parameters_sha256;  // Where workers end with different ones, of the first's.
};

// DATA_LOSS if the workers do not end with the same parameters, and should; INVALID_ARGUMENT if
// they do not report one run.
absl::StatusOr<RunReport> CombineReports(const RunFacts& facts,
                                         absl::Span<const WorkerReport> workers);

// The whole report as one JSON object, "ok": true.
std::string ReportJson(const RunReport& report);
// What is left to say of a run that failed: "ok": false, why, and how each process ended.
std::string FailureJson(const RunFacts& facts, absl::string_view failure);

std::string ReportSummary(const RunReport& report);

}  // namespace sluice::cli
