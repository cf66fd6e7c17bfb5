// SPDX-License-Identifier: Apache-2.0
// The streams between a simulated job's workers and shards, with messages that are lost, repeated
// or delayed.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/survival_run.h"

namespace sluice {
namespace {

constexpr Micros kNoticedLate = 3'000;  // Until the shard notices a broken stream.

}  // namespace

void SurvivalRun::OpenLink(uint32_t index, uint32_t shard) {
  const ProcessId server = serving_[shard];
  links_.push_back({.rank = index,
                    .shard = shard,
                    .worker_life = processes_[WorkerProcess(index)].life,
                    .session = ranks_[index].session,
                    .server = server,
                    .server_life = processes_[server].life,
                    .known_incarnation = ranks_[index].known[shard],
                    .last_up = now_,
                    .last_down = now_});
  ranks_[index].links[shard] = links_.size();
}

// The worker notices the break at once, the shard later. Until then, messages in flight arrive,
// even after the first messages of the next stream.
void SurvivalRun::BreakLink(uint32_t index, uint32_t shard) {
  SimRank& rank = ranks_[index];
  const server::StreamId id = rank.links[shard];
  if (id == 0) return;
  rank.links[shard] = 0;
  const SimLink& link = links_[id - 1];
  if (processes_[link.server].life == link.server_life) {
    At(Delay({"close", index, shard}) + Below({"notice", index, shard}, kNoticedLate), link.server,
       [this, id, server = link.server] {
         links_[id - 1].closed = true;
         if (servers_[server].core != nullptr) servers_[server].core->StreamClosed(id);
       });
  }
  if (!Talks(rank)) return;
  const Micros pause = Below({"soon", index, shard}, 2) == 0
                           ? Delay({"redial", index, shard})
                           : Below({"redial", index, shard}, kRetry);
  InSession(index, pause, [this, index, shard] { Redial(index, shard); });
}

void SurvivalRun::Redial(uint32_t index, uint32_t shard) {
  if (ranks_[index].links[shard] != 0 || !Talks(ranks_[index])) return;
  if (!CanConnect(WorkerProcess(index), serving_[shard])) {
    return InSession(index, kRetry, [this, index, shard] { Redial(index, shard); });
  }
  OpenLink(index, shard);
  worker::Pipeline::Effects effects;
  ranks_[index].pipeline->StreamReset(shard, &effects);
  CarryOut(index, effects);
}

// Reconnects to each shard at the place that the coordinator names, unless that process has already
// answered.
void SurvivalRun::GoWhereShardsAre(uint32_t index, const protocol::JobState& state) {
  SimRank& rank = ranks_[index];
  for (const protocol::ShardPlace& place : state.shards) {
    if (place.server_incarnation <= rank.told[place.shard]) continue;
    rank.told[place.shard] = place.server_incarnation;
    if (place.server_incarnation > rank.known[place.shard]) BreakLink(index, place.shard);
  }
}

void SurvivalRun::Send(uint32_t index, uint32_t shard,
                       std::shared_ptr<const protocol::ExchangeRequest> exchange) {
  exchange = Planted(index, shard, std::move(exchange));
  if (exchange == nullptr) return;
  CheckSent(index, shard, *exchange);
  const server::StreamId id = ranks_[index].links[shard];
  if (id == 0) return;  // The pipeline repeats it when the link is open again.
  ranks_[index].requests[{exchange->step, shard, exchange->bundle}] = exchange;
  if (StrikesMessage(Fault::kLostRequest, {"up", index, shard}, options_.lost_share))
    return BreakLink(index, shard);
  SimLink& link = links_[id - 1];
  const bool reply_is_lost =
      StrikesMessage(Fault::kLostReply, {"up", index, shard}, options_.lost_share);
  link.last_up = std::max(link.last_up, CutUntil(WorkerProcess(index), link.server));
  ArriveAt({"up", index, shard}, link.server, link.server_life, &link.last_up,
           [this, id, exchange, reply_is_lost] { Deliver(id, exchange, reply_is_lost); });
  if (!StrikesMessage(Fault::kRepeated, {"up", index, shard}, options_.repeat_share)) return;
  At(link.last_up - now_ + Delay({"up_again", index, shard}), link.server,
     [this, id, exchange] { Deliver(id, exchange, /*reply_is_lost=*/false); });
}

void SurvivalRun::Deliver(server::StreamId id,
                          const std::shared_ptr<const protocol::ExchangeRequest>& exchange,
                          bool reply_is_lost) {
  const SimLink& link = links_[id - 1];
  if (link.closed || link.server_life != processes_[link.server].life) return;
  Trace(4, link.rank, exchange->step, exchange->bundle);
  protocol::ExchangeRequest request = *exchange;
  request.sender.server_incarnation = link.known_incarnation;
  Handle(id, request);
  const SimRank& rank = ranks_[link.rank];
  if (!reply_is_lost || link.shard >= rank.links.size() || rank.links[link.shard] != id) return;
  BreakLink(link.rank, link.shard);
}

void SurvivalRun::Answer(server::StreamId id,
                         std::shared_ptr<const protocol::ExchangeReply> answer) {
  SimLink& link = links_[id - 1];
  if (servers_[link.server].is_to_end) {
    return Violate(absl::StrCat("an instance of shard ", link.shard, " serves after its end"));
  }
  if (async_ != nullptr) {
    answer = async_->Answer(link.server, ranks_[link.rank].rank, std::move(answer));
  } else if (answer->outcome == protocol::Outcome::kResult) {
    CheckResult(link.shard, *answer);
  }
  if (answer->outcome == protocol::Outcome::kBusy) ++report_.busy;
  const uint64_t incarnation = servers_[link.server].incarnation;
  link.last_down = std::max(link.last_down, CutUntil(link.server, WorkerProcess(link.rank)));
  const auto arrives = [this, id, answer, incarnation] { ReceiveAnswer(id, *answer, incarnation); };
  ArriveAt({"down", link.rank, link.shard}, WorkerProcess(link.rank), link.worker_life,
           &link.last_down, arrives);
  if (!StrikesMessage(Fault::kRepeated, {"down", link.rank, link.shard}, options_.repeat_share)) {
    return;
  }
  if (processes_[WorkerProcess(link.rank)].life != link.worker_life) return;
  At(link.last_down - now_ + Delay({"down_again", link.rank, link.shard}), WorkerProcess(link.rank),
     arrives);
}

void SurvivalRun::ReceiveAnswer(server::StreamId id, const protocol::ExchangeReply& answer,
                                uint64_t incarnation) {
  const SimLink& link = links_[id - 1];
  const uint32_t index = link.rank;
  const uint32_t shard = link.shard;
  SimRank& rank = ranks_[index];
  if (rank.session != link.session || !Talks(rank) || rank.links[shard] != id) return;
  Trace(5, index, answer.step, answer.bundle);
  if (incarnation != 0 && incarnation < rank.known[shard]) {
    return Violate(
        absl::StrCat("rank ", index, " is answered by an older instance of shard ", shard));
  }
  const bool first = answer.outcome == protocol::Outcome::kResult &&
                     rank.planted.answered.insert({answer.step, shard, answer.bundle}).second;
  if (answer.outcome == protocol::Outcome::kResult && !first) {
    ApplyAgain(options_, layout_, shard, answer, &rank.parameters, &rank.momentum);
  }
  if (first && answer.step > 0 && answer.step == options_.crash_after_result_of &&
      shard + 1 == options_.shards && !std::exchange(crashed_after_result_, true)) {
    At(0, kNoProcess, [this, server = link.server] { KillAndRestart(server); });
  }
  worker::Pipeline::Effects effects;
  if (incarnation > rank.known[shard] && !HasBug(SurvivalBug::kReplacementNotNoticed)) {
    rank.pipeline->ShardReplaced(shard, &effects);
  }
  rank.known[shard] = std::max(rank.known[shard], incarnation);  // 0 if it has no number yet.
  if (shard == 0) CheckTold(index, answer);
  if (IsChecked(rank)) async_->Hears(rank.rank, shard, answer, *rank.pipeline);
  rank.pipeline->Answer(shard, answer, &effects);
  CarryOut(index, effects);
}

}  // namespace sluice
