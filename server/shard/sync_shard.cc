#include "server/shard/sync_shard.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "compress/frame.h"

namespace sluice::server {
namespace {

constexpr uint64_t kNoStepLimit = uint64_t{1} << 40;  // Only the limit on bytes applies.

std::vector<bool> BuffersOf(absl::Span<const BundleLayout> bundles) {
  std::vector<bool> buffers;
  for (const BundleLayout& bundle : bundles) buffers.push_back(bundle.buffers);
  return buffers;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Shard>> SyncShard::Create(ShardOptions options) {
  absl::StatusOr<ShardLayout> plan = PlanShard(options);
  if (!plan.ok()) return plan.status();
  if (options.quorum > 0) {
    plan->reserved_bytes += sizeof(Admitted) * plan->bundles.size() * options.incarnations.size();
  }
  if (options.elastic) {
    plan->reserved_bytes += sizeof(uint64_t) * plan->bundles.size() * options.incarnations.size();
  }
  const absl::Status room = CheckMemory(options, *plan);
  if (!room.ok()) return room;
  if (options.replay_bytes > 0) {
    const uint64_t left = options.max_memory - plan->reserved_bytes - WindowBytes(options);
    options.log = {.bytes = std::min(options.replay_bytes, left), .steps = kNoStepLimit};
  }
  if (options.quorum > 0) {
    options.log.bytes = std::min(options.log.bytes,
                                 options.max_memory - plan->reserved_bytes - WindowBytes(options));
  }
  const std::shared_ptr<const protocol::ShardSnapshot> restore = std::move(options.restore);
  auto shard = std::unique_ptr<SyncShard>(new SyncShard(std::move(options), *std::move(plan)));
  const absl::Status plans = shard->plans_.Prepare(shard->bundles_.size());
  if (!plans.ok()) return plans;
  if (restore != nullptr) {
    const absl::Status restored = shard->Restore(*restore);
    if (!restored.ok()) return restored;
  }
  shard->plans_.Begin(shard->open_step_);
  return std::unique_ptr<Shard>(std::move(shard));
}

SyncShard::SyncShard(ShardOptions options, ShardLayout plan)
    : options_(std::move(options)),
      reserved_bytes_(plan.reserved_bytes),
      gate_(&options_, &stats_),
      bundles_(std::move(plan.bundles)),
      ranks_(options_.incarnations.size()),
      aggregators_(std::move(plan.aggregators)),
      downlink_(plan.downlink, {.seed = options_.compression.seed,
                                .sender = compress::Compressor::kShardSender,
                                .owes_lossless = true}),
      replica_(std::move(plan.replica)),
      plans_(&options_, std::move(plan.downlink), &downlink_, &replica_),
      log_(static_cast<uint32_t>(bundles_.size()), options_.first_step, options_.log),
      sums_(plan.elements),
      open_step_(options_.parameters_agree ? options_.first_step : 0),
      closed_(bundles_.size()),
      handed_(bundles_.size()),
      checkpoints_(&options_),
      closing_(&options_, BuffersOf(bundles_)) {
  stats_.elements = plan.trained;
  open_.bundles.resize(bundles_.size());
  next_.bundles.resize(bundles_.size());
  if (options_.quorum > 0) {
    admitted_.assign(bundles_.size(), std::vector<Admitted>(ranks_.size()));
  }
}

std::vector<ShardEffect> SyncShard::Handle(StreamId stream, protocol::ExchangeRequest exchange,
                                           absl::Time now) {
  Effects out;
  closing_.Advance(now);
  if (!gate_.Pass(stream, exchange, &out)) return out;
  RankState& rank = ranks_[exchange.sender.rank];
  furthest_step_ = std::max(furthest_step_, exchange.step);
  if (IsAhead(exchange)) {
    gate_.AskFor(stream, exchange, NeededFrom(exchange), &out);
    return out;
  }
  absl::Status valid = CheckAddress(exchange);
  if (valid.ok() && !exchange.keys_only) {
    valid = CheckPayload(options_, bundles_[exchange.bundle], exchange, HasArrived(exchange));
  }
  if (absl::IsAborted(valid)) {
    GiveUpReplay(stream, exchange, std::string(valid.message()), &out);
    return out;
  }
  if (!valid.ok()) {
    gate_.Refuse(stream, exchange, valid, &out);
    return out;
  }
  // Runs before any admission, because an admission may close the checkpoint's step.
  checkpoints_.Learn(exchange.checkpoint_step, open_step_, &out);
  plans_.Record(exchange, PositionOf(exchange));
  rank.reached = std::max(rank.reached, exchange.step);
  const uint64_t acked_step = exchange.acked_step;
  if (IsClosed(exchange.step, exchange.bundle)) {
    HandleClosed(stream, std::move(exchange), &out);
  } else if (exchange.keys_only) {
    HandleKeys(stream, exchange, &out);
  } else {
    Admit(stream, std::move(exchange), now, &out);
  }
  // Runs after the answer, because a request may acknowledge a step and ask for it again.
  if (acked_step > rank.acked) {
    rank.acked = acked_step;
    ForgetResults();
  }
  return out;
}

bool SyncShard::IsClosed(uint64_t step, uint32_t bundle) const {
  return step < open_step_ || (step == open_step_ && closed_[bundle]);
}

PlanSchedule::Position SyncShard::PositionOf(const protocol::ExchangeRequest& exchange) const {
  return {.open_step = open_step_, .is_closed = IsClosed(exchange.step, exchange.bundle)};
}

OpenBundle* SyncShard::FindOpen(uint64_t step, uint32_t bundle) const {
  return (step == open_step_ ? open_ : next_).bundles[bundle].get();
}

void SyncShard::Admit(StreamId stream, protocol::ExchangeRequest exchange, absl::Time now,
                      Effects* out) {
  const uint32_t rank = exchange.sender.rank;
  const uint32_t checksum = protocol::BundleChecksum(exchange.frames);
  const bool joins = !closing_.IsMember(exchange.bundle, rank, exchange.step);
  if (joins && !exchange.skip) {
    RefuseWork(stream, exchange, out);
    return;
  }
  OpenBundle* open = FindOpen(exchange.step, exchange.bundle);
  if (open != nullptr && open->arrived(rank)) {
    if (open->checksum(rank) != checksum && !IsStoodFor(exchange)) {
      RefuseOtherBytes(stream, exchange, open->checksum(rank), checksum, out);
      return;
    }
    ++stats_.repeats;
    gate_.Answer(stream, exchange, protocol::Outcome::kPending, "", out);
    if (!joins) return;
    BecomeMember(exchange.bundle, rank, exchange.step);
    CloseComplete(out);
    return;
  }
  if (OverMemory(exchange)) {
    AnswerBusy(stream, exchange, now, out);
    return;
  }
  open = FindOrOpen(exchange.step, exchange.bundle);
  if (joins) BecomeMember(exchange.bundle, rank, exchange.step);
  CountIn(exchange);
  if (options_.quorum > 0) admitted_[exchange.bundle][rank] = {exchange.step, checksum};
  const uint64_t bytes = protocol::TotalBytes(exchange.frames);
  stats_.held_bytes -= open->held_bytes();
  open->Admit(rank, checksum, exchange.rate, std::move(exchange.frames), now, exchange.weight);
  // Parameters are not summed. The next step waits, as an aggregator handles one step at a time.
  if (exchange.step == open_step_ && exchange.step > 0) open->SumPrefix();
  stats_.held_bytes += open->held_bytes();
  if (exchange.step == open_step_) closing_.NoteQuorum(exchange.bundle, *open);
  const bool due = exchange.step == open_step_ && IsDue(exchange.bundle);
  if (due) Close(exchange.bundle, out);
  if (due && !options_.forwards_sums) {
    AdvanceSteps(out);
  } else if (MayStayUnanswered(ranks_[rank], stream, bytes)) {
    ranks_[rank].unanswered += bytes;
    open->SetUnanswered(rank, bytes);
  } else {
    ranks_[rank].answered = stream;
    gate_.Answer(stream, exchange, protocol::Outcome::kPending, "", out);
  }
}

OpenBundle* SyncShard::FindOrOpen(uint64_t step, uint32_t bundle) {
  std::unique_ptr<OpenBundle>& open = (step == open_step_ ? open_ : next_).bundles[bundle];
  if (open == nullptr) {
    const BundleLayout& plan = bundles_[bundle];
    open =
        std::make_unique<OpenBundle>(plan.counts, plan.aggregators,
                                     static_cast<uint32_t>(ranks_.size()), options_.quorum, &sums_);
    closing_.AwaitMembers(bundle, step, open.get());
  }
  return open.get();
}

void SyncShard::CountIn(const protocol::ExchangeRequest& exchange) {
  const BundleLayout& plan = bundles_[exchange.bundle];
  ++stats_.contributions;
  if (exchange.skip && !plan.buffers) ++stats_.skipped_contributions;
  stats_.bytes_in += protocol::TotalBytes(exchange.frames);
  if (!exchange.skip) stats_.dense_bytes_in += sizeof(float) * plan.elements;
  gate_.Accept(exchange.sender.rank);
}

// Returns true if a contribution needs no PENDING. The first contribution on a stream is answered,
// so that its sender learns the process's identity. Contributions that may have to be resent are
// answered. Forwarded contributions are answered too: the parent job's results arrive only when the
// whole step closes, and the sender may need credit before.
bool SyncShard::MayStayUnanswered(const RankState& rank, StreamId stream, uint64_t bytes) const {
  return options_.unanswered_bytes > 0 && !options_.forwards_sums && rank.answered == stream &&
         !options_.replay && rank.unanswered + bytes <= options_.unanswered_bytes;
}

std::unique_ptr<OpenBundle> SyncShard::RemoveOpen(uint32_t bundle) {
  std::unique_ptr<OpenBundle> open = std::move(open_.bundles[bundle]);
  closing_.Forget(bundle, *open);
  stats_.held_bytes -= open->held_bytes();
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    ranks_[rank].unanswered -= open->unanswered(rank);
  }
  return open;
}

void SyncShard::Close(uint32_t bundle, Effects* out) {
  if (options_.forwards_sums) return ForwardSum(bundle, out);
  AnnounceCheckpoint(out);
  if (bundle == 0) plans_.Make(open_step_, out);
  const std::unique_ptr<OpenBundle> open = RemoveOpen(bundle);
  auto answer = std::make_shared<protocol::ExchangeReply>();
  answer->record.included = open->IncludedRanks(open_step_);
  answer->record.n = open->n();
  if (open_step_ == 0) {
    CloseWithParameters(bundle, open.get(), answer.get());
  } else if (open->n() > 0 && replica_.has_value() && !bundles_[bundle].buffers) {
    CloseWithUpdate(bundle, open.get(), answer.get(), out);
  } else if (open->n() > 0) {
    CloseWithMean(bundle, open.get(), answer.get(), out);
  }
  Conclude(bundle, *open, answer, out);
}

void SyncShard::Conclude(uint32_t bundle, const OpenBundle& open,
                         const std::shared_ptr<protocol::ExchangeReply>& answer, Effects* out) {
  answer->outcome = protocol::Outcome::kResult;
  answer->step = open_step_;
  answer->bundle = bundle;
  answer->record.term = options_.term;
  answer->record.step = open_step_;
  answer->record.bundle = bundle;
  answer->record.generation = gate_.generation();
  answer->record.plan_id = plans_.coded_by();
  answer->record.result_checksum = protocol::BundleChecksum(answer->results);
  uint64_t& version = bundles_[bundle].version;
  answer->base_version = version;
  if (answer->record.n > 0) ++version;
  answer->version = version;
  answer->checkpoint_step = checkpoints_.AnnouncedIn(open_step_);
  answer->plan = plans_.AnnouncedIn(open_step_, bundle, plans_.coded_by());
  answer->open_step = open_step_;

  closed_[bundle] = true;
  ++closed_count_;
  ++stats_.bundles_closed;
  if (!open.complete()) ++stats_.quorum_bundles;
  if (answer->record.n == 0 && !bundles_[bundle].buffers) ++stats_.empty_bundles;
  const double waited = absl::ToDoubleSeconds(open.last_arrival() - open.first_arrival());
  stats_.wait_seconds += waited;
  ++stats_.wait_counts[BucketOf(kWaitBoundsSeconds, waited)];

  // A rank may still ask for the results of the last step that it requested, and of later ones.
  uint64_t needed_from = open_step_;
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!closing_.IsMember(bundle, rank, open_step_))
      continue;  // Too far behind; it must join again.
    needed_from = std::min(needed_from, ranks_[rank].reached);
  }
  log_.Add(answer, needed_from);
  // Other ranks get the result when they contribute, because a contribution in flight may be lost.
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (gate_.stream(rank) == 0 || !open.arrived(rank)) continue;
    if (!closing_.IsMember(bundle, rank, open_step_))
      continue;  // The rank's predecessor contributed.
    SendResult(gate_.stream(rank), answer, out);
  }
}

void SyncShard::CloseWithParameters(uint32_t bundle, OpenBundle* open,
                                    protocol::ExchangeReply* answer) {
  // The initial parameters are forwarded as frames, so every bit is kept, even a zero's sign.
  answer->results = open->MoveFrames(ParameterRank(options_));
  const BundleLayout& plan = bundles_[bundle];
  Check(answer->results.size() == plan.counts.size(), "rank 0 gave all its parameters");
  if (!replica_.has_value() || plan.buffers) return;
  for (size_t i = 0; i < plan.counts.size(); ++i) {
    replica_->SetFrom(plan.locals[i], protocol::FrameBytes(answer->results[i]));
  }
}

void SyncShard::CloseWithMean(uint32_t bundle, OpenBundle* open, protocol::ExchangeReply* answer,
                              Effects* out) {
  const BundleLayout& plan = bundles_[bundle];
  const protocol::StageSpan encoding(options_.stages, protocol::Stage::kEncode);
  const auto mean_of = [&](size_t chunk) {
    const protocol::StageSpan summing(options_.stages, protocol::Stage::kSum);
    return open->MeanOf(chunk);
  };
  const absl::Status encoded = downlink_.EncodeEach(plan.locals, open_step_, mean_of, &frames_);
  if (encoded.ok()) {
    MoveFrames(bundle, answer);
  } else {
    LeaveOut(bundle, encoded.message(), answer, out);
  }
}

// A chunk whose mean is not finite is not updated. The other chunks of its bundle are updated,
// because the shard cannot keep their means for later and workers do not resend them.
void SyncShard::CloseWithUpdate(uint32_t bundle, OpenBundle* open, protocol::ExchangeReply* answer,
                                Effects* out) {
  const BundleLayout& plan = bundles_[bundle];
  means_.clear();
  std::vector<bool> updated;
  absl::Status all_finite;
  for (size_t i = 0; i < plan.counts.size(); ++i) {
    const protocol::StageSpan summing(options_.stages, protocol::Stage::kSum);
    const absl::Span<const float> mean = open->MeanOf(i);
    const absl::Status finite = downlink_.Check(plan.locals[i], mean);
    updated.push_back(finite.ok());
    all_finite.Update(finite);
    means_.insert(means_.end(), mean.begin(), mean.end());
  }
  const auto updates = std::count(updated.begin(), updated.end(), true);
  if (updates == 0) {
    LeaveOut(bundle, all_finite.message(), answer, out);
    return;
  }
  if (!all_finite.ok()) {
    const size_t overflowed = updated.size() - static_cast<size_t>(updates);
    out->push_back(MeanLeftOut(bundle,
                               absl::StrCat("the means of ", overflowed, " of ", updated.size(),
                                            " chunks overflowed and were left out"),
                               all_finite.message()));
  }
  answer->record.rate = open->rate();
  absl::Span<const float> rest = means_;
  const protocol::StageSpan encoding(options_.stages, protocol::Stage::kEncode);
  const auto owed_of = [&](size_t i) {
    const protocol::StageSpan updating(options_.stages, protocol::Stage::kSum);
    const absl::Span<const float> mean = rest.first(plan.counts[i]);
    rest.remove_prefix(plan.counts[i]);
    if (updated[i]) replica_->Update(plan.locals[i], answer->record.rate, mean);
    return replica_->Owed(plan.locals[i]);
  };
  const absl::Status encoded = downlink_.EncodeEach(plan.locals, open_step_, owed_of, &frames_);
  if (!encoded.ok()) {
    LeaveOut(bundle, encoded.message(), answer, out);
    out->push_back(Diverged(options_, absl::StrCat("step ", open_step_), encoded));
    return;
  }
  MoveFrames(bundle, answer);
  for (size_t i = 0; i < plan.locals.size(); ++i) {
    replica_->Publish(plan.locals[i], protocol::FrameBytes(answer->results[i]));
  }
}

void SyncShard::MoveFrames(uint32_t bundle, protocol::ExchangeReply* answer) {
  const BundleLayout& plan = bundles_[bundle];
  answer->results.reserve(frames_.size());
  for (size_t i = 0; i < frames_.size(); ++i) {
    std::vector<std::byte>& frame = frames_[i];
    downlink_.Observe(plan.locals[i], frame);
    plan.aggregators[i]->AppendShared(&frame);
    answer->results.emplace_back(reinterpret_cast<const char*>(frame.data()), frame.size());
  }
}

Notice SyncShard::MeanLeftOut(uint32_t bundle, absl::string_view what,
                              absl::string_view why) const {
  return {
      .text = absl::StrCat("step ", open_step_, ", bundle ", bundle, ": ", what, " (", why, ")"),
      .fields = {.event = "mean_left_out", .step = open_step_}};
}

// Every contribution is finite, but the sum is not. All count as skipped, so that all ranks agree.
void SyncShard::LeaveOut(uint32_t bundle, absl::string_view why, protocol::ExchangeReply* answer,
                         Effects* out) {
  for (protocol::Included& included : answer->record.included) included.skipped = true;
  answer->record.n = 0;
  ++stats_.overflowed_bundles;
  out->push_back(MeanLeftOut(bundle, "the mean overflowed and was left out", why));
}

void SyncShard::AdvanceSteps(Effects* out) {
  while (closed_count_ == bundles_.size()) {
    if (open_step_ > 0) downlink_.EndStep(open_step_);
    stats_.highest_closed_step = open_step_;
    if (checkpoints_.TakeUpTo(open_step_)) out->push_back(WriteSnapshot{Snapshot()});
    open_step_ = StepAfter(open_step_);
    plans_.Begin(open_step_);
    std::swap(open_, next_);
    closed_.assign(closed_.size(), false);
    handed_.assign(handed_.size(), false);
    closed_count_ = 0;
    noticed_ = false;
    for (uint32_t bundle = 0; bundle < bundles_.size(); ++bundle) {
      OpenBundle* open = open_.bundles[bundle].get();
      if (open == nullptr) continue;
      stats_.held_bytes -= open->held_bytes();
      open->SumPrefix();
      stats_.held_bytes += open->held_bytes();
      closing_.NoteQuorum(bundle, *open);
      if (IsDue(bundle)) Close(bundle, out);
    }
  }
}

uint64_t SyncShard::NeededFrom(const protocol::ExchangeRequest& exchange) const {
  return options_.replay ? open_step_ : exchange.step;
}

void SyncShard::AnswerBusy(StreamId stream, const protocol::ExchangeRequest& exchange,
                           absl::Time now, Effects* out) {
  ++stats_.refused_busy;
  absl::Duration waited;
  for (const std::unique_ptr<OpenBundle>& open : open_.bundles) {
    if (open != nullptr) waited = std::max(waited, now - open->first_arrival());
  }
  auto answer = std::make_shared<protocol::ExchangeReply>();
  answer->outcome = protocol::Outcome::kBusy;
  answer->step = exchange.step;
  answer->bundle = exchange.bundle;
  answer->retry_after_ms = static_cast<uint32_t>(std::clamp<int64_t>(
      absl::ToInt64Milliseconds(waited / 8), options_.busy_retry_ms, options_.busy_retry_ms_max));
  out->push_back(SendReply{stream, std::move(answer)});
}

void SyncShard::SendResult(StreamId stream, std::shared_ptr<const protocol::ExchangeReply> answer,
                           Effects* out) {
  stats_.bytes_out += ResultBytes(*answer);
  if (answer->record.n > 0) {
    stats_.dense_bytes_out += sizeof(float) * bundles_[answer->bundle].elements;
  }
  out->push_back(SendReply{stream, std::move(answer)});
}

std::vector<ShardEffect> SyncShard::Tick(absl::Time now) {
  Effects out;
  closing_.Advance(now);
  if (gate_.ended()) return out;
  if (members_changed_) CloseComplete(&out);
  if (tick_due() <= closing_.now()) CloseDue(&out);
  if (noticed_) return out;
  for (uint32_t bundle = 0; bundle < bundles_.size(); ++bundle) {
    const OpenBundle* open = open_.bundles[bundle].get();
    if (open == nullptr || now - open->first_arrival() < options_.straggler_notice) continue;
    noticed_ = true;
    const std::vector<uint32_t> missing = open->MissingRanks();
    out.push_back(
        Notice{.text = absl::StrCat(
                   "step ", open_step_, ", bundle ", bundle, " has waited ",
                   absl::FormatDuration(absl::Floor(now - open->first_arrival(), absl::Seconds(1))),
                   missing.empty() ? " for newcomers: no member of the previous step is left"
                                   : absl::StrCat(" for rank ", absl::StrJoin(missing, ", "))),
               .fields = {.event = "bundle_waits", .step = open_step_}});
    break;
  }
  return out;
}

ShardStats SyncShard::Stats() const {
  ShardStats stats = stats_;
  stats.open_step = open_step_;
  stats.log_bytes = log_.bytes();
  stats.log_limit = options_.log.bytes;
  stats.log_results = log_.size();
  stats.results_from = results_from();
  return stats;
}

double SyncShard::ResidualEnergy() const {
  return downlink_.ResidualEnergy() + (replica_.has_value() ? replica_->OwedEnergy() : 0);
}

absl::Span<const float> SyncShard::DownlinkResidual(uint32_t bundle, size_t position) const {
  const uint32_t chunk = bundles_[bundle].locals[position];
  if (replica_.has_value() && !bundles_[bundle].buffers) return replica_->Owed(chunk);
  return downlink_.residual(chunk);
}

}  // namespace sluice::server
