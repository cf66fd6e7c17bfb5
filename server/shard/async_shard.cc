// SPDX-License-Identifier: Apache-2.0
#include "server/shard/async_shard.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/frame.h"

namespace sluice::server {

absl::StatusOr<std::unique_ptr<Shard>> AsyncShard::Create(ShardOptions options) {
  if (!options.rule.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("mode ", NameOf(options.exchange.mode),
                                                   " needs an update rule on the shards"));
  }
  if (options.replay) {
    return absl::InvalidArgumentError(absl::StrCat("a shard in mode ",
                                                   NameOf(options.exchange.mode),
                                                   " cannot replay steps: roll the job back"));
  }
  absl::StatusOr<ShardLayout> plan = PlanShard(options);
  if (!plan.ok()) return plan.status();
  const uint64_t bytes_of_rank = sizeof(uint64_t) + sizeof(Latest);  // Clock and RESULT.
  plan->reserved_bytes += plan->aggregators.size() * compress::kFrameHeaderSize +
                          plan->bundles.size() * options.incarnations.size() * bytes_of_rank;
  const absl::Status room = CheckMemory(options, *plan);
  if (!room.ok()) return room;
  const std::shared_ptr<const protocol::ShardSnapshot> restore = std::move(options.restore);
  auto shard = std::unique_ptr<AsyncShard>(new AsyncShard(std::move(options), *std::move(plan)));
  const absl::Status plans = shard->plans_.Prepare();
  if (!plans.ok()) return plans;
  if (restore != nullptr) {
    const absl::Status restored = shard->Restore(*restore);
    if (!restored.ok()) return CannotGoOn(shard->options_, *restore, restored);
  }
  shard->plans_.Begin(shard->open_step());
  return std::unique_ptr<Shard>(std::move(shard));
}

AsyncShard::AsyncShard(ShardOptions options, ShardLayout plan)
    : options_(std::move(options)),
      gate_(&options_, &stats_),
      plan_(std::move(plan)),
      threads_(options_.threads, options_.stages),
      publisher_(&options_, &plan_, &threads_),
      plans_(&options_, plan_.downlink, publisher_.downlink(), &plan_.replica),
      next_plan_(options_.first_step),
      clocks_(&options_, plan_.bundles.size()),
      latest_(plan_.bundles.size()),
      checkpoints_(&options_) {
  stats_.elements = plan_.trained;
  for (std::vector<Latest>& of_ranks : latest_) of_ranks.resize(options_.incarnations.size());
  if (options_.exchange.guard.on()) {
    std::vector<uint64_t> elements;
    for (const BundleLayout& bundle : plan_.bundles) {
      elements.push_back(bundle.buffers ? 0 : bundle.elements);
    }
    guard_.emplace(options_.exchange.guard, options_.exchange.compression.seed, elements,
                   options_.incarnations.size());
  }
}

absl::Status AsyncShard::SetMembership(uint32_t generation, std::vector<uint64_t> incarnations) {
  const absl::StatusOr<std::vector<uint32_t>> replaced =
      gate_.SetMembership(generation, std::move(incarnations));
  if (!replaced.ok()) return replaced.status();
  for (const uint32_t rank : *replaced) {
    clocks_.Replace(rank);
    for (std::vector<Latest>& of_ranks : latest_) of_ranks[rank].waiting.reset();
  }
  members_changed_ = options_.exchange.elastic();
  return absl::OkStatus();
}

std::vector<ShardEffect> AsyncShard::Tick(absl::Time now) {
  Effects out;
  if (!std::exchange(members_changed_, false) || gate_.ended()) return out;
  MakePlans(&out);
  for (uint32_t bundle = 0; bundle < bundles(); ++bundle) AnswerWaiting(bundle, now, &out);
  WriteSnapshots(&out);
  return out;
}

std::vector<ShardEffect> AsyncShard::Handle(StreamId stream, protocol::ExchangeRequest exchange,
                                            absl::Time now) {
  Effects out;
  if (!gate_.Pass(stream, exchange, &out)) return out;
  const absl::Status valid = CheckRequest(exchange);
  if (!valid.ok()) {
    gate_.Refuse(stream, exchange, valid, &out);
    return out;
  }
  const bool repeats = clocks_.IsRepeat(exchange.bundle, exchange.sender.rank, exchange.step);
  if (exchange.keys_only && !repeats) {
    gate_.AskFor(stream, exchange, exchange.step, &out);
    return out;
  }
  plans_.Record(exchange, {});
  checkpoints_.Learn(exchange.checkpoint_step, open_step(), &out);
  clocks_.Reach(exchange.sender.rank, exchange.step);
  AnnounceCheckpoint(&out);
  if (repeats) {
    ++stats_.repeats;
    AnswerRequest(stream, exchange, now, &out);
  } else {
    Close(stream, exchange, now, &out);
    WriteSnapshots(&out);
  }
  return out;
}

absl::Status AsyncShard::CheckRequest(const protocol::ExchangeRequest& exchange) const {
  if (exchange.bundle >= bundles()) {
    return InvalidRequest(exchange,
                          absl::StrCat("shard ", options_.shard, " has ", bundles(),
                                       " bundles; worker and shard cut the tensors differently"));
  }
  const BundleLayout& plan = plan_.bundles[exchange.bundle];
  const std::string why_not = clocks_.WhyNot(exchange.bundle, exchange.sender.rank, exchange.step);
  if (!exchange.keys_only && !why_not.empty()) return InvalidRequest(exchange, why_not);
  absl::Status valid = gate_.CheckStamps(exchange);
  if (!valid.ok()) return valid;
  valid = plans_.Check(exchange, {});
  if (!valid.ok()) return valid;
  if (exchange.base_version > plan.version) {
    return InvalidRequest(exchange, absl::StrCat("is based on version ", exchange.base_version,
                                                 "; the newest is ", plan.version));
  }
  valid = checkpoints_.Check(exchange, open_step());
  if (!valid.ok() || exchange.keys_only) return valid;
  if (exchange.step > 0 && !publisher_.begun(exchange.bundle)) {
    return InvalidRequest(exchange, "comes before the parameters, which rank 0 sends in step 0");
  }
  if (exchange.step > 0 && plan.buffers && !exchange.skip) {
    return InvalidRequest(
        exchange, absl::StrCat("buffers are not exchanged in mode ", NameOf(options_.exchange.mode),
                               ": every rank keeps its own"));
  }
  return CheckPayload(options_, plan, exchange,
                      clocks_.IsRepeat(exchange.bundle, exchange.sender.rank, exchange.step));
}

std::unique_ptr<protocol::ExchangeReply> AsyncShard::AnswerTo(
    const protocol::ExchangeRequest& exchange) const {
  auto answer = std::make_unique<protocol::ExchangeReply>();
  answer->outcome = protocol::Outcome::kResult;
  answer->step = exchange.step;
  answer->bundle = exchange.bundle;
  answer->base_version = exchange.base_version;
  answer->record.term = options_.term;
  answer->record.step = exchange.step;
  answer->record.bundle = exchange.bundle;
  answer->record.generation = gate_.generation();
  answer->record.plan_id = plans_.coded_by();
  answer->plan = plans_.AnnouncedIn(exchange.step, exchange.bundle, exchange.plan_id);
  return answer;
}

void AsyncShard::Close(StreamId stream, const protocol::ExchangeRequest& exchange, absl::Time now,
                       Effects* out) {
  const uint32_t bundle = exchange.bundle;
  Latest& latest = LatestOf(exchange);
  const BundleLayout& plan = plan_.bundles[bundle];
  gate_.Accept(exchange.sender.rank);
  ++stats_.contributions;
  ++stats_.bundles_closed;
  if (exchange.skip && !plan.buffers) ++stats_.skipped_contributions;
  stats_.bytes_in += protocol::TotalBytes(exchange.frames);
  if (!exchange.skip) stats_.dense_bytes_in += sizeof(float) * plan.elements;
  latest.included = {.rank = exchange.sender.rank,
                     .origin_step = exchange.step,
                     .checksum = protocol::BundleChecksum(exchange.frames),
                     .skipped = exchange.skip,
                     .weight = exchange.skip ? 1 : exchange.weight};
  latest.n = exchange.skip ? 0 : exchange.weight;
  latest.rate = 0;
  latest.staleness = 0;
  if (exchange.step == 0) {
    if (exchange.sender.rank == ParameterRank(options_)) publisher_.Begin(exchange);
  } else if (!exchange.skip) {
    Update(exchange, &latest, out);
  }
  if (latest.n == 0 && !plan.buffers && exchange.step > 0) ++stats_.empty_bundles;
  clocks_.Advance(bundle, exchange.sender.rank, exchange.step);
  // A rank past the first step has received the initial buffers.
  if (clocks_.least(bundle) > options_.first_step) publisher_.DropBuffers(bundle);
  MakePlans(out);
  AnswerRequest(stream, exchange, now, out);
  AnswerWaiting(bundle, now, out);
}

// Decodes the contribution. Fails with INVALID_ARGUMENT if the sum is not finite.
absl::Status AsyncShard::SumUp(const protocol::ExchangeRequest& exchange) {
  const BundleLayout& plan = plan_.bundles[exchange.bundle];
  const std::vector<size_t> begins = plan.Begins();
  sum_.assign(plan.elements, 0.0f);
  std::vector<absl::Status> finite(plan.counts.size());
  threads_.For(protocol::Stage::kSum)->For(plan.counts.size(), [&](size_t i, size_t /*lane*/) {
    const absl::Span<float> part = absl::MakeSpan(sum_).subspan(begins[i], plan.counts[i]);
    const compress::SenderFrame frame = {exchange.sender.rank,
                                         protocol::FrameBytes(exchange.frames[i])};
    plan.aggregators[i]->Add({&frame, 1}, part);
    plan.aggregators[i]->Close(exchange.weight, part);
    finite[i] = publisher_.downlink()->Check(plan.locals[i], part);
  });
  absl::Status all;
  for (const absl::Status& of_chunk : finite) all.Update(of_chunk);
  return all;
}

// Sums and checks the whole bundle first, because a partly applied update could not be undone.
void AsyncShard::Update(const protocol::ExchangeRequest& exchange, Latest* latest, Effects* out) {
  BundleLayout& plan = plan_.bundles[exchange.bundle];
  const protocol::StageSpan updating(options_.stages, protocol::Stage::kSum);
  const uint64_t version_now = publisher_.Updates(exchange.bundle) + 1;
  const absl::Status finite = SumUp(exchange);
  if (finite.ok() && !PassesGuard(exchange, out)) {
    latest->included.skipped = true;
    latest->n = 0;
    return;
  }
  if (!finite.ok()) {
    latest->included.skipped = true;
    latest->n = 0;
    ++stats_.overflowed_bundles;
    out->push_back(
        Notice{.text = absl::StrCat(PlaceOf(exchange), ": was left out (", finite.message(), ")"),
               .fields = {.event = "contribution_left_out",
                          .rank = exchange.sender.rank,
                          .step = exchange.step}});
    return;
  }
  latest->staleness = version_now - publisher_.BaseOf(exchange);
  latest->rate = exchange.rate;
  if (options_.exchange.staleness_aware_lr)
    latest->rate /= static_cast<float>(1 + latest->staleness);
  ++stats_.staleness_counts[BucketOf(kStalenessBounds, static_cast<double>(latest->staleness))];
  stats_.staleness_total += latest->staleness;
  const std::vector<size_t> begins = plan.Begins();
  threads_.For(protocol::Stage::kSum)->For(plan.counts.size(), [&](size_t i, size_t /*lane*/) {
    const absl::Span<const float> part =
        absl::MakeConstSpan(sum_).subspan(begins[i], plan.counts[i]);
    plan_.replica->Update(plan.locals[i], latest->rate, part);
  });
  // Publishes when the number of unpublished updates reaches the number of ranks.
  if (publisher_.Unpublished(exchange.bundle) >= clocks_.members(exchange.bundle)) {
    PublishBundle(exchange.bundle, out);
  }
}

// Scales the sum of an outlier. Returns false if the guard leaves the contribution out.
bool AsyncShard::PassesGuard(const protocol::ExchangeRequest& exchange, Effects* out) {
  if (!guard_.has_value()) return true;
  UpdateGuard::Verdict verdict =
      guard_->Judge(exchange.step, exchange.bundle, exchange.sender.rank, sum_);
  for (Notice& notice : verdict.notices) out->push_back(std::move(notice));
  if (verdict.factor != 1) {
    for (float& value : sum_) value *= verdict.factor;
  }
  return verdict.factor != 0;
}

// Answers a contribution that has just closed. Repeats of older ones are recorded as skipped.
void AsyncShard::AnswerRequest(StreamId stream, const protocol::ExchangeRequest& exchange,
                               absl::Time now, Effects* out) {
  const Latest& latest = LatestOf(exchange);
  std::unique_ptr<protocol::ExchangeReply> answer = AnswerTo(exchange);
  const uint32_t checksum = protocol::BundleChecksum(exchange);
  const bool last =
      exchange.step == latest.included.origin_step &&
      (checksum == latest.included.checksum || (exchange.keys_only && exchange.checksums.empty()));
  if (last) {
    answer->record.included = {latest.included};
    answer->record.n = latest.n;
    answer->record.rate = latest.rate;
    answer->staleness = latest.staleness;
  } else {
    answer->record.included = {{.rank = exchange.sender.rank,
                                .origin_step = exchange.step,
                                .checksum = checksum,
                                .skipped = true}};
  }
  Respond(stream, exchange, std::move(answer), now, out);
}

bool AsyncShard::MayAnswer(uint32_t bundle, uint64_t step) const {
  return publisher_.begun(bundle) && clocks_.IsWithinBound(bundle, step);
}

void AsyncShard::Respond(StreamId stream, const protocol::ExchangeRequest& exchange,
                         std::unique_ptr<protocol::ExchangeReply> answer, absl::Time now,
                         Effects* out) {
  if (MayAnswer(exchange.bundle, exchange.step)) {
    SendNewest(stream, std::move(answer), absl::ZeroDuration(), out);
    return;
  }
  Latest& latest = LatestOf(exchange);
  if (latest.waiting == nullptr) latest.waits_since = now;
  latest.waiting = std::move(answer);
  gate_.Answer(stream, exchange, protocol::Outcome::kPending, "", out);
}

void AsyncShard::AnswerWaiting(uint32_t bundle, absl::Time now, Effects* out) {
  for (uint32_t rank = 0; rank < latest_[bundle].size(); ++rank) {
    Latest& latest = latest_[bundle][rank];
    if (latest.waiting == nullptr || !MayAnswer(bundle, latest.waiting->step)) continue;
    std::unique_ptr<protocol::ExchangeReply> answer = std::move(latest.waiting);
    // If the rank has no stream, it will ask again.
    if (gate_.stream(rank) == 0) continue;
    SendNewest(gate_.stream(rank), std::move(answer), now - latest.waits_since, out);
  }
}

void AsyncShard::SendNewest(StreamId stream, std::unique_ptr<protocol::ExchangeReply> answer,
                            absl::Duration waited, Effects* out) {
  const BundleLayout& plan = plan_.bundles[answer->bundle];
  const bool has_newest = answer->base_version == plan.version;
  if (!plan.buffers && has_newest && publisher_.Unpublished(answer->bundle) > 0) {
    PublishBundle(answer->bundle, out);
  }
  if (answer->step == 0) {
    // In step 0, the record contains ParameterRank's parameters, regardless of which rank asks.
    std::vector<protocol::Included>& included = answer->record.included;
    const protocol::Included& parameters = publisher_.parameters(answer->bundle);
    if (included.front().rank == parameters.rank) included.clear();
    included.insert(included.begin(), parameters);
    answer->record.n = 1;
  }
  publisher_.Bring(answer.get());
  answer->record.result_checksum = protocol::BundleChecksum(answer->results);
  answer->checkpoint_step = checkpoints_.AnnouncedIn(answer->step);
  answer->open_step = open_step();
  const bool lists_members =
      options_.exchange.elastic() && options_.shard == 0 && answer->bundle == 0;
  if (lists_members) answer->members = PresentRanks();
  stats_.bytes_out += protocol::TotalBytes(answer->results);
  if (!answer->results.empty()) stats_.dense_bytes_out += sizeof(float) * plan.elements;
  if (answer->exact) ++stats_.exact_results;
  const double seconds = absl::ToDoubleSeconds(waited);
  stats_.wait_seconds += seconds;
  ++stats_.wait_counts[BucketOf(kWaitBoundsSeconds, seconds)];
  out->push_back(
      SendReply{stream, std::shared_ptr<const protocol::ExchangeReply>(std::move(answer))});
}

std::vector<uint32_t> AsyncShard::PresentRanks() const {
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < options_.incarnations.size(); ++rank) {
    if (gate_.present(rank)) ranks.push_back(rank);
  }
  return ranks;
}

void AsyncShard::PublishBundle(uint32_t bundle, Effects* out) {
  const absl::Status published = publisher_.Publish(bundle);
  if (published.ok() || std::exchange(diverged_, true)) return;
  out->push_back(
      Diverged(options_, absl::StrCat("update ", publisher_.Updates(bundle), " of bundle ", bundle),
               published));
}

ShardStats AsyncShard::Stats() const {
  ShardStats stats = stats_;
  stats.open_step = open_step();
  stats.highest_closed_step = stats.open_step == 0 ? 0 : stats.open_step - 1;
  publisher_.CountIn(&stats);
  if (guard_.has_value()) stats.agreement = guard_->figures();
  return stats;
}

absl::Span<const float> AsyncShard::DownlinkResidual(uint32_t bundle, size_t position) const {
  if (plan_.bundles[bundle].buffers) return {};
  return plan_.replica->Owed(plan_.bundles[bundle].locals[position]);
}

}  // namespace sluice::server
