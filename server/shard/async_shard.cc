#include "server/shard/async_shard.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compress/codec_table.h"
#include "compress/frame.h"

namespace sluice::server {
absl::StatusOr<std::unique_ptr<Shard>> AsyncShard::Create(ShardOptions options) {
  if (!options.rule.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("mode ", NameOf(options.mode), " needs an update rule on the shards"));
  }
  if (options.replay) {
    return absl::InvalidArgumentError(absl::StrCat("a shard in mode ", NameOf(options.mode),
                                                   " cannot replay steps: roll the job back"));
  }
  absl::StatusOr<ShardLayout> plan = PlanShard(options);
  if (!plan.ok()) return plan.status();
  plan->reserved_bytes += plan->aggregators.size() * compress::kFrameHeaderSize +
                          plan->bundles.size() * options.incarnations.size() * sizeof(Place);
  const absl::Status room = CheckMemory(options, *plan);
  if (!room.ok()) return room;
  const std::shared_ptr<const protocol::ShardSnapshot> restore = std::move(options.restore);
  auto shard = std::unique_ptr<AsyncShard>(new AsyncShard(std::move(options), *std::move(plan)));
  const absl::Status plans = shard->plans_.Prepare(shard->plan_.bundles.size());
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
      downlink_(plan_.downlink,
                {.seed = options_.compression.seed, .sender = compress::Compressor::kShardSender}),
      plans_(&options_, plan_.downlink, &downlink_, &plan_.replica),
      next_plan_(options_.first_step),
      exact_(compress::MakeCodec({.codec = compress::CodecId::kNone})),
      states_(plan_.bundles.size()),
      reached_(options_.incarnations.size()),
      checkpoints_(&options_) {
  stats_.elements = plan_.trained;
  const uint64_t first = options_.parameters_agree ? options_.first_step : 0;
  for (size_t bundle = 0; bundle < states_.size(); ++bundle) {
    BundleState& state = states_[bundle];
    state.least = first;
    state.places.resize(options_.incarnations.size());
    for (Place& place : state.places) place.next = first;
    const BundleLayout& of = plan_.bundles[bundle];
    state.exact_bytes = of.counts.size() * compress::kFrameHeaderSize + sizeof(float) * of.elements;
    if (!of.buffers) stats_.log_limit += state.exact_bytes;
  }
}

absl::Status AsyncShard::SetMembership(uint32_t generation, std::vector<uint64_t> incarnations) {
  const absl::StatusOr<std::vector<uint32_t>> replaced =
      gate_.SetMembership(generation, std::move(incarnations));
  if (!replaced.ok()) return replaced.status();
  for (const uint32_t rank : *replaced) {
    reached_[rank] = 0;
    for (BundleState& state : states_) state.places[rank].waiting.reset();
  }
  return absl::OkStatus();
}

uint64_t AsyncShard::Updates(uint32_t bundle) const {
  return plan_.replica->updates(plan_.bundles[bundle].locals.front());
}

uint64_t AsyncShard::open_step() const {
  uint64_t open = states_.empty() ? options_.first_step : states_.front().least;
  for (const BundleState& state : states_) open = std::min(open, state.least);
  return open;
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
  if (exchange.keys_only &&
      exchange.step >= states_[exchange.bundle].places[exchange.sender.rank].next) {
    gate_.AskFor(stream, exchange, exchange.step, &out);
    return out;
  }
  plans_.Record(exchange, {});
  checkpoints_.Learn(exchange.checkpoint_step, open_step(), &out);
  uint64_t& reached = reached_[exchange.sender.rank];
  reached = std::max(reached, exchange.step);
  AnnounceCheckpoint(&out);
  if (exchange.step < states_[exchange.bundle].places[exchange.sender.rank].next) {
    ++stats_.repeats;
    AnswerRequest(stream, exchange, now, &out);
  } else {
    Close(stream, exchange, now, &out);
    WriteSnapshots(&out);
  }
  return out;
}

absl::Status AsyncShard::CheckRequest(const protocol::ExchangeRequest& exchange) const {
  if (exchange.bundle >= states_.size()) {
    return InvalidRequest(exchange,
                          absl::StrCat("shard ", options_.shard, " has ", states_.size(),
                                       " bundles; worker and shard cut the tensors differently"));
  }
  const BundleLayout& plan = plan_.bundles[exchange.bundle];
  const BundleState& state = states_[exchange.bundle];
  const uint64_t next = state.places[exchange.sender.rank].next;
  if (!exchange.keys_only && exchange.step > next) {
    return InvalidRequest(
        exchange, absl::StrCat("is ahead of step ", next, ", which this rank has not sent yet"));
  }
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
  if (exchange.step > 0 && !state.begun) {
    return InvalidRequest(exchange, "comes before the parameters, which rank 0 sends in step 0");
  }
  if (exchange.step > 0 && plan.buffers && !exchange.skip) {
    return InvalidRequest(exchange,
                          absl::StrCat("buffers are not exchanged in mode ", NameOf(options_.mode),
                                       ": every rank keeps its own"));
  }
  return CheckPayload(options_, plan, exchange, /*repeats=*/exchange.step < next);
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
  Place& place = states_[bundle].places[exchange.sender.rank];
  const BundleLayout& plan = plan_.bundles[bundle];
  gate_.Accept(exchange.sender.rank);
  ++stats_.contributions;
  ++stats_.bundles_closed;
  if (exchange.skip && !plan.buffers) ++stats_.skipped_contributions;
  stats_.bytes_in += protocol::TotalBytes(exchange.frames);
  if (!exchange.skip) stats_.dense_bytes_in += sizeof(float) * plan.elements;
  place.last = {.rank = exchange.sender.rank,
                .origin_step = exchange.step,
                .checksum = protocol::BundleChecksum(exchange.frames),
                .skipped = exchange.skip};
  place.n = exchange.skip ? 0 : 1;
  place.rate = 0;
  place.staleness = 0;
  if (exchange.step == 0) {
    if (!exchange.skip) Begin(exchange);
  } else if (!exchange.skip) {
    Update(exchange, &place, out);
  }
  if (place.n == 0 && !plan.buffers && exchange.step > 0) ++stats_.empty_bundles;
  MoveOn(bundle, &place, exchange.step);
  MakePlans(out);
  AnswerRequest(stream, exchange, now, out);
  AnswerWaiting(bundle, now, out);
}

// The parameters of rank 0 become the parameters of all ranks.
void AsyncShard::Begin(const protocol::ExchangeRequest& exchange) {
  BundleLayout& plan = plan_.bundles[exchange.bundle];
  BundleState& state = states_[exchange.bundle];
  state.begun = true;
  state.parameters = {
      .rank = 0, .origin_step = 0, .checksum = protocol::BundleChecksum(exchange.frames)};
  plan.version = 1;
  if (plan.buffers) {
    state.buffers = exchange.frames;
    return;
  }
  for (size_t i = 0; i < plan.counts.size(); ++i) {
    plan_.replica->SetFrom(plan.locals[i], protocol::FrameBytes(exchange.frames[i]));
  }
}

// Sums and checks the whole bundle first, because a partly applied update could not be undone.
void AsyncShard::Update(const protocol::ExchangeRequest& exchange, Place* place, Effects* out) {
  BundleLayout& plan = plan_.bundles[exchange.bundle];
  const protocol::StageSpan updating(options_.stages, protocol::Stage::kSum);
  const uint64_t version_now = Updates(exchange.bundle) + 1;
  const uint64_t base =
      exchange.base_version == 0 ? states_[exchange.bundle].oldest : exchange.base_version;
  sum_.assign(plan.elements, 0.0f);
  absl::Span<float> rest = absl::MakeSpan(sum_);
  absl::Status finite;
  for (size_t i = 0; i < plan.counts.size(); ++i) {
    const absl::Span<float> part = rest.first(plan.counts[i]);
    rest.remove_prefix(plan.counts[i]);
    const compress::SenderFrame frame = {exchange.sender.rank,
                                         protocol::FrameBytes(exchange.frames[i])};
    plan.aggregators[i]->Add({&frame, 1}, part);
    plan.aggregators[i]->Close(1, part);
    if (finite.ok()) finite = downlink_.Check(plan.locals[i], part);
  }
  if (!finite.ok()) {
    place->last.skipped = true;
    place->n = 0;
    ++stats_.overflowed_bundles;
    out->push_back(
        Notice{.text = absl::StrCat(PlaceOf(exchange), ": was left out (", finite.message(), ")"),
               .fields = {.event = "contribution_left_out",
                          .rank = exchange.sender.rank,
                          .step = exchange.step}});
    return;
  }
  place->staleness = version_now - base;
  place->rate = exchange.rate;
  if (options_.staleness_aware_lr) place->rate /= static_cast<float>(1 + place->staleness);
  ++stats_.staleness_counts[BucketOf(kStalenessBounds, static_cast<double>(place->staleness))];
  stats_.staleness_total += place->staleness;
  absl::Span<const float> gradient = sum_;
  for (size_t i = 0; i < plan.counts.size(); ++i) {
    plan_.replica->Update(plan.locals[i], place->rate, gradient.first(plan.counts[i]));
    gradient.remove_prefix(plan.counts[i]);
  }
  // Publishes when the number of unpublished updates reaches the number of ranks.
  if (Updates(exchange.bundle) + 1 - plan.version >= states_[exchange.bundle].places.size()) {
    PublishBundle(exchange.bundle, out);
  }
}

void AsyncShard::MoveOn(uint32_t bundle, Place* place, uint64_t step) {
  BundleState& state = states_[bundle];
  const bool was_least = place->next == state.least;
  place->next = StepAfter(options_, step);
  if (!was_least) return;
  state.least = place->next;
  for (const Place& other : state.places) state.least = std::min(state.least, other.next);
  // A rank past the first step has received the initial buffers.
  if (state.least > options_.first_step) state.buffers = {};
}

// Answers a contribution that has just closed. Repeats of older ones are recorded as skipped.
void AsyncShard::AnswerRequest(StreamId stream, const protocol::ExchangeRequest& exchange,
                               absl::Time now, Effects* out) {
  const Place& place = states_[exchange.bundle].places[exchange.sender.rank];
  std::unique_ptr<protocol::ExchangeReply> answer = AnswerTo(exchange);
  const uint32_t checksum = protocol::BundleChecksum(exchange);
  const bool last =
      exchange.step == place.last.origin_step && place.next > 0 &&
      (checksum == place.last.checksum || (exchange.keys_only && exchange.checksums.empty()));
  if (last) {
    answer->record.included = {place.last};
    answer->record.n = place.n;
    answer->record.rate = place.rate;
    answer->staleness = place.staleness;
  } else {
    answer->record.included = {{.rank = exchange.sender.rank,
                                .origin_step = exchange.step,
                                .checksum = checksum,
                                .skipped = true}};
  }
  Respond(stream, exchange, std::move(answer), now, out);
}

bool AsyncShard::MayAnswer(uint32_t bundle, uint64_t step) const {
  const BundleState& state = states_[bundle];
  return state.begun && (step == 0 || !bounded() || step < state.least + options_.staleness);
}

void AsyncShard::Respond(StreamId stream, const protocol::ExchangeRequest& exchange,
                         std::unique_ptr<protocol::ExchangeReply> answer, absl::Time now,
                         Effects* out) {
  if (MayAnswer(exchange.bundle, exchange.step)) {
    SendNewest(stream, std::move(answer), absl::ZeroDuration(), out);
    return;
  }
  Place& place = states_[exchange.bundle].places[exchange.sender.rank];
  if (place.waiting == nullptr) place.waits_since = now;
  place.waiting = std::move(answer);
  gate_.Answer(stream, exchange, protocol::Outcome::kPending, "", out);
}

void AsyncShard::AnswerWaiting(uint32_t bundle, absl::Time now, Effects* out) {
  BundleState& state = states_[bundle];
  for (uint32_t rank = 0; rank < state.places.size(); ++rank) {
    Place& place = state.places[rank];
    if (place.waiting == nullptr || !MayAnswer(bundle, place.waiting->step)) continue;
    std::unique_ptr<protocol::ExchangeReply> answer = std::move(place.waiting);
    // If the rank has no stream, it will ask again.
    if (gate_.stream(rank) == 0) continue;
    SendNewest(gate_.stream(rank), std::move(answer), now - place.waits_since, out);
  }
}

void AsyncShard::SendNewest(StreamId stream, std::unique_ptr<protocol::ExchangeReply> answer,
                            absl::Duration waited, Effects* out) {
  const BundleLayout& plan = plan_.bundles[answer->bundle];
  const bool has_newest = answer->base_version == plan.version;
  if (!plan.buffers && has_newest && Updates(answer->bundle) + 1 > plan.version) {
    PublishBundle(answer->bundle, out);
  }
  if (answer->step == 0) {
    // In step 0, the record contains rank 0's parameters, regardless of which rank asks.
    std::vector<protocol::Included>& included = answer->record.included;
    if (included.front().rank == 0) included.clear();
    included.insert(included.begin(), states_[answer->bundle].parameters);
    answer->record.n = 1;
  }
  Bring(answer.get());
  answer->record.result_checksum = protocol::BundleChecksum(answer->results);
  answer->checkpoint_step = checkpoints_.AnnouncedIn(answer->step);
  answer->open_step = open_step();
  stats_.bytes_out += protocol::TotalBytes(answer->results);
  if (!answer->results.empty()) stats_.dense_bytes_out += sizeof(float) * plan.elements;
  if (answer->exact) ++stats_.exact_results;
  const double seconds = absl::ToDoubleSeconds(waited);
  stats_.wait_seconds += seconds;
  ++stats_.wait_counts[BucketOf(kWaitBoundsSeconds, seconds)];
  out->push_back(
      SendReply{stream, std::shared_ptr<const protocol::ExchangeReply>(std::move(answer))});
}

void AsyncShard::Bring(protocol::ExchangeReply* answer) {
  const BundleLayout& plan = plan_.bundles[answer->bundle];
  const BundleState& state = states_[answer->bundle];
  answer->version = plan.version;
  if (plan.buffers) {
    if (answer->step > 0) {
      answer->version = answer->base_version;
      return;
    }
    answer->results = state.buffers;
    answer->exact = true;
    return;
  }
  const uint64_t base = answer->base_version;
  ++brought_in_;
  if (base == plan.version) return;
  const auto first = std::find_if(state.log.begin(), state.log.end(),
                                  [base](const Publication& p) { return p.from == base; });
  // The rank's version is unknown, or the log has evicted it. The log is never larger than the
  // parameters.
  if (base == 0 || first == state.log.end()) {
    answer->results = ExactFrames(answer->bundle);
    answer->exact = true;
    return;
  }
  answer->results.resize(plan.counts.size());
  brought_ += static_cast<uint64_t>(state.log.end() - first);
  for (auto published = first; published != state.log.end(); ++published) {
    for (size_t i = 0; i < plan.counts.size(); ++i) {
      answer->results[i] += published->frames[i];
    }
  }
}

std::vector<std::string> AsyncShard::ExactFrames(uint32_t bundle) const {
  std::vector<std::string> frames;
  for (const uint32_t local : plan_.bundles[bundle].locals) {
    std::vector<std::byte> frame;
    const absl::Status encoded = compress::EncodeFrame(
        *exact_, {.gradient = plan_.replica->published(local), .residual = {}}, &frame);
    Check(encoded.ok(), "what was published is finite");
    frames.emplace_back(reinterpret_cast<const char*>(frame.data()), frame.size());
  }
  return frames;
}

void AsyncShard::PublishBundle(uint32_t bundle, Effects* out) {
  BundleLayout& plan = plan_.bundles[bundle];
  BundleState& state = states_[bundle];
  const protocol::StageSpan encoding(options_.stages, protocol::Stage::kEncode);
  Publication publication;
  publication.from = plan.version;
  publication.to = Updates(bundle) + 1;
  const absl::Status encoded = downlink_.EncodeEach(
      plan.locals, publication.to, [&](size_t i) { return plan_.replica->Owed(plan.locals[i]); },
      &frames_);
  if (!encoded.ok()) {
    if (std::exchange(diverged_, true)) return;
    out->push_back(Diverged(
        options_, absl::StrCat("update ", publication.to - 1, " of bundle ", bundle), encoded));
    return;
  }
  for (size_t i = 0; i < plan.locals.size(); ++i) {
    downlink_.Observe(plan.locals[i], frames_[i]);
    plan_.replica->Publish(plan.locals[i], frames_[i]);
    publication.frames.emplace_back(reinterpret_cast<const char*>(frames_[i].data()),
                                    frames_[i].size());
  }
  publication.bytes = protocol::TotalBytes(publication.frames);
  plan.version = publication.to;
  state.log_bytes += publication.bytes;
  state.log.push_back(std::move(publication));
  while (state.log_bytes > state.exact_bytes) {
    state.log_bytes -= state.log.front().bytes;
    state.log.pop_front();
  }
  ++stats_.publications;
  state.published = true;
  const bool all = std::all_of(states_.begin(), states_.end(), [this](const BundleState& s) {
    return s.published || plan_.bundles[static_cast<size_t>(&s - states_.data())].buffers;
  });
  if (all) MoveThresholds();
}

// Moves the downlink's thresholds once all bundles have published, which corresponds to a step in
// mode sync.
void AsyncShard::MoveThresholds() {
  downlink_.EndStep(stats_.publications);
  for (BundleState& state : states_) state.published = false;
}

ShardStats AsyncShard::Stats() const {
  ShardStats stats = stats_;
  stats.open_step = open_step();
  stats.highest_closed_step = stats.open_step == 0 ? 0 : stats.open_step - 1;
  for (const BundleState& state : states_) {
    stats.log_bytes += state.log_bytes;
    stats.log_results += state.log.size();
    stats.held_bytes += protocol::TotalBytes(state.buffers);
  }
  return stats;
}

absl::Span<const float> AsyncShard::DownlinkResidual(uint32_t bundle, size_t position) const {
  if (plan_.bundles[bundle].buffers) return {};
  return plan_.replica->Owed(plan_.bundles[bundle].locals[position]);
}

}  // namespace sluice::server
