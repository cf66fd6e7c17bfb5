// SPDX-License-Identifier: Apache-2.0
#include "planning/simulation/simulation_run.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace sluice::planning {
namespace {

WorkerPlan PlanOf(const SimulationSpec& spec, const protocol::Layout& layout) {
  WorkerPlan plan;
  plan.compute = {.step_s = spec.compute_s, .overlap = spec.overlap};
  if (TraitsOf(spec.job.exchange.mode).local_steps) {
    const uint64_t between = spec.job.local.steps / layout.fragments;
    plan.compute.steps_meanwhile = spec.job.local.fragment_delay;
    plan.compute.steps_before = between - plan.compute.steps_meanwhile;
  }
  plan.stragglers = spec.cluster.stragglers;
  plan.seed = spec.cluster.seed;
  plan.steps = spec.steps;
  for (uint32_t fragment = 0; fragment < layout.fragments; ++fragment) {
    plan.order.push_back(ReadyOrder(spec.table, layout, fragment));
  }
  return plan;
}

// Returns the mean size of a bundle's frames.
double MeanFrameBytes(const BundleCosts& costs) {
  double bytes = 0;
  size_t bundles = 0;
  for (const std::vector<BundleCost>& of_shard : costs) {
    for (const BundleCost& bundle : of_shard) bytes += static_cast<double>(bundle.bytes);
    bundles += of_shard.size();
  }
  return bytes / static_cast<double>(bundles);
}

}  // namespace

SimulationRun::SimulationRun(const SimulationSpec& spec, const protocol::Layout& layout,
                             ControlLoop control)
    : spec_(spec),
      workers_(job::RankLimit(spec.job)),
      network_(spec.cluster, workers_, spec.job.shards, &queue_),
      bytes_(spec.job.exchange.compression, spec.table, layout, spec.costs),
      control_(std::move(control)),
      coding_(&bytes_, workers_, control_.First()),
      job_(spec.job, layout, MeanFrameBytes(coding_.Up(1, 0))),
      record_(workers_, spec.job.exchange.control.measures()),
      world_{.queue = &queue_,
             .network = &network_,
             .record = &record_,
             .job = &job_,
             .coding = &coding_,
             .costs = spec.costs,
             .workers = workers_},
      plan_(PlanOf(spec, layout)),
      incarnations_(workers_),
      leased_(workers_),
      down_(workers_),
      last_incarnation_(spec.job.workers) {}

absl::Status SimulationRun::Start() {
  for (uint32_t shard = 0; shard < spec_.job.shards; ++shard) {
    shards_.push_back(std::make_unique<SimulatedShard>(shard, &world_, &mail_));
    const absl::Status started = shards_.back()->Start();
    if (!started.ok()) return started;
  }
  for (const Outage& outage : spec_.cluster.outages) {
    queue_.Add(FromSeconds(outage.begin_s), {.kind = EventKind::kWorkerDown, .who = outage.worker});
    if (outage.end_s >= kForGood) continue;
    queue_.Add(FromSeconds(outage.end_s), {.kind = EventKind::kWorkerUp, .who = outage.worker});
  }
  for (uint32_t rank = 0; rank < workers_; ++rank) {
    ranks_.push_back(std::make_unique<SimulatedWorker>(rank, &plan_, &world_, &mail_));
  }
  for (uint32_t rank = 0; rank < spec_.job.workers; ++rank) {
    incarnations_[rank] = rank + 1;
    leased_[rank] = true;
    ranks_[rank]->Begin(rank + 1, generation_, 1, /*is_newcomer=*/false);
  }
  return absl::OkStatus();
}

absl::Status SimulationRun::Run() {
  const absl::Status started = Start();
  if (!started.ok()) return started;
  while (!queue_.empty() && record_.status().ok() && !finished_) {
    if (queue_.taken() == spec_.events_max) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "the simulation has not ended after ", spec_.events_max, " events, ",
          ToSeconds(queue_.now()), " s into the job, at step ", shards_[0]->core().open_step(),
          " of ", spec_.steps, ": simulate fewer steps, workers or shards, or raise the limit"));
    }
    Pass(queue_.Take());
  }
  if (!record_.status().ok()) return record_.status();
  return finished_ ? absl::OkStatus() : Stalled();
}

bool SimulationRun::Finished() const {
  bool any = false;
  for (const std::unique_ptr<SimulatedWorker>& rank : ranks_) {
    if (!rank->alive() || rank->paused()) continue;
    if (!rank->finished()) return false;
    any = true;
  }
  return any;
}

absl::Status SimulationRun::Stalled() const {
  const auto down = std::count(down_.begin(), down_.end(), true);
  return absl::FailedPreconditionError(absl::StrCat(
      "the job stops at step ", shards_[0]->core().open_step(), " after ", ToSeconds(queue_.now()),
      " s: ", down,
      " workers are down for good and the others wait for them: use a quorum or membership "
      "elastic, or let the workers come back"));
}

void SimulationRun::Pass(const Event& event) {
  switch (event.kind) {
    case EventKind::kSegmentAtLink:
    case EventKind::kLinkFree:
    case EventKind::kFlowReady:
      return network_.Handle(event);
    case EventKind::kDelivered:
      return Deliver(mail_.Take(event.what));
    case EventKind::kShardFree:
    case EventKind::kShardSends:
    case EventKind::kShardTick:
      return shards_[event.who]->Handle(event);
    case EventKind::kWorkerDown:
      return WorkerDown(event.who);
    case EventKind::kLeaseEnds:
      return LeaseEnds(event.who);
    case EventKind::kWorkerUp:
      return WorkerUp(event.who);
    case EventKind::kBundleReady:
    case EventKind::kComputed:
    case EventKind::kEncoded:
    case EventKind::kApplied:
    case EventKind::kRetry:
      return WorkerEvent(event);
  }
}

void SimulationRun::Deliver(Mail mail) {
  if (mail.life != ranks_[mail.worker]->life()) return;
  control_.Arrived(mail, world_);
  const uint32_t worker = mail.worker;
  const uint32_t shard = mail.shard;
  if (mail.request != nullptr) return shards_[shard]->Receive(std::move(mail));
  ranks_[worker]->Receive(std::move(mail));
}

void SimulationRun::WorkerEvent(const Event& event) {
  SimulatedWorker& worker = *ranks_[event.who];
  const bool applies =
      event.kind == EventKind::kApplied && event.life == worker.life() && !worker.paused();
  const uint64_t step = worker.step();
  worker.Handle(event);
  if (!applies) return;
  // The plan needs the measurements of all workers.
  if (control_.Finished(step)) MakePlan(step);
  finished_ = Finished();
}

void SimulationRun::MakePlan(uint64_t step) {
  Nanos server = 0;
  for (const std::unique_ptr<SimulatedShard>& shard : shards_) {
    server = std::max(server, shard->TakeWork());
  }
  uint64_t down = 0;
  for (const std::vector<BundleCost>& bundles : coding_.Down(step)) {
    for (const BundleCost& bundle : bundles) down += bundle.bytes;
  }
  control_.MakePlan(step, ToSeconds(server), down, world_, &coding_);
}

// With elastic membership, the worker's process is lost, and the coordinator takes its rank when
// the lease ends. Otherwise the job waits, or closes bundles with a quorum.
void SimulationRun::WorkerDown(uint32_t worker) {
  if (down_[worker] || ranks_[worker]->finished()) return;
  ++outages_;
  down_[worker] = true;
  if (spec_.job.exchange.elastic()) {
    ranks_[worker]->Die();
    queue_.Add(queue_.now() + absl::ToInt64Nanoseconds(spec_.job.server.lease_timeout),
               {.kind = EventKind::kLeaseEnds, .who = worker});
  } else {
    ranks_[worker]->Pause();
  }
  finished_ = Finished();
}

void SimulationRun::LeaseEnds(uint32_t worker) {
  if (!leased_[worker]) return;
  leased_[worker] = false;
  incarnations_[worker] = 0;
  SetMembers();
  if (!down_[worker]) WorkerUp(worker);
}

void SimulationRun::WorkerUp(uint32_t worker) {
  down_[worker] = false;
  if (!spec_.job.exchange.elastic()) {
    if (ranks_[worker]->paused()) ranks_[worker]->Resume();
    return;
  }
  // The rank of a worker that is back early is free when the lease ends.
  if (ranks_[worker]->alive() || leased_[worker]) return;
  leased_[worker] = true;
  incarnations_[worker] = ++last_incarnation_;
  SetMembers();
  ranks_[worker]->Begin(last_incarnation_, generation_, FirstStepOfNewcomer(),
                        /*is_newcomer=*/true);
}

void SimulationRun::SetMembers() {
  ++generation_;
  for (const std::unique_ptr<SimulatedShard>& shard : shards_) {
    shard->SetMembership(generation_, incarnations_);
  }
}

uint64_t SimulationRun::FirstStepOfNewcomer() const {
  uint64_t step = shards_[0]->core().open_step();
  for (const std::unique_ptr<SimulatedShard>& shard : shards_) {
    step = std::min(step, shard->core().open_step());
  }
  return std::max<uint64_t>(step, 1);
}

}  // namespace sluice::planning
