// SPDX-License-Identifier: Apache-2.0
#include "cli/simulate.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <sstream>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "bench/measure/model_tables.h"
#include "bench/measure/table_file.h"
#include "cli/launch/quantity.h"
#include "cli/simulate_report.h"
#include "job/file/job_file.h"
#include "job/file/quantity_text.h"

namespace sluice::cli {
namespace {

constexpr int kFailed = 1;
constexpr int kUsageError = 2;
constexpr uintmax_t kTraceBytesMax = uintmax_t{1} << 28;
// Outages are drawn for so many times the duration of the job without outages.
constexpr double kDrawnFor = 20;

// The job of a simulation without a job file. Job files need a model, data and an optimizer.
constexpr absl::string_view kUsualJob =
    "name: simulation\nworkers: 8\nshards: 8\nmodel: {name: custom}\ndata: {format: custom}\n"
    "batch_size_per_worker: 1\nsteps: 1000000\noptimizer: {lr: 0.1}\n"
    "compression: {uplink: \"topk:1%+int4\", downlink: \"topk:3%+int4\"}\n";

absl::Status OfFlag(absl::string_view flag, const absl::Status& why) {
  return absl::Status(why.code(), absl::StrCat(flag, ": ", why.message()));
}

absl::StatusOr<double> Rate(absl::string_view flag, const std::string& text) {
  if (text.empty()) return 0;
  const absl::StatusOr<double> rate = ParseBitRate(text);
  return rate.ok() ? rate : OfFlag(flag, rate.status());
}

absl::StatusOr<double> Seconds(absl::string_view flag, const std::string& text) {
  if (text.empty()) return 0;
  absl::Duration duration;
  if (absl::ParseDuration(text, &duration) && duration >= absl::ZeroDuration() &&
      duration < absl::InfiniteDuration()) {
    return absl::ToDoubleSeconds(duration);
  }
  return absl::InvalidArgumentError(
      absl::StrCat(flag, ": \"", text, "\" is no duration such as 500us, 20ms or 1h30m"));
}

absl::StatusOr<job::JobSpec> Job(const SimulateCommand& command) {
  job::LoadJobOptions options{command.job_path, command.sets, command.dense};
  if (command.workers > 0) options.set.push_back(absl::StrCat("workers=", command.workers));
  if (command.servers > 0) options.set.push_back(absl::StrCat("shards=", command.servers));
  if (!command.job_path.empty()) return job::LoadJob(options);
  return job::LoadJobFromText(kUsualJob, "the simulated job", options);
}

absl::StatusOr<protocol::TensorTable> Table(const SimulateCommand& command,
                                            const job::JobSpec& job) {
  if (!command.table_path.empty()) {
    absl::StatusOr<protocol::TensorTable> table = bench::ReadTensorTable(command.table_path);
    return table.ok() ? std::move(table) : OfFlag("--table", table.status());
  }
  if (!command.model.empty()) {
    absl::StatusOr<protocol::TensorTable> table = bench::ModelTable(command.model);
    return table.ok() ? std::move(table) : OfFlag("--model", table.status());
  }
  if (absl::c_linear_search(bench::ModelTableNames(), job.model.name)) {
    return bench::ModelTable(job.model.name);
  }
  if (command.job_path.empty()) return bench::ModelTable("resnet50");
  return absl::InvalidArgumentError(absl::StrCat("the tensors of the job's model ", job.model.name,
                                                 " are not known here: pass --model or --table"));
}

absl::StatusOr<planning::SlowWorker> Straggler(const std::string& text) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  planning::SlowWorker slow;
  if (absl::SimpleAtoi(parts.first, &slow.worker) && absl::SimpleAtod(parts.second, &slow.factor)) {
    return slow;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--straggler: \"", text, "\" is not RANK:FACTOR, for example 3:2.5"));
}

absl::Status AddLinks(const SimulateCommand& command, planning::Cluster* cluster) {
  const absl::StatusOr<double> rate = Rate("--link-rate", command.link_rate);
  const absl::StatusOr<double> up = Rate("--up-rate", command.up_rate);
  const absl::StatusOr<double> rack = Rate("--rack-rate", command.rack_rate);
  const absl::StatusOr<double> latency = Seconds("--latency", command.latency);
  const absl::StatusOr<double> rack_latency = Seconds("--rack-latency", command.rack_latency);
  for (const absl::StatusOr<double>* value : {&rate, &up, &rack, &latency, &rack_latency}) {
    if (!value->ok()) return value->status();
  }
  // A path has two links of machines, and two of racks.
  cluster->shard = {
      .up_bps = *rate, .down_bps = *rate, .latency_s = *latency / 2, .loss = command.loss};
  if (!command.burst.empty()) {
    const absl::StatusOr<uint64_t> burst = job::ParseBytes(command.burst);
    if (!burst.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--burst: ", burst.status().message()));
    }
    cluster->shard.burst_bytes = static_cast<double>(*burst);
  }
  cluster->worker = cluster->shard;
  if (*up > 0) cluster->worker.up_bps = *up;
  cluster->colocated = command.colocated;
  cluster->racks = command.racks;
  cluster->rack = {.up_bps = *rack,
                   .down_bps = *rack,
                   .latency_s = *rack_latency / 2,
                   .loss = command.rack_loss};
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadTrace(const std::string& path) {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  if (error || !file) {
    return absl::NotFoundError(absl::StrCat("--failures: cannot read ", path));
  }
  if (size > kTraceBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("--failures: ", path, " has ", size, " bytes; the limit is ", kTraceBytesMax));
  }
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// `seconds` is the duration of the job without outages.
absl::StatusOr<std::vector<planning::Outage>> Outages(const SimulateCommand& command,
                                                      uint32_t workers, double seconds) {
  if (!command.failures_path.empty()) {
    const absl::StatusOr<std::string> trace = ReadTrace(command.failures_path);
    if (!trace.ok()) return trace.status();
    absl::StatusOr<std::vector<planning::Outage>> outages = planning::ParseOutages(*trace, workers);
    return outages.ok()
               ? std::move(outages)
               : OfFlag(absl::StrCat("--failures ", command.failures_path), outages.status());
  }
  const absl::StatusOr<double> mtbf = Seconds("--mtbf", command.mtbf);
  const absl::StatusOr<double> repair = Seconds("--repair", command.repair);
  if (!mtbf.ok()) return mtbf.status();
  if (!repair.ok()) return repair.status();
  return planning::DrawOutages({.mtbf_s = *mtbf, .repair_s = *repair}, workers, seconds,
                               command.seed);
}

absl::Status WriteText(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (file.flush()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot write ", path));
}

absl::Status WriteFiles(const SimulateCommand& command, const SimulatedJob& job) {
  absl::Status written;
  if (!command.report_path.empty()) written = WriteText(command.report_path, SimulationJson(job));
  if (!written.ok() || command.plot_folder.empty()) return written;
  std::error_code error;
  std::filesystem::create_directories(command.plot_folder, error);
  written = WriteText(command.plot_folder + "/steps.svg", StepsChart(job.report));
  if (written.ok()) written = WriteText(command.plot_folder + "/loads.svg", LoadsChart(job.report));
  return written;
}

int ReportError(const absl::Status& status, std::ostream& err) {
  err << "error: " << std::string(status.message()) << "\n";
  const bool usage = status.code() == absl::StatusCode::kInvalidArgument ||
                     status.code() == absl::StatusCode::kNotFound;
  return usage ? kUsageError : kFailed;
}

absl::StatusOr<planning::GoodputSpec> GoodputSpecOf(const SimulateCommand& command) {
  const absl::StatusOr<double> duration = Seconds("--duration", command.duration);
  const absl::StatusOr<double> restart = Seconds("--restart", command.restart);
  const absl::StatusOr<double> checkpoint = Seconds("--checkpoint-every", command.checkpoint_every);
  for (const absl::StatusOr<double>* value : {&duration, &restart, &checkpoint}) {
    if (!value->ok()) return value->status();
  }
  planning::GoodputSpec spec;
  if (command.workers > 0) spec.workers = command.workers;
  spec.step_s = command.compute_ms / 1e3;
  spec.duration_s = *duration;
  spec.restart_s = *restart;
  spec.checkpoint_s = *checkpoint;
  absl::StatusOr<std::vector<planning::Outage>> outages =
      Outages(command, spec.workers, spec.duration_s);
  if (!outages.ok()) return outages.status();
  spec.outages = *std::move(outages);
  return spec;
}

int CompareGoodput(const SimulateCommand& command, std::ostream& out, std::ostream& err) {
  const absl::StatusOr<planning::GoodputSpec> spec = GoodputSpecOf(command);
  if (!spec.ok()) return ReportError(spec.status(), err);
  const absl::StatusOr<planning::Goodput> goodput = planning::SimulateGoodput(*spec);
  if (!goodput.ok()) return ReportError(goodput.status(), err);
  out << FormatGoodput(*spec, *goodput, command.seed);
  if (command.report_path.empty()) return 0;
  const absl::Status written =
      WriteText(command.report_path, GoodputJson(*spec, *goodput, command.seed));
  return written.ok() ? 0 : ReportError(written, err);
}

}  // namespace

absl::StatusOr<planning::SimulationSpec> SimulationSpecOf(const SimulateCommand& command) {
  absl::StatusOr<job::JobSpec> job = Job(command);
  if (!job.ok()) return job.status();
  absl::StatusOr<protocol::TensorTable> table = Table(command, *job);
  if (!table.ok()) return table.status();
  planning::SimulationSpec spec;
  spec.job = *std::move(job);
  spec.table = *std::move(table);
  const absl::Status links = AddLinks(command, &spec.cluster);
  if (!links.ok()) return links;
  for (const std::string& text : command.stragglers) {
    const absl::StatusOr<planning::SlowWorker> slow = Straggler(text);
    if (!slow.ok()) return slow.status();
    spec.cluster.stragglers.slow.push_back(*slow);
  }
  spec.cluster.stragglers.sigma = command.jitter;
  spec.costs.codec_scale = command.codec_scale;
  spec.costs.message_us = command.message_us;
  spec.compute_s = command.compute_ms / 1e3;
  spec.overlap = command.overlap;
  spec.steps = command.steps;
  spec.warmup = std::min(command.warmup, command.steps - 1);
  spec.cluster.seed = command.seed;
  spec.cluster.share_sigma = command.unevenness;
  return spec;
}

int SimulateJob(const SimulateCommand& command, std::ostream& out, std::ostream& err) {
  if (command.goodput) return CompareGoodput(command, out, err);
  absl::StatusOr<planning::SimulationSpec> spec = SimulationSpecOf(command);
  if (!spec.ok()) return ReportError(spec.status(), err);
  absl::StatusOr<planning::SimulationReport> report = planning::Simulate(*spec);
  if (!report.ok()) return ReportError(report.status(), err);
  SimulatedJob job{.spec = *std::move(spec), .report = *std::move(report)};
  if (!command.failures_path.empty() || !command.mtbf.empty()) {
    const double alone = job.report.seconds;
    absl::StatusOr<std::vector<planning::Outage>> outages =
        Outages(command, job::RankLimit(job.spec.job), kDrawnFor * alone);
    if (!outages.ok()) return ReportError(outages.status(), err);
    job.spec.cluster.outages = *std::move(outages);
    report = planning::Simulate(job.spec);
    if (!report.ok()) return ReportError(report.status(), err);
    job.report = *std::move(report);
    job.goodput = alone / job.report.seconds;
  }
  out << FormatSimulation(job);
  const absl::Status written = WriteFiles(command, job);
  return written.ok() ? 0 : ReportError(written, err);
}

}  // namespace sluice::cli
