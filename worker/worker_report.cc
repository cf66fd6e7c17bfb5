// SPDX-License-Identifier: Apache-2.0
#include "worker/worker_report.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "job/job_spec.h"

namespace sluice::worker {
namespace {

using Json = nlohmann::ordered_json;

// Replaces text that is not UTF-8 instead of throwing.
std::string Dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string SuccessJson(const job::JobSpec& spec, uint32_t rank, const TrainReport& report) {
  Json json = {
      {"job", spec.name},
      {"rank", rank},
      {"exit", 0},
      {"steps", report.steps},
      {"rounds", report.rounds},
      {"skipped", report.skipped},
      {"parameters", report.parameters},
      {"parameters_sha256", report.parameters_sha256},
      {"wall_seconds", report.wall_seconds},
      {"train_loss", report.train_loss},
      {"samples_per_second", report.samples_per_second},
      {"step_ms_p50", report.step_ms_p50},
      {"step_ms_p95", report.step_ms_p95},
      {"exchanged_steps", report.traffic.steps},
      {"bytes_up", report.traffic.bytes_up},
      {"bytes_down", report.traffic.bytes_down},
      {"encode_seconds", report.traffic.encode_seconds},
      {"decode_seconds", report.traffic.decode_seconds},
      {"exposed_seconds", report.traffic.exposed_seconds},
  };
  if (report.test_accuracy.has_value()) {
    json["test_accuracy"] = *report.test_accuracy;
    json["judged_by"] = MeasureOf(spec.data) == TestMeasure::kLoss ? "loss" : "accuracy";
  }
  if (report.staleness.has_value()) json["staleness"] = *report.staleness;
  if (report.test_loss.has_value()) json["test_loss"] = *report.test_loss;
  if (report.best.has_value()) {
    json["best_step"] = report.best->step;
    json["best_test_accuracy"] = report.best->accuracy;
    json["best_test_loss"] = report.best->loss;
  }
  return Dump(json);
}

std::string FailureJson(const job::JobSpec& spec, uint32_t rank, int exit_code,
                        absl::string_view error) {
  return Dump(
      Json{{"job", spec.name}, {"rank", rank}, {"exit", exit_code}, {"error", std::string(error)}});
}

absl::Status WriteReport(const std::string& path, const std::string& json) {
  // The file is renamed when complete, so that a reader never sees a partial report, even if this
  // process crashes.
  const std::string unfinished = path + ".unfinished";
  std::ofstream file(unfinished);
  file << json;
  file.close();
  if (!file || std::rename(unfinished.c_str(), path.c_str()) != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot write the report ", path, ": ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace sluice::worker
