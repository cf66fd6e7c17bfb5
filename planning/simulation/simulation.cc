// SPDX-License-Identifier: Apache-2.0
#include "planning/simulation/simulation.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planning/simulation/simulation_run.h"
#include "protocol/layout.h"

namespace sluice::planning {
namespace {

// Each bundle of each worker takes about a kilobyte of this process.
constexpr uint64_t kWorkerBundlesMax = 2'000'000;
constexpr double kYear = 365.25 * 86400;
constexpr double kBurstMax = 1e9;

absl::Status CheckLink(absl::string_view name, const LinkSpec& link) {
  const bool valid = link.up_bps >= 0 && link.down_bps >= 0 && link.latency_s >= 0 &&
                     link.latency_s < kYear && link.loss >= 0 && link.loss < 1 &&
                     link.burst_bytes >= 0 && link.burst_bytes <= kBurstMax;
  if (valid) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the link of ", name, " has rates of ", link.up_bps, " and ", link.down_bps,
      " bit/s, a latency of ", link.latency_s, " s, a loss of ", link.loss, " and a burst of ",
      link.burst_bytes,
      " bytes: rates and latency must not be negative, the loss must be in [0, 1), and "
      "the burst in [0, 1e9]"));
}

absl::Status CheckTimes(const SimulationSpec& spec) {
  if (spec.compute_s < 0 || spec.compute_s > kYear || !std::isfinite(spec.compute_s)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a step computes for ", spec.compute_s, " s: give 0 to a year"));
  }
  if (!(spec.overlap >= 0 && spec.overlap <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the overlap is ", spec.overlap, ": give a share in [0, 1]"));
  }
  for (const double sigma : {spec.cluster.share_sigma, spec.cluster.stragglers.sigma}) {
    if (sigma >= 0 && sigma <= 3) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("a standard deviation of a logarithm is ", sigma, ": give 0 to 3"));
  }
  if (spec.steps == 0 || spec.warmup >= spec.steps) {
    return absl::InvalidArgumentError(absl::StrCat("of ", spec.steps, " steps, ", spec.warmup,
                                                   " are the warm-up: simulate more steps"));
  }
  for (const SlowWorker& slow : spec.cluster.stragglers.slow) {
    if (slow.factor > 0 && slow.factor < 1e6 && slow.worker < job::RankLimit(spec.job)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("straggler ", slow.worker, " with a factor of ", slow.factor, ": the job has ",
                     spec.job.workers, " workers, and factors are above 0 and below 1e6"));
  }
  for (const Outage& outage : spec.cluster.outages) {
    if (outage.begin_s >= 0 && outage.end_s > outage.begin_s &&
        outage.worker < job::RankLimit(spec.job)) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "worker ", outage.worker, " is down from ", outage.begin_s, " s to ", outage.end_s,
        " s: the job has ", spec.job.workers, " workers, and an outage ends after it begins"));
  }
  return absl::OkStatus();
}

absl::Status CheckJob(const job::JobSpec& job, const protocol::TensorTable& table) {
  if (protocol::TrainedTensors(table) != table.size()) {
    return absl::InvalidArgumentError(
        "a simulated job has no buffers: leave them out of the table");
  }
  if (job.relays.enabled()) {
    return absl::InvalidArgumentError(
        "relays cannot be simulated yet: remove `relays` from the job");
  }
  if (job.exchange.control.makes_plans() && !job.exchange.in_lockstep()) {
    return absl::InvalidArgumentError(absl::StrCat("control cannot be simulated in mode ",
                                                   NameOf(job.exchange.mode),
                                                   ": set control.policy=fixed"));
  }
  const job::LocalStepsSpec& local = job.local;
  const uint32_t fragments = job.exchange.compression.layout.fragments;
  const bool is_local = TraitsOf(job.exchange.mode).local_steps;
  if (is_local && local.steps / fragments <= local.fragment_delay) {
    return absl::InvalidArgumentError(
        absl::StrCat("with ", local.steps, " local steps and ", fragments,
                     " fragments, an exchange begins all ", local.steps / fragments,
                     " steps, so a fragment_delay of ", local.fragment_delay, " is too long"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SimulationReport> Simulate(const SimulationSpec& spec) {
  for (const absl::Status& status :
       {CheckLink("a worker", spec.cluster.worker), CheckLink("a shard", spec.cluster.shard),
        CheckLink("a rack", spec.cluster.rack), CheckTimes(spec), CheckJob(spec.job, spec.table)}) {
    if (!status.ok()) return status;
  }
  const absl::StatusOr<protocol::Layout> layout =
      protocol::BuildLayout(spec.table, spec.job.shards, spec.job.exchange.compression.layout,
                            protocol::WholeRows(spec.job.exchange.compression, spec.table));
  if (!layout.ok()) return layout.status();
  uint64_t bundles = 0;
  for (const std::vector<protocol::Bundle>& of_shard : layout->bundles) bundles += of_shard.size();
  if (bundles * job::RankLimit(spec.job) > kWorkerBundlesMax) {
    return absl::ResourceExhaustedError(absl::StrCat(
        job::RankLimit(spec.job), " workers with ", bundles, " bundles are more than ",
        kWorkerBundlesMax, " together: simulate fewer workers, or raise compression.bundle_bytes"));
  }
  absl::StatusOr<ControlLoop> control = ControlLoop::Create(spec.job, spec.table, *layout);
  if (!control.ok()) return control.status();
  SimulationRun run(spec, *layout, *std::move(control));
  const absl::Status ran = run.Run();
  if (!ran.ok()) return ran;
  return run.Report();
}

}  // namespace sluice::planning
