// SPDX-License-Identifier: Apache-2.0
#include "cli/estimate.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "bench/measure/model_tables.h"
#include "bench/measure/table_file.h"
#include "cli/launch/quantity.h"
#include "compress/codec_spec.h"
#include "job/file/job_file.h"
#include "job/file/quantity_text.h"
#include "nlohmann/json.hpp"
#include "planning/estimate/job_scenario.h"

namespace sluice::cli {
namespace {

using planning::Choice;
using planning::MachineFigures;
using planning::Scenario;

constexpr int kUsageError = 2;
constexpr size_t kFiguresFileMax = 1 << 20;
constexpr double kPriceMax = 1e6;

absl::Status OfFlag(absl::string_view flag, const absl::Status& status) {
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", status.message()));
}

absl::Status SetRate(absl::string_view flag, const std::string& text, double* rate) {
  if (text.empty()) return absl::OkStatus();
  const absl::StatusOr<double> parsed = ParseBitRate(text);
  if (!parsed.ok()) return OfFlag(flag, parsed.status());
  *rate = *parsed;
  return absl::OkStatus();
}

absl::Status SetSpec(absl::string_view flag, const std::string& text, compress::CodecSpec* spec) {
  if (text.empty()) return absl::OkStatus();
  const absl::StatusOr<compress::CodecSpec> parsed = compress::ParseCodecSpec(text);
  if (!parsed.ok()) return OfFlag(flag, parsed.status());
  *spec = *parsed;
  return absl::OkStatus();
}

// Reads the flags of links into the scenario.
absl::Status SetLinks(const EstimateCommand& command, Scenario* scenario) {
  planning::LinkShape& link = scenario->link;
  struct RateFlag {
    absl::string_view flag;
    const std::string& text;
    double* rate;
  };
  for (const RateFlag& each :
       {RateFlag{"--link-rate", command.link_rate, &link.bits_per_second},
        RateFlag{"--up-rate", command.up_rate, &link.up_bits_per_second},
        RateFlag{"--site-rate", command.site_rate, &scenario->site_bits_per_second}}) {
    if (absl::Status status = SetRate(each.flag, each.text, each.rate); !status.ok()) return status;
  }
  const absl::StatusOr<double> latency = job::ParseSeconds(command.latency);
  if (!latency.ok()) return OfFlag("--latency", latency.status());
  link.latency_s = *latency;
  if (!command.burst.empty()) {
    const absl::StatusOr<uint64_t> burst = job::ParseBytes(command.burst);
    if (!burst.ok()) return OfFlag("--burst", burst.status());
    link.burst_bytes = static_cast<double>(*burst);
  }
  return absl::OkStatus();
}

// Returns the size of the model that the flags or the job name.
absl::StatusOr<planning::ModelSize> SizeOf(const EstimateCommand& command,
                                           const std::optional<job::JobSpec>& job) {
  if (command.parameters.has_value()) return planning::SizeOfParameters(*command.parameters);
  const uint32_t min_elements = job.has_value() ? job->exchange.compression.min_elements
                                                : protocol::CompressionSpec{}.min_elements;
  if (!command.table_path.empty()) {
    const absl::StatusOr<protocol::TensorTable> table = bench::ReadTensorTable(command.table_path);
    if (!table.ok()) return table.status();
    return planning::SizeOfTable(command.table_path, *table, min_elements);
  }
  const std::string name =
      command.model.empty() && job.has_value() ? job->model.name : command.model;
  if (name.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the size of the model is not known: give a job file, --model NAME (",
        absl::StrJoin(bench::ModelTableNames(), ", "), "), --table FILE or --parameters N"));
  }
  const absl::StatusOr<protocol::TensorTable> table = bench::ModelTable(name);
  if (table.ok()) return planning::SizeOfTable(name, *table, min_elements);
  if (!command.model.empty()) return OfFlag("--model", table.status());
  return absl::InvalidArgumentError(
      absl::StrCat("the number of parameters of the job's model ", name,
                   " is not known without LibTorch: give --parameters N, --table FILE or --model "
                   "NAME (",
                   absl::StrJoin(bench::ModelTableNames(), ", "), ")"));
}

absl::Status SetPlacement(const std::string& name, Scenario* scenario) {
  if (name.empty()) return absl::OkStatus();
  const auto placement = FindByName<planning::Placement>(name);
  if (placement.has_value()) {
    scenario->placement = *placement;
    return absl::OkStatus();
  }
  const std::vector<absl::string_view> names = AllNames<planning::Placement>();
  return absl::InvalidArgumentError(absl::StrCat("--placement: there is no placement '", name,
                                                 "'; known: ", absl::StrJoin(names, ", ")));
}

// Checks that the flags say what a job file would say.
absl::Status CheckWithoutJob(const EstimateCommand& command) {
  if (!command.sets.empty()) {
    return absl::InvalidArgumentError("--set changes a key of a job file: give the job file, too");
  }
  if (!command.workers.has_value()) {
    return absl::InvalidArgumentError(
        "the number of workers is not known: give --workers N or a job file");
  }
  if (command.spec.empty() && !command.down_spec.empty()) {
    return absl::InvalidArgumentError("--down-spec needs --spec, the codec of the other direction");
  }
  return absl::OkStatus();
}

// Returns the scenario of the job and of the flags, which override the job's keys.
absl::StatusOr<Scenario> ScenarioOf(const EstimateCommand& command,
                                    const std::optional<job::JobSpec>& job) {
  Scenario scenario;
  if (job.has_value()) {
    if (absl::Status status = SetFromJob(*job, &scenario); !status.ok()) return status;
  }
  if (!job.has_value()) {
    if (absl::Status status = CheckWithoutJob(command); !status.ok()) return status;
  }
  const absl::StatusOr<planning::ModelSize> size = SizeOf(command, job);
  if (!size.ok()) return size.status();
  scenario.model = *size;
  if (command.workers.has_value()) scenario.workers = *command.workers;
  if (!job.has_value()) scenario.shards = std::min(scenario.workers, planning::kShardsMax);
  if (command.shards.has_value()) scenario.shards = *command.shards;
  if (command.sites.has_value()) scenario.sites = *command.sites;
  scenario.threads = command.threads;
  if (command.relays) scenario.relays = true;
  if (absl::Status status = SetPlacement(command.placement, &scenario); !status.ok()) {
    return status;
  }
  if (absl::Status status = SetLinks(command, &scenario); !status.ok()) return status;
  scenario.compute_s = 1e-3 * command.compute_ms;
  if (command.overlap.has_value()) scenario.overlap = *command.overlap;
  const std::string& down = command.down_spec.empty() ? command.spec : command.down_spec;
  if (absl::Status status = SetSpec("--spec", command.spec, &scenario.up); !status.ok()) {
    return status;
  }
  if (absl::Status status = SetSpec("--down-spec", down, &scenario.down); !status.ok()) {
    return status;
  }
  if (absl::Status status = planning::CheckScenario(scenario); !status.ok()) return status;
  return scenario;
}

planning::SearchLimits LimitsOf(const EstimateCommand& command,
                                const std::optional<job::JobSpec>& job) {
  return {.codecs = command.spec.empty() && command.down_spec.empty(),
          .shards = !command.shards.has_value(),
          .placement = command.placement.empty(),
          .relays = !command.relays && !(job.has_value() && job->relays.enabled()),
          .local_steps = command.local_steps};
}

absl::Status AddColumn(std::string name, Scenario scenario, const MachineFigures& machine,
                       std::vector<NamedEstimate>* columns) {
  const absl::StatusOr<planning::Estimate> estimate = EstimateOf(scenario, machine);
  if (!estimate.ok()) return estimate.status();
  columns->push_back({std::move(name), {std::move(scenario), *estimate}});
  return absl::OkStatus();
}

// Adds the same scenario with dense gradients in every step.
absl::Status AddDense(std::string name, compress::CodecId codec, Scenario scenario,
                      const MachineFigures& machine, std::vector<NamedEstimate>* columns) {
  scenario.up = {.codec = codec};
  scenario.down = scenario.up;
  scenario.local = {};
  return AddColumn(std::move(name), std::move(scenario), machine, columns);
}

// --- Formatting ---

std::string Number(double value) { return absl::StrFormat("%.4g", value); }
std::string Megabytes(double bytes) { return absl::StrFormat("%.4g MB", bytes * 1e-6); }
std::string Rate(double bits_per_second) {
  return bits_per_second >= 1e9 ? absl::StrCat(Number(bits_per_second * 1e-9), " Gb/s")
                                : absl::StrCat(Number(bits_per_second * 1e-6), " Mb/s");
}
std::string Milliseconds(double seconds) { return absl::StrFormat("%.1f ms", seconds * 1e3); }

std::string LocalStepsText(const planning::LocalSteps& local) {
  if (local.steps == 1) return "-";
  return absl::StrCat(local.steps, local.fragments > 1 ? absl::StrCat("/", local.fragments) : "",
                      local.delay > 0 ? absl::StrCat(" delay ", local.delay) : "");
}

struct Row {
  absl::string_view label;
  std::string (*cell)(const Choice&);
};

constexpr double kStepsOfCost = 1000;

const Row kRows[] = {
    {"codec up", [](const Choice& c) { return ToString(c.scenario.up); }},
    {"codec down", [](const Choice& c) { return ToString(c.scenario.down); }},
    {"shards", [](const Choice& c) { return absl::StrCat(c.scenario.shards); }},
    {"placement", [](const Choice& c) { return std::string(NameOf(c.scenario.placement)); }},
    {"relays",
     [](const Choice& c) {
       return c.scenario.relays ? absl::StrCat(c.scenario.sites) : std::string("-");
     }},
    {"local steps", [](const Choice& c) { return LocalStepsText(c.scenario.local); }},
    {"step", [](const Choice& c) { return Milliseconds(c.estimate.time.step_s); }},
    {"efficiency",
     [](const Choice& c) {
       return c.scenario.compute_s > 0 ? absl::StrFormat("%.1f %%", 100 * c.estimate.efficiency)
                                       : std::string("-");
     }},
    {"exposed communication",
     [](const Choice& c) { return Milliseconds(c.estimate.time.exposed_s); }},
    {"one exchange", [](const Choice& c) { return Milliseconds(c.estimate.time.exchange_s); }},
    {"busiest", [](const Choice& c) { return std::string(NameOf(c.estimate.time.busiest)); }},
    {"up, an exchange", [](const Choice& c) { return Megabytes(c.estimate.traffic.up); }},
    {"down, an exchange", [](const Choice& c) { return Megabytes(c.estimate.traffic.down); }},
    {"egress, 1000 steps",
     [](const Choice& c) {
       return absl::StrCat(Number(kStepsOfCost * c.estimate.egress_per_step * 1e-9), " GB");
     }},
    {"memory of a shard, max",
     [](const Choice& c) { return Megabytes(c.estimate.memory.training()); }},
    {"cores of a shard",
     [](const Choice& c) { return absl::StrFormat("%.2f", c.estimate.shard_cores); }},
};

void AppendCells(absl::string_view label, const std::vector<std::string>& cells,
                 const std::vector<size_t>& widths, std::string* text) {
  absl::StrAppendFormat(text, "%-22s", label);
  for (size_t i = 0; i < cells.size(); ++i) {
    absl::StrAppendFormat(text, "  %*s", static_cast<int>(widths[i]), cells[i]);
  }
  absl::StrAppend(text, "\n");
}

double CostOf(const Choice& choice, double price) {
  return choice.estimate.egress_per_step * 1e-9 * price;
}

std::string Headline(const Scenario& scenario) {
  const planning::LinkShape& link = scenario.link;
  std::string text = absl::StrFormat("%s: %.4g million parameters, %d workers", scenario.model.name,
                                     scenario.model.elements * 1e-6, scenario.workers);
  if (scenario.sites > 0) {
    absl::StrAppend(&text, " in ", scenario.sites, " sites (", Rate(scenario.site_bits_per_second),
                    " inside)");
  }
  absl::StrAppend(&text, ", links of ", Rate(link.bits_per_second));
  if (link.up_rate() != link.bits_per_second) {
    absl::StrAppend(&text, " (up: ", Rate(link.up_rate()), ")");
  }
  return absl::StrCat(text, " and ", Number(link.latency_s * 1e3), " ms, ",
                      Number(scenario.compute_s * 1e3), " ms of computing\n");
}

nlohmann::ordered_json Json(const NamedEstimate& column, const std::optional<double>& price) {
  const Scenario& scenario = column.choice.scenario;
  const planning::Estimate& estimate = column.choice.estimate;
  nlohmann::ordered_json none;
  return {
      {"name", column.name},
      {"workers", scenario.workers},
      {"shards", scenario.shards},
      {"sites", scenario.sites},
      {"relays", scenario.relays},
      {"placement", std::string(NameOf(scenario.placement))},
      {"codec_up", ToString(scenario.up)},
      {"codec_down", ToString(scenario.down)},
      {"local_steps", scenario.local.steps},
      {"fragments", scenario.local.fragments},
      {"delay", scenario.local.delay},
      {"step_ms", 1e3 * estimate.time.step_s},
      {"exchange_ms", 1e3 * estimate.time.exchange_s},
      {"exposed_ms", 1e3 * estimate.time.exposed_s},
      {"compute_ms", 1e3 * scenario.compute_s},
      {"efficiency", scenario.compute_s > 0 ? nlohmann::ordered_json(estimate.efficiency) : none},
      {"busiest", std::string(NameOf(estimate.time.busiest))},
      {"bytes_up", estimate.traffic.up},
      {"bytes_down", estimate.traffic.down},
      {"exchanges_per_step", estimate.exchanges_per_step},
      {"egress_bytes_per_step", estimate.egress_per_step},
      {"egress_cost_per_step",
       price.has_value() ? nlohmann::ordered_json(CostOf(column.choice, *price)) : none},
      {"shard_memory_bytes", estimate.memory.training()},
      {"shard_memory_checkpoint_bytes", estimate.memory.during_checkpoint()},
      {"shard_cores", estimate.shard_cores},
      {"shard_cpu_ms", 1e3 * estimate.time.shard_cpu_s},
      {"worker_cpu_ms", 1e3 * estimate.time.worker_cpu_s}};
}

}  // namespace

absl::StatusOr<MachineFigures> ReadMachineFigures(const std::string& path) {
  if (path.empty()) return planning::UsualFigures();
  std::ifstream file(path);
  if (!file) {
    return absl::NotFoundError(
        absl::StrCat("--figures: cannot read ", path, "; --calibrate FILE writes such a file"));
  }
  std::string text(kFiguresFileMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kFiguresFileMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("--figures: ", path, " is larger than ", kFiguresFileMax, " bytes"));
  }
  absl::StatusOr<MachineFigures> figures = planning::ParseMachineFigures(text);
  if (figures.ok()) return figures;
  return absl::InvalidArgumentError(
      absl::StrCat("--figures: ", path, ": ", figures.status().message()));
}

absl::StatusOr<EstimateReport> MakeEstimateReport(const EstimateCommand& command,
                                                  const MachineFigures& machine) {
  const std::optional<double>& price = command.egress_price;
  if (price.has_value() && !(*price >= 0 && *price <= kPriceMax)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--egress-price is ", *price, "; it must be from 0 to ", kPriceMax));
  }
  std::optional<job::JobSpec> job;
  if (!command.job_path.empty()) {
    absl::StatusOr<job::JobSpec> loaded =
        job::LoadJob({.path = command.job_path, .set = command.sets});
    if (!loaded.ok()) return loaded.status();
    job = *std::move(loaded);
  }
  const absl::StatusOr<Scenario> scenario = ScenarioOf(command, job);
  if (!scenario.ok()) return scenario.status();
  EstimateReport report;
  report.egress_price = price;
  std::vector<NamedEstimate>* const columns = &report.columns;
  absl::Status status;
  if (job.has_value() || !command.spec.empty()) {
    status = AddColumn(job.has_value() ? "this job" : "as given", *scenario, machine, columns);
    if (!status.ok()) return status;
  }
  status = AddDense("dense fp32", compress::CodecId::kNone, *scenario, machine, columns);
  if (!status.ok()) return status;
  status = AddDense("dense fp16", compress::CodecId::kFp16, *scenario, machine, columns);
  if (!status.ok()) return status;
  absl::StatusOr<planning::Recommendation> recommendation =
      Recommend(*scenario, machine, LimitsOf(command, job));
  if (!recommendation.ok()) return recommendation.status();
  report.recommendation = *std::move(recommendation);
  columns->push_back({"recommended", report.recommendation.choice});
  return report;
}

std::string FormatEstimateReport(const EstimateReport& report) {
  std::string text = absl::StrCat(Headline(report.columns.front().choice.scenario), "\n");
  std::vector<size_t> widths;
  std::vector<std::string> names;
  for (const NamedEstimate& column : report.columns) {
    names.push_back(column.name);
    size_t width = column.name.size();
    for (const Row& row : kRows) width = std::max(width, row.cell(column.choice).size());
    widths.push_back(width);
  }
  AppendCells("", names, widths, &text);
  for (const Row& row : kRows) {
    std::vector<std::string> cells;
    for (const NamedEstimate& column : report.columns) cells.push_back(row.cell(column.choice));
    AppendCells(row.label, cells, widths, &text);
  }
  if (report.egress_price.has_value()) {
    std::vector<std::string> cells;
    for (const NamedEstimate& column : report.columns) {
      cells.push_back(Number(kStepsOfCost * CostOf(column.choice, *report.egress_price)));
    }
    AppendCells("its price", cells, widths, &text);
  }
  absl::StrAppend(&text, "\nRecommended, of ", report.recommendation.considered, " choices:\n");
  size_t choice_width = 0;
  for (const planning::Reason& reason : report.recommendation.reasons) {
    choice_width = std::max(choice_width, reason.choice.size());
  }
  for (const planning::Reason& reason : report.recommendation.reasons) {
    absl::StrAppendFormat(&text, "  %-12s %-*s  %s\n", reason.what, static_cast<int>(choice_width),
                          reason.choice, reason.why);
  }
  return text;
}

std::string EstimateReportJson(const EstimateReport& report) {
  nlohmann::ordered_json estimates = nlohmann::ordered_json::array();
  for (const NamedEstimate& column : report.columns) {
    estimates.push_back(Json(column, report.egress_price));
  }
  nlohmann::ordered_json reasons = nlohmann::ordered_json::array();
  for (const planning::Reason& reason : report.recommendation.reasons) {
    reasons.push_back({{"what", reason.what}, {"choice", reason.choice}, {"why", reason.why}});
  }
  const nlohmann::ordered_json json = {{"schema", 1},
                                       {"estimates", estimates},
                                       {"recommended", report.columns.size() - 1},
                                       {"reasons", reasons},
                                       {"considered", report.recommendation.considered}};
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

int RunEstimate(const EstimateCommand& command, std::ostream& out, std::ostream& err) {
  const absl::StatusOr<MachineFigures> machine = ReadMachineFigures(command.figures_path);
  if (!machine.ok()) {
    err << "error: " << std::string(machine.status().message()) << "\n";
    return kUsageError;
  }
  const absl::StatusOr<EstimateReport> report = MakeEstimateReport(command, *machine);
  if (!report.ok()) {
    err << "error: " << std::string(report.status().message()) << "\n";
    return kUsageError;
  }
  out << (command.json ? EstimateReportJson(*report) : FormatEstimateReport(*report));
  return 0;
}

}  // namespace sluice::cli
