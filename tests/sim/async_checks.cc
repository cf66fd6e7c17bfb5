// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/async_checks.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compress/frame.h"
#include "tests/sim/async_bugs.h"
#include "tests/sim/planned_reference.h"

namespace sluice {

AsyncChecks::AsyncChecks(const SurvivalOptions& options, const protocol::TensorTable& table,
                         const protocol::Layout& layout, SurvivalReport* report)
    : options_(options), table_(table), layout_(layout), report_(*report), ranks_(options.ranks) {}

void AsyncChecks::ShardBegins(uint32_t process, const server::Shard& shard,
                              const protocol::StartShard& start, uint32_t restored_term) {
  const uint32_t number = shard.options().shard;
  Shard& begun = shards_[process] = {.number = number, .term = start.term, .mirror = {}};
  if (const auto plan = shard.plan()) {
    begun.plan = plan->id;
    terms_[start.term].plans[plan->id] = *plan;
  }
  if (start.restore_step == 0) {
    begun.mirror = AsyncMirror({.layout = &layout_,
                                .shard = number,
                                .ranks = options_.ranks,
                                .first_step = start.first_step,
                                .elastic = options_.elastic,
                                .rule = *options_.rule,
                                .staleness_aware_lr = options_.staleness_aware_lr});
    begun.mirror.SetHolders(start.incarnations);
    return;
  }
  const auto saved = saved_.find({restored_term, start.restore_step, number});
  if (saved == saved_.end()) {
    return Violate(absl::StrCat("shard ", number, " restores a checkpoint after step ",
                                start.restore_step, " that it has not taken"));
  }
  begun.mirror = saved->second;
  begun.mirror.Continue(start.first_step, start.incarnations);
}

std::vector<server::ShardEffect> AsyncChecks::Handle(uint32_t process, server::StreamId stream,
                                                     const protocol::ExchangeRequest& exchange,
                                                     absl::Time now, server::Shard* shard) {
  Shard& at = shards_.at(process);
  if (exchange.keys_only || !shard->FenceReason(exchange.sender).empty()) {
    return shard->Handle(stream, exchange, now);
  }
  const bool is_new = at.mirror.IsNew(exchange);
  if (auto answer = AnswerToLost(options_.bug, exchange, is_new)) {
    return {server::SendReply{stream, std::move(answer)}};
  }
  if (options_.control.measures()) {
    // Another term measures something else, so that it makes other plans.
    shard->Measured(MadeUpMeasurements(options_, table_, shard->open_step(), at.term));
  }
  std::vector<server::ShardEffect> effects =
      shard->Handle(stream, Forged(options_.bug, exchange, is_new), now);
  Violate(at.mirror.Took(exchange, static_cast<const server::AsyncShard&>(*shard)));
  const server::ShardStats stats = shard->Stats();
  if (stats.log_bytes > stats.log_limit) Violate("a log is over its limit");
  if (const auto plan = shard->plan()) at.plan = plan->id;
  if (options_.bug == SurvivalBug::kWaitingForgotten && exchange.step > 0) {
    std::erase_if(effects, [stream](const server::ShardEffect& effect) {
      const auto* reply = std::get_if<server::SendReply>(&effect);
      return reply != nullptr && reply->stream != stream;
    });
  }
  CheckEffects(at, effects);
  return effects;
}

void AsyncChecks::Ticked(uint32_t process, const server::Shard& shard,
                         const std::vector<server::ShardEffect>& effects) {
  Shard& at = shards_.at(process);
  for (uint32_t bundle = 0; bundle < shard.bundles(); ++bundle) {
    Violate(at.mirror.CheckState(bundle, static_cast<const server::AsyncShard&>(shard)));
  }
  CheckEffects(at, effects);
}

void AsyncChecks::CheckEffects(const Shard& shard,
                               const std::vector<server::ShardEffect>& effects) {
  Term& term = terms_[shard.term];
  for (const server::ShardEffect& effect : effects) {
    if (const auto* named = std::get_if<server::CheckpointNamed>(&effect)) {
      term.named.insert(named->step);
    } else if (const auto* taken = std::get_if<server::WriteSnapshot>(&effect)) {
      const uint64_t step = taken->snapshot->step;
      term.of_shards.insert({step, shard.number});
      Violate(shard.mirror.CheckClocks(step, taken->snapshot->clocks));
      saved_[{shard.term, step, shard.number}] = shard.mirror.AtCheckpoint();
    } else if (const auto* made = std::get_if<server::PlanMade>(&effect)) {
      if (shard.number != 0) Violate(absl::StrCat("shard ", shard.number, " makes a plan"));
      if (!term.plans.emplace(made->plan->id, *made->plan).second) {
        Violate(absl::StrCat("there are two plans ", made->plan->id));
      }
    }
  }
}

std::shared_ptr<const protocol::ExchangeReply> AsyncChecks::Answer(
    uint32_t process, uint32_t rank, std::shared_ptr<const protocol::ExchangeReply> answer) {
  if (answer->outcome == protocol::Outcome::kPending) ++report_.waits;
  if (answer->outcome != protocol::Outcome::kResult) return answer;
  if (answer->exact) ++report_.exact_results;
  report_.staleness_max = std::max(report_.staleness_max, answer->staleness);
  CheckResult(shards_.at(process), rank, *answer);
  return Forged(options_.bug, rank, std::move(answer));
}

void AsyncChecks::CheckResult(const Shard& shard, uint32_t rank,
                              const protocol::ExchangeReply& answer) {
  protocol::ExchangeReply told = answer;
  if (options_.bug == SurvivalBug::kStalenessForgotten) told.staleness = 0;
  Violate(shard.mirror.CheckResult(rank, told));
  // In ssp, a rank that waited gets the plan of the time when its request arrived.
  if (shard.number == 0 && answer.bundle == 0 && options_.mode == job::Mode::kAsync &&
      answer.record.plan_id != shard.plan) {
    Violate(absl::StrCat("a result says plan ", answer.record.plan_id, ", plan ", shard.plan,
                         " is made"));
  }
  if (options_.mode != job::Mode::kSsp || answer.step == 0) return;
  const uint64_t least = shard.mirror.LeastClock(answer.bundle);
  if (least + options_.staleness < answer.step) {
    Violate(absl::StrCat("too far ahead: rank ", rank, " may go past step ", answer.step,
                         ", and the slowest is at ", least));
  }
}

void AsyncChecks::WorkerBegins(const protocol::Sender& sender, bool is_newcomer,
                               const worker::Pipeline& pipeline) {
  Rank& rank = ranks_[sender.rank];
  // An earlier process of the rank may get its grant after the next one has begun.
  if (std::pair(sender.term, sender.generation) < std::pair(rank.term, rank.generation)) return;
  rank = {.term = sender.term,
          .generation = sender.generation,
          .incarnation = sender.incarnation,
          .catches_up = is_newcomer,
          .told_in = std::nullopt};
  for (const protocol::CompressionPlan& plan : pipeline.KnownPlans()) {
    rank.told_plan = plan.id;
    terms_[sender.term].plans.emplace(plan.id, plan);
  }
}

void AsyncChecks::Encodes(const worker::EncodeTask& task) {
  if (!task.published.empty()) Violate("a codec was given frames to observe");
}

void AsyncChecks::CheckSent(uint32_t shard, const protocol::ExchangeRequest& exchange,
                            const std::vector<std::vector<float>>& parameters) {
  if (exchange.keys_only) return;
  CheckBase(shard, exchange, parameters);
  CheckPlan(shard, exchange);
}

// Checks that the worker's parameters are those of the version that it claims.
void AsyncChecks::CheckBase(uint32_t shard, const protocol::ExchangeRequest& exchange,
                            const std::vector<std::vector<float>>& parameters) {
  const std::vector<uint32_t>& chunks = layout_.bundles[shard][exchange.bundle].chunks;
  if (exchange.base_version == 0 || exchange.step == 0 || chunks.empty()) return;
  std::vector<float> held;
  for (const uint32_t id : chunks) {
    const protocol::Chunk& chunk = layout_.chunks[id];
    const auto from = parameters[chunk.tensor].begin() + static_cast<std::ptrdiff_t>(chunk.offset);
    held.insert(held.end(), from, from + chunk.count);
  }
  for (const auto& [process, at] : shards_) {
    if (at.number != shard || at.term != exchange.sender.term) continue;
    Violate(
        at.mirror.CheckHeld(exchange.sender.rank, exchange.bundle, exchange.base_version, held));
  }
}

// Checks that a worker that has received a plan uses and names the plan from the next step on.
void AsyncChecks::CheckPlan(uint32_t shard, const protocol::ExchangeRequest& exchange) {
  const uint32_t rank = exchange.sender.rank;
  if (exchange.plan_id != ranks_[rank].coded_by) {
    return Violate(absl::StrCat("rank ", rank, " codes step ", exchange.step, " by plan ",
                                exchange.plan_id, " and was told of plan ", ranks_[rank].coded_by));
  }
  const bool changes_densities = options_.control.makes_plans() && !options_.control.measures();
  if (!changes_densities || exchange.skip || exchange.step == 0) return;
  const std::vector<compress::ChunkConfig> base =
      protocol::ChunkConfigs(options_.compression, table_, layout_, protocol::Direction::kUplink);
  const std::vector<compress::CodecSpec> specs =
      protocol::SpecsUnder(&terms_[exchange.sender.term].plans.at(exchange.plan_id),
                           protocol::Direction::kUplink, rank, base);
  const std::vector<uint32_t>& chunks = layout_.bundles[shard][exchange.bundle].chunks;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const bool dense = !protocol::IsSparse(specs[chunks[i]].codec);
    const compress::FormatId format =
        compress::ReadFrameHeader(protocol::FrameBytes(exchange.frames[i]))->format;
    if (dense != (format == compress::FormatId::kFp16 || format == compress::FormatId::kNone)) {
      Violate(absl::StrCat("rank ", rank, ": plan ", exchange.plan_id, " has ",
                           ToString(specs[chunks[i]]), ", and a frame has format ",
                           static_cast<int>(format)));
    }
  }
}

void AsyncChecks::Hears(uint32_t rank, uint32_t shard, const protocol::ExchangeReply& answer,
                        const worker::Pipeline& pipeline) {
  Rank& at = ranks_[rank];
  if (shard != 0 || answer.bundle != 0 || answer.outcome != protocol::Outcome::kResult ||
      answer.step != pipeline.step() || at.told_in == answer.step) {
    return;
  }
  at.told_plan = answer.record.plan_id;
  at.told_in = answer.step;
}

void AsyncChecks::StepDone(uint32_t rank, const worker::Pipeline& pipeline) {
  Rank& at = ranks_[rank];
  const bool lags = pipeline.Result().steps_behind > 0;
  if (lags && !at.catches_up) Violate("a worker is told to catch up");
  at.catches_up = lags;
  if (pipeline.step() > 0 && pipeline.BuffersDue(true)) Violate("buffers are due");
  for (const auto& [process, shard] : shards_) {
    if (shard.number == 0 || shard.term != at.term || shard.plan >= at.coded_by) continue;
    Violate(absl::StrCat("shard ", shard.number, " does not know plan ", at.coded_by));
  }
}

void AsyncChecks::Saves(uint32_t rank, uint64_t step) {
  Term& term = terms_[ranks_[rank].term];
  if (!term.named.contains(step)) {
    Violate(absl::StrCat("no shard named a checkpoint after ", step));
  }
  term.of_ranks.insert({step, rank});
}

void AsyncChecks::WorkerEnds(uint32_t rank, const SimEncoder& encoder) {
  ranks_[rank].owed = 0;
  for (uint32_t chunk = 0; chunk < layout_.chunks.size(); ++chunk) {
    for (const float x : encoder.Residual(chunk)) ranks_[rank].owed += double{x} * double{x};
  }
}

void AsyncChecks::ShardEnds(uint32_t process, const server::Shard& shard) {
  report_.updates += shards_.at(process).mirror.updates();
  report_.publications += shard.Stats().publications;
  report_.owed += shard.ResidualEnergy();
}

void AsyncChecks::CheckAtTheEnd() {
  for (const Rank& rank : ranks_) report_.owed += rank.owed;
  // An elastic job may end before the shards learn that a rank that they wait for is lost.
  if (terms_.empty() || options_.elastic) return;
  const Term& term = terms_.rbegin()->second;
  for (const uint64_t step : term.named) {
    if (step > options_.steps) continue;
    for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
      if (term.of_ranks.contains({step, rank})) continue;
      Violate(absl::StrCat("the checkpoint after step ", step, " lacks rank ", rank));
    }
    for (uint32_t shard = 0; shard < options_.shards; ++shard) {
      if (term.of_shards.contains({step, shard})) continue;
      Violate(absl::StrCat("the checkpoint after step ", step, " lacks shard ", shard));
    }
  }
}

}  // namespace sluice
