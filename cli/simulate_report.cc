// SPDX-License-Identifier: Apache-2.0
#include "cli/simulate_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/launch/quantity.h"
#include "cli/line_chart.h"

namespace sluice::cli {
namespace {

using nlohmann::ordered_json;
using planning::Distribution;
using planning::SimulationReport;

std::string Rate(double bps) {
  if (bps <= 0) return "no limit";
  return bps >= 1e9 ? absl::StrFormat("%g Gb/s", bps / 1e9) : absl::StrFormat("%g Mb/s", bps / 1e6);
}

std::string Milliseconds(const Distribution& of) {
  return absl::StrFormat("p50 %.1f, p90 %.1f, p99 %.1f, max %.1f, mean %.1f ms", 1e3 * of.p50,
                         1e3 * of.p90, 1e3 * of.p99, 1e3 * of.max, 1e3 * of.mean);
}

std::string Setting(const planning::SimulationSpec& spec) {
  const planning::Cluster& cluster = spec.cluster;
  const protocol::CompressionSpec& codecs = spec.job.exchange.compression;
  std::string text = absl::StrFormat(
      "%d workers and %d servers, mode %s, %s up, %s down, %d elements, seed %d\n",
      spec.job.workers, spec.job.shards, NameOf(spec.job.exchange.mode), ToString(codecs.uplink),
      ToString(codecs.downlink), protocol::TrainedElements(spec.table), spec.cluster.seed);
  absl::StrAppendFormat(&text, "links of %s, latency %.3g ms, loss %.3g%%%s",
                        Rate(cluster.worker.up_bps), 2e3 * cluster.worker.latency_s,
                        100 * cluster.worker.loss,
                        cluster.colocated ? ", servers on workers' machines" : "");
  if (cluster.racks > 1) {
    absl::StrAppendFormat(&text, "; %d racks with links of %s, latency %.3g ms", cluster.racks,
                          Rate(cluster.rack.up_bps), 2e3 * cluster.rack.latency_s);
  }
  return text + "\n";
}

std::string Control(const SimulationReport& report) {
  constexpr size_t kPlansListed = 12;
  std::string text;
  for (size_t i = 0; i < std::min(report.plans.size(), kPlansListed); ++i) {
    const planning::PlanEvent& plan = report.plans[i];
    absl::StrAppend(&text, "plan from step ", plan.step, ": ", plan.summary, " (", plan.reason,
                    ")\n");
  }
  if (report.plans.size() > kPlansListed) {
    absl::StrAppend(&text, report.plans.size() - kPlansListed, " more plans\n");
  }
  return text;
}

ordered_json DistributionJson(const Distribution& of) {
  return {{"count", of.count}, {"mean", of.mean}, {"p50", of.p50},
          {"p90", of.p90},     {"p99", of.p99},   {"max", of.max}};
}

}  // namespace

std::string FormatSimulation(const SimulatedJob& job) {
  const SimulationReport& report = job.report;
  std::string text = Setting(job.spec);
  absl::StrAppendFormat(&text, "exchange  %s\n", Milliseconds(report.step_s));
  absl::StrAppendFormat(&text, "waiting   %s\n", Milliseconds(report.wait_s));
  const double computes = report.step_s.mean - report.wait_s.mean;
  absl::StrAppendFormat(&text, "computing %.1f %% of the time\n",
                        report.step_s.mean > 0 ? 100 * computes / report.step_s.mean : 100.0);
  absl::StrAppendFormat(&text, "traffic   of a worker and exchange: %s up, %s down\n",
                        FormatBytes(report.bytes_up), FormatBytes(report.bytes_down));
  for (const planning::LinkLoad& link : report.links) {
    absl::StrAppendFormat(&text, "load      %-14s mean %4.1f %%, busiest %4.1f %%\n", link.name,
                          100 * link.mean, 100 * link.max);
  }
  absl::StrAppendFormat(&text, "load      %-14s mean %4.1f %%, busiest %4.1f %%\n", "processors",
                        100 * report.shard_busy_mean, 100 * report.shard_busy_max);
  absl::StrAppendFormat(&text, "bundles   wait %.1f ms from the first contribution to the last\n",
                        1e3 * report.bundle_wait_s);
  if (report.quorum_bundles > 0) {
    absl::StrAppendFormat(&text, "quorum    closed %d of %d bundles; %d contributions were late\n",
                          report.quorum_bundles, report.bundles_closed, report.late_contributions);
  }
  text += Control(report);
  if (job.goodput.has_value()) {
    absl::StrAppendFormat(&text, "failures  %d, goodput %.1f %%\n", report.outages,
                          100 * *job.goodput);
  }
  absl::StrAppendFormat(&text, "total     %.3f s of the job, %d events\n", report.seconds,
                        report.events);
  for (const std::string& note : report.notes) absl::StrAppend(&text, "note: ", note, "\n");
  return text;
}

std::string SimulationJson(const SimulatedJob& job) {
  const SimulationReport& report = job.report;
  ordered_json json = {
      {"workers", job.spec.job.workers},
      {"shards", job.spec.job.shards},
      {"mode", std::string(NameOf(job.spec.job.exchange.mode))},
      {"uplink", ToString(job.spec.job.exchange.compression.uplink)},
      {"downlink", ToString(job.spec.job.exchange.compression.downlink)},
      {"seed", job.spec.cluster.seed},
      {"seconds", report.seconds},
      {"events", report.events},
      {"step_s", DistributionJson(report.step_s)},
      {"wait_s", DistributionJson(report.wait_s)},
      {"bytes_up", report.bytes_up},
      {"bytes_down", report.bytes_down},
      {"shard_busy", {{"mean", report.shard_busy_mean}, {"max", report.shard_busy_max}}},
      {"bundle_wait_s", report.bundle_wait_s},
      {"contributions", report.contributions},
      {"bundles_closed", report.bundles_closed},
      {"quorum_bundles", report.quorum_bundles},
      {"late_contributions", report.late_contributions},
      {"outages", report.outages}};
  if (job.goodput.has_value()) json["goodput"] = *job.goodput;
  for (const planning::LinkLoad& link : report.links) {
    json["links"].push_back(
        {{"name", link.name}, {"bytes", link.bytes}, {"mean", link.mean}, {"max", link.max}});
  }
  for (const planning::StepTimes& step : report.steps) {
    json["steps"].push_back({{"step", step.step},
                             {"workers", step.workers},
                             {"mean_s", step.mean_s},
                             {"max_s", step.max_s},
                             {"ends_s", step.ends_s}});
  }
  for (const planning::PlanEvent& plan : report.plans) {
    json["plans"].push_back(
        {{"step", plan.step}, {"codecs", plan.summary}, {"reason", plan.reason}});
  }
  json["notes"] = report.notes;
  return json.dump(1) + "\n";
}

std::string StepsChart(const SimulationReport& report) {
  ChartLine mean{.name = "mean"};
  ChartLine max{.name = "slowest worker"};
  for (const planning::StepTimes& step : report.steps) {
    const auto x = static_cast<double>(step.step);
    mean.points.emplace_back(x, 1e3 * step.mean_s);
    max.points.emplace_back(x, 1e3 * step.max_s);
  }
  return LineChart("Time of each exchange", "exchange", "milliseconds", {mean, max});
}

std::string LoadsChart(const SimulationReport& report) {
  std::vector<ChartBar> bars;
  for (const planning::LinkLoad& link : report.links) {
    bars.push_back({.name = link.name, .mean = link.mean, .max = link.max});
  }
  bars.push_back(
      {.name = "shards' processors", .mean = report.shard_busy_mean, .max = report.shard_busy_max});
  return LoadChart("Load: mean (dark) and busiest", bars);
}

std::string FormatGoodput(const planning::GoodputSpec& spec, const planning::Goodput& goodput,
                          uint64_t seed) {
  return absl::StrFormat(
      "%d workers, %d failures in %.1f h, steps of %.3g s, seed %d\n"
      "goodput   plain data parallel %.1f %%, elastic %.1f %%, streaming local steps with a quorum "
      "%.1f %%\n",
      spec.workers, spec.outages.size(), spec.duration_s / 3600, spec.step_s, seed,
      100 * goodput.plain, 100 * goodput.elastic, 100 * goodput.quorate);
}

std::string GoodputJson(const planning::GoodputSpec& spec, const planning::Goodput& goodput,
                        uint64_t seed) {
  const ordered_json json = {{"workers", spec.workers},
                             {"outages", spec.outages.size()},
                             {"seconds", spec.duration_s},
                             {"step_s", spec.step_s},
                             {"seed", seed},
                             {"plain", goodput.plain},
                             {"elastic", goodput.elastic},
                             {"quorate", goodput.quorate}};
  return json.dump(1) + "\n";
}

}  // namespace sluice::cli
