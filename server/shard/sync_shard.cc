#include "server/shard/sync_shard.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

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
      coder_(&options_, plan.downlink, std::move(plan.aggregators), std::move(plan.replica)),
      plans_(&options_, std::move(plan.downlink), coder_.downlink(), coder_.replica()),
      sink_(&options_, static_cast<uint32_t>(bundles_.size())),
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

absl::Status SyncShard::Restore(const protocol::ShardSnapshot& snapshot) {
  // The chunks were saved with the codecs of this step's plan.
  const absl::Status plans = plans_.Restore(snapshot);
  if (!plans.ok()) return CannotGoOn(options_, snapshot, plans);
  const absl::Status fits = coder_.Restore(snapshot, bundles_.size());
  if (!fits.ok()) return CannotGoOn(options_, snapshot, fits);
  sink_.SetVersions(snapshot.versions);
  stats_.highest_closed_step = snapshot.step;
  return absl::OkStatus();
}

uint64_t SyncShard::NameCheckpoint(uint64_t minimum_step) {
  return checkpoints_.Name(minimum_step, checkpoints_.EarliestAfter(open_step_));
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

absl::Status SyncShard::CheckAddress(const protocol::ExchangeRequest& exchange) const {
  if (exchange.bundle >= bundles_.size()) {
    return InvalidRequest(exchange,
                          absl::StrCat("shard ", options_.shard, " has ", bundles_.size(),
                                       " bundles; worker and shard cut the tensors differently"));
  }
  if (exchange.step > StepAfter(open_step_)) {
    return InvalidRequest(exchange,
                          absl::StrCat("more than one step ahead of the open step ", open_step_));
  }
  if (exchange.acked_step > 0 && exchange.acked_step >= open_step_) {
    return InvalidRequest(exchange, absl::StrCat("acknowledges step ", exchange.acked_step,
                                                 ", but step ", open_step_, " is still open"));
  }
  const absl::Status stamps = gate_.CheckStamps(exchange);
  if (!stamps.ok()) return stamps;
  const absl::Status plans = plans_.Check(exchange, PositionOf(exchange));
  if (!plans.ok()) return plans;
  return checkpoints_.Check(exchange, open_step_);
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
  if (due && !sink_.forwards()) {
    AdvanceSteps(out);
  } else if (MayStayUnanswered(ranks_[rank], stream, bytes)) {
    ranks_[rank].unanswered += bytes;
    open->SetUnanswered(rank, bytes);
  } else {
    ranks_[rank].answered = stream;
    gate_.Answer(stream, exchange, protocol::Outcome::kPending, "", out);
  }
}

bool SyncShard::OverMemory(const protocol::ExchangeRequest& exchange) const {
  uint32_t lowest = 0;
  while (lowest < closed_.size() && closed_[lowest]) ++lowest;
  if (exchange.step == open_step_ && exchange.bundle == lowest) return false;
  return reserved_bytes_ + stats_.held_bytes + sink_.log().bytes() +
             protocol::TotalBytes(exchange.frames) >
         options_.max_memory;
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
  return options_.unanswered_bytes > 0 && !sink_.forwards() && rank.answered == stream &&
         !options_.replay && rank.unanswered + bytes <= options_.unanswered_bytes;
}

uint64_t SyncShard::NeededFrom(const protocol::ExchangeRequest& exchange) const {
  return options_.replay ? open_step_ : exchange.step;
}

// Makes the rank a member from this step on, because it is in time for this step.
void SyncShard::BecomeMember(uint32_t bundle, uint32_t rank, uint64_t step) {
  closing_.Join(bundle, rank, step);
  AwaitMembers(bundle);
}

// Stops waiting for the rank. Its admitted contributions stay.
void SyncShard::Vacate(uint32_t rank) {
  if (!closing_.Leave(rank)) return;
  for (uint32_t bundle = 0; bundle < bundles_.size(); ++bundle) AwaitMembers(bundle);
  members_changed_ = true;
}

void SyncShard::AwaitMembers(uint32_t bundle) {
  closing_.AwaitMembers(bundle, open_step_, open_.bundles[bundle].get());
  closing_.AwaitMembers(bundle, StepAfter(open_step_), next_.bundles[bundle].get());
}

ShardStats SyncShard::Stats() const {
  ShardStats stats = stats_;
  stats.open_step = open_step_;
  stats.log_bytes = sink_.log().bytes();
  stats.log_limit = options_.log.bytes;
  stats.log_results = sink_.log().size();
  stats.results_from = results_from();
  return stats;
}

double SyncShard::ResidualEnergy() const { return coder_.ResidualEnergy(); }

absl::Span<const float> SyncShard::DownlinkResidual(uint32_t bundle, size_t position) const {
  return coder_.DownlinkResidual(bundles_[bundle], position);
}

}  // namespace sluice::server
