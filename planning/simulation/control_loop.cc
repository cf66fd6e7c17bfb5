// SPDX-License-Identifier: Apache-2.0
#include "planning/simulation/control_loop.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "job/momentum.h"

namespace sluice::planning {
namespace {

std::vector<uint64_t> ElementsByShard(const protocol::Layout& layout) {
  std::vector<uint64_t> elements;
  for (const std::vector<protocol::Bundle>& bundles : layout.bundles) {
    elements.push_back(0);
    for (const protocol::Bundle& bundle : bundles) elements.back() += bundle.elements;
  }
  return elements;
}

// Returns shard 0's share, or 1 if it has no elements.
double FirstShare(const std::vector<uint64_t>& elements) {
  const uint64_t all = std::accumulate(elements.begin(), elements.end(), uint64_t{0});
  return elements[0] == 0 ? 1 : static_cast<double>(elements[0]) / static_cast<double>(all);
}

double RateOf(uint64_t bytes, Nanos busy) {
  return busy <= 0 ? 0 : static_cast<double>(bytes) / ToSeconds(busy);
}

// A probe's request, and its time one way.
constexpr uint64_t kProbeBytes = 64;

}  // namespace

absl::StatusOr<ControlLoop> ControlLoop::Create(const job::JobSpec& job,
                                                const protocol::TensorTable& table,
                                                const protocol::Layout& layout) {
  std::vector<uint64_t> elements = ElementsByShard(layout);
  absl::StatusOr<std::unique_ptr<server::PlanMaker>> maker = server::PlanMaker::Create(
      job.exchange.control, job.exchange.compression, table, job.workers, job::MomentumRangeOf(job),
      FirstShare(elements), /*lockstep=*/job.exchange.quorum == 0);
  if (!maker.ok()) return maker.status();
  return ControlLoop(*std::move(maker), job.workers, job.exchange.control.measures(),
                     std::move(elements));
}

ControlLoop::ControlLoop(std::unique_ptr<server::PlanMaker> maker, uint32_t ranks, bool measures,
                         std::vector<uint64_t> elements)
    : maker_(std::move(maker)), ranks_(ranks), measures_(measures), elements_(std::move(elements)) {
  if (measures) streams_.assign(elements_.size(), std::vector<Stream>(ranks));
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
  if (!measures_ || mail.frame_bytes == 0) return;
  const bool is_up = mail.request != nullptr;
  Stream& stream = streams_[mail.shard][mail.worker];
  StreamUse& use = is_up ? stream.up : stream.down;
  const Nanos begins = std::max(mail.sent, use.until);
  const Nanos latency = world.network->Latency(mail.worker, world.workers + mail.shard);
  use.bytes += mail.bytes;
  use.busy += std::max<Nanos>(world.now() - std::max(mail.sent + latency, use.until), 0);
  use.until = std::max(use.until, world.now());
  if (mail.shard == 0) ArrivedAtShard0(mail, begins, world);
}

// A real job's transfers are those of shard 0, scaled to all bytes.
void ControlLoop::ArrivedAtShard0(const Mail& mail, Nanos begins, const World& world) {
  const bool is_up = mail.request != nullptr;
  const uint64_t step = is_up ? mail.request->step : mail.answer->step;
  server::RankMeasurements* const of = world.record->Measured(step, mail.worker);
  if (of == nullptr) return;
  const auto bytes = static_cast<uint64_t>(static_cast<double>(mail.bytes) / FirstShare(elements_));
  const server::Transfer transfer = {.bytes = bytes, .seconds = ToSeconds(world.now() - begins)};
  (is_up ? of->up : of->down).push_back(transfer);
  if (!is_up) return;
  of->arrival_s = std::max(of->arrival_s, ToSeconds(world.now()));
  of->bytes_up += bytes;
}

std::vector<server::ShardStreams> ControlLoop::TakeStreams(const World& world) {
  std::vector<server::ShardStreams> shards;
  for (uint32_t shard = 0; shard < streams_.size(); ++shard) {
    server::ShardStreams& taken = shards.emplace_back();
    taken.elements = elements_[shard];
    for (uint32_t rank = 0; rank < ranks_; ++rank) {
      Stream& stream = streams_[shard][rank];
      const double latency_s = ToSeconds(world.network->Latency(rank, world.workers + shard));
      taken.ranks.push_back({.up_rate = RateOf(stream.up.bytes, stream.up.busy),
                             .up_latency_s = latency_s,
                             .down_rate = RateOf(stream.down.bytes, stream.down.busy),
                             .down_latency_s = latency_s});
      stream = {.up = {.until = stream.up.until}, .down = {.until = stream.down.until}};
    }
  }
  return shards;
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
  server::ApplySlowestStreams(server::SlowestStreams(TakeStreams(world)), &measured);
  const server::PlanMaker::Plan plan = maker_->Next(step + 1, measures_ ? &measured : nullptr);
  if (plan == nullptr) return;
  Note(plan);
  coding->Add(plan);
}

}  // namespace sluice::planning
