// SPDX-License-Identifier: Apache-2.0
#include "planning/simulation/control_loop.h"

#include <algorithm>
#include <utility>

#include "job/momentum.h"

namespace sluice::planning {
namespace {

double ShareOfShard0(const protocol::Layout& layout) {
  uint64_t of_shard = 0;
  uint64_t all = 0;
  for (const std::vector<protocol::Bundle>& bundles : layout.bundles) {
    for (const protocol::Bundle& bundle : bundles) all += bundle.elements;
  }
  for (const protocol::Bundle& bundle : layout.bundles[0]) of_shard += bundle.elements;
  return of_shard == 0 ? 1 : static_cast<double>(of_shard) / static_cast<double>(all);
}

// A probe's request, and its time one way.
constexpr uint64_t kProbeBytes = 64;

}  // namespace

absl::StatusOr<ControlLoop> ControlLoop::Create(const job::JobSpec& job,
                                                const protocol::TensorTable& table,
                                                const protocol::Layout& layout) {
  const double share = ShareOfShard0(layout);
  absl::StatusOr<std::unique_ptr<server::PlanMaker>> maker = server::PlanMaker::Create(
      job.exchange.control, job.exchange.compression, table, job.workers, job::MomentumRangeOf(job),
      share, /*lockstep=*/job.exchange.quorum == 0);
  if (!maker.ok()) return maker.status();
  return ControlLoop(*std::move(maker), job.workers, job.exchange.control.measures(), share);
}

server::PlanMaker::Plan ControlLoop::First() {
  if (maker_ == nullptr) return nullptr;
  server::PlanMaker::Plan first = maker_->First();
  if (first != nullptr) Note(first);
  return first;
}

void ControlLoop::Note(const server::PlanMaker::Plan& plan) {
  events_.push_back(
      {.step = plan->effective_step, .summary = protocol::Summary(*plan), .reason = plan->reason});
}

void ControlLoop::Arrived(const Mail& mail, const World& world) {
  if (!measures_ || mail.shard != 0 || mail.frame_bytes == 0) return;
  const bool is_up = mail.request != nullptr;
  const uint64_t step = is_up ? mail.request->step : mail.answer->step;
  server::RankMeasurements* const of = world.record->Measured(step, mail.worker);
  if (of == nullptr) return;
  Nanos& until = (is_up ? up_until_ : down_until_)[mail.worker];
  const Nanos begins = std::max(mail.sent, until);
  until = std::max(until, world.now());
  // A real job has one shard's measurements and scales them to all bytes.
  const auto bytes = static_cast<uint64_t>(static_cast<double>(mail.bytes) / share_);
  const server::Transfer transfer = {.bytes = bytes, .seconds = ToSeconds(world.now() - begins)};
  (is_up ? of->up : of->down).push_back(transfer);
  if (!is_up) return;
  of->arrival_s = std::max(of->arrival_s, ToSeconds(world.now()));
  of->bytes_up += bytes;
}

bool ControlLoop::Finished(uint64_t step) {
  if (maker_ == nullptr || step < step_) return false;
  if (step > step_) finished_ = 0;
  step_ = step;
  return ++finished_ == ranks_;
}

void ControlLoop::MakePlan(uint64_t step, double server_s, uint64_t bytes_down, const World& world,
                           Coding* coding) {
  server::StepMeasurements measured{.step = step,
                                    .ranks = world.record->TakeMeasured(step),
                                    .server_s = server_s,
                                    .bytes_down = bytes_down};
  double origin = 0;
  for (const server::RankMeasurements& rank : measured.ranks) {
    origin = origin == 0 ? rank.arrival_s : std::min(origin, rank.arrival_s);
  }
  for (uint32_t rank = 0; rank < measured.ranks.size(); ++rank) {
    server::RankMeasurements& of = measured.ranks[rank];
    of.arrival_s -= origin;
    const double probe_s = ToSeconds(world.network->Latency(rank, world.workers));
    of.up.push_back({.bytes = kProbeBytes, .seconds = probe_s});
    of.down.push_back({.bytes = kProbeBytes, .seconds = probe_s});
  }
  const server::PlanMaker::Plan plan = maker_->Next(step + 1, measures_ ? &measured : nullptr);
  if (plan == nullptr) return;
  Note(plan);
  coding->Add(plan);
}

}  // namespace sluice::planning
