// SPDX-License-Identifier: Apache-2.0
// The report of a simulated job.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planning/simulation/simulation_run.h"

namespace sluice::planning {
namespace {

double ShareOf(Nanos busy, Nanos all) {
  return all == 0 ? 0 : static_cast<double>(busy) / static_cast<double>(all);
}

LinkLoad LoadOf(std::string name, uint32_t begin, uint32_t end, Nanos all,
                const std::function<LinkUse(uint32_t)>& use) {
  LinkLoad load{.name = std::move(name)};
  for (uint32_t i = begin; i < end; ++i) {
    const LinkUse one = use(i);
    load.bytes += one.bytes;
    load.mean += ShareOf(one.busy, all) / (end - begin);
    load.max = std::max(load.max, ShareOf(one.busy, all));
  }
  return load;
}

}  // namespace

Distribution DistributionOf(std::vector<double> values) {
  Distribution of;
  if (values.empty()) return of;
  std::sort(values.begin(), values.end());
  const auto quantile = [&](double share) {
    const auto last = static_cast<double>(values.size() - 1);
    return values[static_cast<size_t>(std::lround(share * last))];
  };
  of.count = values.size();
  of.mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  of.p50 = quantile(0.5);
  of.p90 = quantile(0.9);
  of.p99 = quantile(0.99);
  of.max = values.back();
  return of;
}

SimulationReport SimulationRun::Report() const {
  SimulationReport report;
  std::vector<double> steps;
  std::vector<double> waits;
  uint64_t exchanges = 0;
  Nanos ends = 0;
  for (const auto& [step, times] : record_.exchanges()) {
    StepTimes of{.step = step, .workers = static_cast<uint32_t>(times.size())};
    for (const ExchangeTimes& one : times) {
      const double took = ToSeconds(one.ends - one.begins);
      of.mean_s += took / static_cast<double>(times.size());
      of.max_s = std::max(of.max_s, took);
      of.ends_s = std::max(of.ends_s, ToSeconds(one.ends));
      ends = std::max(ends, one.ends);
      if (step <= spec_.warmup) continue;
      steps.push_back(took);
      waits.push_back(took - ToSeconds(one.computes));
    }
    exchanges += times.size();
    report.steps.push_back(of);
  }
  report.seconds = ToSeconds(ends);
  report.events = queue_.taken();
  report.step_s = DistributionOf(std::move(steps));
  report.wait_s = DistributionOf(std::move(waits));
  report.outages = outages_;
  if (exchanges > 0) {
    report.bytes_up = static_cast<double>(record_.bytes_up()) / static_cast<double>(exchanges);
    report.bytes_down = static_cast<double>(record_.bytes_down()) / static_cast<double>(exchanges);
  }
  report.plans = control_.plans();
  AddLinks(&report);
  AddShards(&report);
  for (const compress::CodecSpec& spec : bytes_.Unpriced()) {
    report.notes.push_back(absl::StrCat("the sizes of ", ToString(spec),
                                        " are its largest ones, and its times are guesses"));
  }
  const double windows = static_cast<double>(spec_.job.server.window_bytes) * workers_;
  if (windows > static_cast<double>(spec_.job.server.max_memory)) {
    report.notes.push_back(absl::StrCat(
        "a real server refuses this job, because the credit windows of ", workers_,
        " workers exceed server.max_memory: lower server.window_bytes or raise the limit"));
  }
  return report;
}

void SimulationRun::AddLinks(SimulationReport* report) const {
  const Nanos all = queue_.now();
  const uint32_t machines = network_.machines();
  const auto up = [&](uint32_t machine) { return network_.up(machine); };
  const auto down = [&](uint32_t machine) { return network_.down(machine); };
  report->links.push_back(LoadOf("workers, up", 0, workers_, all, up));
  report->links.push_back(LoadOf("workers, down", 0, workers_, all, down));
  if (machines > workers_) {
    report->links.push_back(LoadOf("shards, up", workers_, machines, all, up));
    report->links.push_back(LoadOf("shards, down", workers_, machines, all, down));
  }
  if (network_.racks() == 1) return;
  report->links.push_back(LoadOf("racks, up", 0, network_.racks(), all,
                                 [&](uint32_t rack) { return network_.rack_up(rack); }));
  report->links.push_back(LoadOf("racks, down", 0, network_.racks(), all,
                                 [&](uint32_t rack) { return network_.rack_down(rack); }));
}

void SimulationRun::AddShards(SimulationReport* report) const {
  double waited = 0;
  for (const std::unique_ptr<SimulatedShard>& shard : shards_) {
    const double busy = ShareOf(shard->busy(), queue_.now());
    report->shard_busy_mean += busy / static_cast<double>(shards_.size());
    report->shard_busy_max = std::max(report->shard_busy_max, busy);
    const server::ShardStats stats = shard->core().Stats();
    report->contributions += stats.contributions;
    report->skipped_contributions += stats.skipped_contributions;
    report->bundles_closed += stats.bundles_closed;
    report->quorum_bundles += stats.quorum_bundles;
    report->late_contributions += stats.late_contributions;
    waited += stats.wait_seconds;
  }
  if (report->bundles_closed > 0) {
    report->bundle_wait_s = waited / static_cast<double>(report->bundles_closed);
  }
}

}  // namespace sluice::planning
