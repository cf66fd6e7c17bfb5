// SPDX-License-Identifier: Apache-2.0
#include "planning/simulation/simulated_shard.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

namespace sluice::planning {
namespace {

// As kWorthAPass of server/shard/open_bundle.cc: a shard adds frames at once if their bytes are at
// least 1 / kWorthAPass of the bytes of the sum.
constexpr uint64_t kWorthAPass = 4;

}  // namespace

SimulatedShard::SimulatedShard(uint32_t shard, const World* world, MailRoom* mail)
    : shard_(shard), world_(*world), mail_(mail) {}

absl::Status SimulatedShard::Start() {
  server::ShardOptions options = world_.job->ForShard(shard_);
  closed_.resize(options.layout.bundles[shard_].size());
  absl::StatusOr<std::unique_ptr<server::Shard>> core = server::Shard::Create(std::move(options));
  if (!core.ok()) return core.status();
  core_ = *std::move(core);
  return absl::OkStatus();
}

void SimulatedShard::SetMembership(uint32_t generation, const std::vector<uint64_t>& incarnations) {
  const absl::Status set = core_->SetMembership(generation, incarnations);
  if (!set.ok()) return world_.record->Fail(set);
  ScheduleTick();
}

void SimulatedShard::Receive(Mail mail) {
  inbox_.push_back(std::move(mail));
  if (!works_) Work();
}

void SimulatedShard::Handle(const Event& event) {
  if (event.kind == EventKind::kShardSends) {
    mail_->Send(world_, std::move(outbox_.front()));
    outbox_.pop_front();
    return;
  }
  if (event.kind == EventKind::kShardFree) {
    works_ = false;
    if (!inbox_.empty()) Work();
    return;
  }
  tick_at_ = -1;
  // The ticker waits for the lock.
  if (works_) {
    tick_at_ = free_at_;
    return world_.queue->Add(free_at_, event);
  }
  Carry(core_->Tick(world_.Clock(world_.now())), 0);
}

void SimulatedShard::Work() {
  const Mail mail = std::move(inbox_.front());
  inbox_.pop_front();
  const protocol::ExchangeRequest& request = *mail.request;
  Nanos cost = world_.MessageTime(mail.bytes);
  if (!request.skip && AddsAtOnce(request.step, request.bundle)) {
    const BundleCosts& up = world_.coding->Up(request.step, mail.worker);
    cost += static_cast<Nanos>(up[shard_][request.bundle].add_ns);
  }
  const server::StreamId stream = 1 + uint64_t{mail.life} * world_.workers + mail.worker;
  Carry(core_->Handle(stream, request, world_.Clock(world_.now())), cost);
}

bool SimulatedShard::AddsAtOnce(uint64_t step, uint32_t bundle) const {
  if (step == 0) return false;
  const BundleCost& up = world_.coding->Up(step, 0)[shard_][bundle];
  const uint64_t sum = world_.coding->parameters()[shard_][bundle].bytes;
  return up.bytes * kWorthAPass >= sum;
}

Nanos SimulatedShard::ClosingTime(const std::vector<server::ShardEffect>& effects) {
  double nanos = 0;
  for (const server::ShardEffect& effect : effects) {
    const auto* const reply = std::get_if<server::SendReply>(&effect);
    if (reply == nullptr || reply->answer->outcome != protocol::Outcome::kResult) continue;
    const protocol::ExchangeReply& answer = *reply->answer;
    if (answer.results.empty() || answer.exact) continue;
    const uint64_t closed = answer.version;
    if (closed <= closed_[answer.bundle]) continue;
    closed_[answer.bundle] = closed;
    nanos += world_.coding->Down(answer.step)[shard_][answer.bundle].encode_ns;
    if (AddsAtOnce(answer.step, answer.bundle)) continue;
    for (const protocol::Included& included : answer.record.included) {
      if (included.skipped) continue;
      nanos += world_.coding->Up(answer.step, included.rank)[shard_][answer.bundle].add_ns;
    }
  }
  return static_cast<Nanos>(nanos);
}

void SimulatedShard::Carry(const std::vector<server::ShardEffect>& effects, Nanos cost) {
  const Nanos begins = std::max(world_.now(), free_at_);
  Nanos at = begins + cost + ClosingTime(effects);
  for (const server::ShardEffect& effect : effects) {
    if (const auto* const reply = std::get_if<server::SendReply>(&effect)) Reply(*reply, &at);
    if (const auto* const alarm = std::get_if<server::Alarm>(&effect)) {
      world_.record->Fail(absl::InternalError(absl::StrCat("shard ", shard_, ": ", alarm->text)));
    }
  }
  busy_ += at - begins;
  work_ += at - begins;
  free_at_ = at;
  if (at > world_.now() || works_) {
    works_ = true;
    world_.queue->Add(at, {.kind = EventKind::kShardFree, .who = shard_});
  }
  ScheduleTick();
}

void SimulatedShard::Size(const std::shared_ptr<const protocol::ExchangeReply>& answer) {
  if (sized_ == answer) return;
  sized_ = answer;
  sized_frame_bytes_ = 0;
  if (!answer->results.empty()) {
    const BundleCosts& costs =
        answer->exact ? world_.coding->parameters() : world_.coding->Down(answer->step);
    // A result of a job that does not wait has the frames of one or more publications.
    const uint64_t publications =
        std::max<uint64_t>(answer->results.front().size() / world_.job->frame().size(), 1);
    sized_frame_bytes_ = publications * costs[shard_][answer->bundle].bytes;
  }
  sized_bytes_ = MessageBytes(*answer, sized_frame_bytes_);
}

void SimulatedShard::Reply(const server::SendReply& reply, Nanos* at) {
  Size(reply.answer);
  Mail mail;
  mail.worker = static_cast<uint32_t>((reply.stream - 1) % world_.workers);
  mail.life = static_cast<uint32_t>((reply.stream - 1) / world_.workers);
  mail.shard = shard_;
  mail.frame_bytes = sized_frame_bytes_;
  mail.bytes = sized_bytes_;
  mail.answer = reply.answer;
  *at += world_.MessageTime(mail.bytes);
  mail.sent = *at;
  if (reply.answer->step > 0) world_.record->SentDown(mail.bytes);
  outbox_.push_back(std::move(mail));
  world_.queue->Add(*at, {.kind = EventKind::kShardSends, .who = shard_});
}

void SimulatedShard::ScheduleTick() {
  const absl::Time due = core_->tick_due();
  if (due == absl::InfiniteFuture()) return;
  const Nanos at = std::max(world_.now(), absl::ToInt64Nanoseconds(due - absl::UnixEpoch()));
  if (tick_at_ >= 0 && tick_at_ <= at) return;
  tick_at_ = at;
  world_.queue->Add(at, {.kind = EventKind::kShardTick, .who = shard_});
}

}  // namespace sluice::planning
