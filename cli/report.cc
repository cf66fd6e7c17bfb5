// SPDX-License-Identifier: Apache-2.0
#include "cli/report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/launch/quantity.h"

namespace sluice::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kFp32Bytes = 4;
constexpr double kFp16Bytes = 2;

template <typename T>
absl::Status Get(const Json& json, absl::string_view key, T* value) {
  const auto found = json.find(std::string(key));
  bool fits = found != json.end();
  if constexpr (std::is_same_v<T, std::string>) {
    fits = fits && found->is_string();
  } else if constexpr (std::is_integral_v<T>) {
    fits = fits && found->is_number_unsigned();
  } else {
    fits = fits && found->is_number();
  }
  if (!fits) {
    return absl::InvalidArgumentError(
        absl::StrCat("a worker's report has no valid value for '", key, "'"));
  }
  *value = found->get<T>();
  return absl::OkStatus();
}

std::optional<double> GetOptional(const Json& json, const std::string& key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

Json OrNull(const std::optional<double>& value) {
  return value.has_value() ? Json(*value) : Json();
}

Json FactsJson(const RunFacts& facts, bool ok) {
  Json json = {{"ok", ok},
               {"job", facts.job_name},
               {"mode", facts.mode},
               {"workers", facts.workers},
               {"shards", facts.shards},
               {"seed", facts.seed},
               {"dense", facts.dense},
               {"link_rate", facts.link_rate.empty() ? Json() : Json(facts.link_rate)},
               {"wall_seconds", facts.wall_seconds},
               {"exit_codes", facts.exit_codes}};
  if (facts.survival.has_value()) {
    json["restarts"] = facts.survival->restarts;
    json["rollbacks"] = facts.survival->rollbacks;
    json["repairs"] = facts.survival->repairs;
  }
  return json;
}

std::string SurvivalLine(const SurvivalFacts& survival) {
  uint32_t restarts = 0;
  for (const auto& [name, count] : survival.restarts) restarts += count;
  return absl::StrFormat(
      "  %-14s %d restarts%s, %d repairs, %d rollbacks\n", "survived", restarts,
      survival.restarts.empty()
          ? ""
          : absl::StrCat(" (", absl::StrJoin(survival.restarts, ", ", absl::PairFormatter(": ")),
                         ")"),
      survival.repairs, survival.rollbacks);
}

std::string Dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string TrafficLine(absl::string_view name, double bytes, double ratio) {
  return absl::StrFormat("  %-14s %s per worker and step: %s less than dense fp32, %s than fp16\n",
                         name, FormatBytes(bytes), FormatRatio(ratio),
                         FormatRatio(ratio * kFp16Bytes / kFp32Bytes));
}

std::string TestLine(bool judged_by_loss, double accuracy, std::optional<double> loss) {
  if (judged_by_loss && loss.has_value()) {
    return absl::StrFormat("  %-14s %.4f (perplexity %.2f), accuracy %.2f %% of next tokens\n",
                           "test loss", *loss, std::exp(*loss), accuracy * 100);
  }
  return absl::StrFormat("  %-14s %.2f %%%s\n", "test accuracy", accuracy * 100,
                         loss.has_value() ? absl::StrFormat(", loss %.4f", *loss) : "");
}

}  // namespace

absl::StatusOr<WorkerReport> ParseWorkerReport(absl::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object())
    return absl::InvalidArgumentError("a worker's report is not a JSON object");
  WorkerReport report;
  for (const absl::Status& status : {
           Get(json, "rank", &report.rank),
           Get(json, "steps", &report.steps),
           Get(json, "parameters", &report.parameters),
           Get(json, "bytes_up", &report.bytes_up),
           Get(json, "bytes_down", &report.bytes_down),
           Get(json, "wall_seconds", &report.wall_seconds),
           Get(json, "step_ms_p50", &report.step_ms_p50),
           Get(json, "step_ms_p95", &report.step_ms_p95),
           Get(json, "parameters_sha256", &report.parameters_sha256),
       }) {
    if (!status.ok()) return status;
  }
  report.exchanged_steps = static_cast<uint64_t>(
      GetOptional(json, "exchanged_steps").value_or(static_cast<double>(report.steps)));
  report.rounds = static_cast<uint64_t>(
      GetOptional(json, "rounds").value_or(static_cast<double>(report.steps)));
  report.staleness = GetOptional(json, "staleness");
  report.train_loss = GetOptional(json, "train_loss");
  report.skipped = static_cast<uint64_t>(GetOptional(json, "skipped").value_or(0));
  report.samples_per_second = GetOptional(json, "samples_per_second").value_or(0);
  report.wait_ms = GetOptional(json, "wait_ms");
  report.test_accuracy = GetOptional(json, "test_accuracy");
  report.test_loss = GetOptional(json, "test_loss");
  const auto judged_by = json.find("judged_by");
  report.judged_by_loss = judged_by != json.end() && *judged_by == "loss";
  if (const std::optional<double> step = GetOptional(json, "best_step"); step.has_value()) {
    report.best =
        BestParameters{.step = static_cast<uint64_t>(*step),
                       .test_accuracy = GetOptional(json, "best_test_accuracy").value_or(NAN),
                       .test_loss = GetOptional(json, "best_test_loss").value_or(NAN)};
  }
  // Ranks that do not test report a negative value.
  if (report.test_accuracy.has_value() && *report.test_accuracy < 0) {
    report.test_accuracy.reset();
    report.test_loss.reset();
  }
  return report;
}

absl::StatusOr<RunReport> CombineReports(const RunFacts& facts,
                                         absl::Span<const WorkerReport> workers) {
  if (workers.empty()) return absl::InvalidArgumentError("no worker left a report");
  const WorkerReport& first = workers.front();
  RunReport report;
  report.facts = facts;
  report.steps = first.steps;
  report.rounds = first.rounds;
  report.parameters = first.parameters;
  report.parameters_sha256 = first.parameters_sha256;
  report.train_loss = 0;
  double up = 0, down = 0, exchanged = 0;
  for (const WorkerReport& worker : workers) {
    if (worker.steps != first.steps || worker.parameters != first.parameters) {
      return absl::InvalidArgumentError(absl::StrCat(
          "worker ", worker.rank, " reports ", worker.steps, " steps of ", worker.parameters,
          " parameters, worker ", first.rank, " ", first.steps, " of ", first.parameters));
    }
    if (facts.ranks_agree && worker.parameters_sha256 != first.parameters_sha256) {
      return absl::DataLossError(absl::StrCat(
          "the workers end with different parameters: worker ", first.rank, " with sha256 ",
          first.parameters_sha256, ", worker ", worker.rank, " with ", worker.parameters_sha256,
          ". Do not use this run; workers of one job need equal machines and libraries"));
    }
    up += static_cast<double>(worker.bytes_up);
    down += static_cast<double>(worker.bytes_down);
    exchanged += static_cast<double>(worker.exchanged_steps);
    if (worker.staleness.has_value()) {
      report.staleness =
          report.staleness.value_or(0) + *worker.staleness / static_cast<double>(workers.size());
    }
    if (!worker.train_loss.has_value()) {
      report.train_loss.reset();
    } else if (report.train_loss.has_value()) {
      *report.train_loss += *worker.train_loss / static_cast<double>(workers.size());
    }
    report.skipped += worker.skipped;
    report.samples_per_second += worker.samples_per_second;
    report.train_seconds = std::max(report.train_seconds, worker.wall_seconds);
    report.step_ms_p50 = std::max(report.step_ms_p50, worker.step_ms_p50);
    report.step_ms_p95 = std::max(report.step_ms_p95, worker.step_ms_p95);
    if (worker.wait_ms.has_value()) {
      report.wait_ms = std::max(report.wait_ms.value_or(0), *worker.wait_ms);
    }
    if (worker.test_accuracy.has_value()) report.test_accuracy = worker.test_accuracy;
    if (worker.test_loss.has_value()) report.test_loss = worker.test_loss;
    if (worker.best.has_value()) report.best = worker.best;
    if (worker.judged_by_loss) report.judged_by_loss = true;
  }
  if (exchanged > 0 && report.rounds > 0) {
    const double steps =
        exchanged * static_cast<double>(report.steps) / static_cast<double>(report.rounds);
    report.bytes_up = up / steps;
    report.bytes_down = down / steps;
  }
  const double dense = kFp32Bytes * static_cast<double>(report.parameters);
  if (up > 0) report.ratio_up = dense / report.bytes_up;
  if (down > 0) report.ratio_down = dense / report.bytes_down;
  return report;
}

std::string ReportJson(const RunReport& report) {
  Json json = FactsJson(report.facts, true);
  json["steps"] = report.steps;
  json["rounds"] = report.rounds;
  json["staleness"] = OrNull(report.staleness);
  json["parameters"] = report.parameters;
  json["test_accuracy"] = OrNull(report.test_accuracy);
  json["test_loss"] = OrNull(report.test_loss);
  json["train_loss"] = OrNull(report.train_loss);
  json["best"] = report.best.has_value() ? Json{{"step", report.best->step},
                                                {"test_accuracy", report.best->test_accuracy},
                                                {"test_loss", report.best->test_loss}}
                                         : Json();
  json["skipped_steps"] = report.skipped;
  json["train_seconds"] = report.train_seconds;
  json["samples_per_second"] = report.samples_per_second;
  json["bytes_up"] = report.bytes_up;
  json["bytes_down"] = report.bytes_down;
  json["ratio_up"] = report.ratio_up;
  json["ratio_down"] = report.ratio_down;
  json["ratio_up_fp16"] = report.ratio_up * kFp16Bytes / kFp32Bytes;
  json["ratio_down_fp16"] = report.ratio_down * kFp16Bytes / kFp32Bytes;
  json["step_ms"] = {{"p50", report.step_ms_p50}, {"p95", report.step_ms_p95}};
  json["wait_ms"] = OrNull(report.wait_ms);
  json["parameters_sha256"] = report.parameters_sha256;
  return Dump(json);
}

std::string FailureJson(const RunFacts& facts, absl::string_view failure) {
  Json json = FactsJson(facts, false);
  json["failure"] = std::string(failure);
  return Dump(json);
}

std::string ReportSummary(const RunReport& report) {
  const RunFacts& facts = report.facts;
  std::string text = absl::StrCat(
      facts.job_name, facts.dense ? " (dense)" : "", " finished in ",
      FormatElapsed(absl::Seconds(facts.wall_seconds)), ": ", report.steps, " steps",
      report.rounds == report.steps ? "" : absl::StrCat(" in ", report.rounds, " rounds"), ", ",
      facts.mode, ", ", facts.workers, " workers, ", facts.shards, " shards, seed ", facts.seed,
      facts.link_rate.empty() ? "" : absl::StrCat(", links of ", facts.link_rate), "\n");
  if (report.test_accuracy.has_value()) {
    absl::StrAppend(&text,
                    TestLine(report.judged_by_loss, *report.test_accuracy, report.test_loss));
  }
  if (report.best.has_value()) {
    absl::StrAppendFormat(
        &text, "  %-14s step %d: %s; %s/best.pt\n", "best", report.best->step,
        report.judged_by_loss
            ? absl::StrFormat("test loss %.4f", report.best->test_loss)
            : absl::StrFormat("test accuracy %.2f %%", report.best->test_accuracy * 100),
        facts.output);
  }
  if (report.parameters == 0) return text + "  the programs left no figures";
  absl::StrAppend(&text, TrafficLine("up", report.bytes_up, report.ratio_up),
                  TrafficLine("down", report.bytes_down, report.ratio_down));
  absl::StrAppendFormat(
      &text, "  %-14s %.1f ms p50, %.1f ms p95%s%s\n", "step", report.step_ms_p50,
      report.step_ms_p95,
      report.samples_per_second > 0 ? absl::StrFormat("; %.0f samples/s", report.samples_per_second)
                                    : "",
      report.wait_ms.has_value() ? absl::StrFormat("; waits %.1f ms for exchanges", *report.wait_ms)
                                 : "");
  if (report.staleness.has_value()) {
    absl::StrAppendFormat(&text, "  %-14s %.2f updates by others, on average\n", "staleness",
                          *report.staleness);
  }
  if (report.skipped > 0) {
    absl::StrAppendFormat(&text, "  %-14s in %d steps a gradient was not finite and was left out\n",
                          "skipped", report.skipped);
  }
  if (facts.survival.has_value() &&
      (!facts.survival->restarts.empty() || facts.survival->rollbacks > 0)) {
    absl::StrAppend(&text, SurvivalLine(*facts.survival));
  }
  absl::StrAppendFormat(&text, "  %-14s %d", "parameters", report.parameters);
  if (!report.parameters_sha256.empty()) {
    absl::StrAppend(&text, ", sha256 ", report.parameters_sha256.substr(0, 16), ", ",
                    facts.ranks_agree ? "equal on all workers" : "of worker 0");
  }
  return text;
}

}  // namespace sluice::cli
