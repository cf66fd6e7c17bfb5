// SPDX-License-Identifier: Apache-2.0
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

// Limits the result log to the memory that the layout and the windows leave.
void LimitLog(const ShardLayout& plan, ShardOptions* options) {
  const uint64_t left = options->max_memory - plan.reserved_bytes - WindowBytes(*options);
  if (options->replay_bytes > 0) {
    options->log = {.bytes = std::min(options->replay_bytes, left), .steps = kNoStepLimit};
  }
  if (options->exchange.quorum > 0) options->log.bytes = std::min(options->log.bytes, left);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Shard>> SyncShard::Create(ShardOptions options) {
  absl::StatusOr<ShardLayout> plan = PlanShard(options);
  if (!plan.ok()) return plan.status();
  plan->reserved_bytes += RankTable::ReservedBytes(options, plan->bundles.size());
  if (options.exchange.elastic()) {
    plan->reserved_bytes += sizeof(uint64_t) * plan->bundles.size() * options.incarnations.size();
  }
  const absl::Status room = CheckMemory(options, *plan);
  if (!room.ok()) return room;
  LimitLog(*plan, &options);
  const std::shared_ptr<const protocol::ShardSnapshot> restore = std::move(options.restore);
  auto shard = std::unique_ptr<SyncShard>(new SyncShard(std::move(options), *std::move(plan)));
  const absl::Status plans = shard->plans_.Prepare();
  if (!plans.ok()) return plans;
  if (restore != nullptr) {
    const absl::Status restored = shard->Restore(*restore);
    if (!restored.ok()) return restored;
  }
  shard->plans_.Begin(shard->steps_.step());
  return std::unique_ptr<Shard>(std::move(shard));
}

SyncShard::SyncShard(ShardOptions options, ShardLayout plan)
    : options_(std::move(options)),
      reserved_bytes_(plan.reserved_bytes),
      gate_(&options_, &stats_),
      bundles_(std::move(plan.bundles)),
      ranks_(&options_, bundles_.size()),
      answers_(&options_, &stats_, &gate_, &ranks_, &bundles_),
      coder_(&options_, plan.downlink, std::move(plan.aggregators), std::move(plan.replica)),
      plans_(&options_, std::move(plan.downlink), coder_.downlink(), coder_.replica()),
      sink_(&options_, static_cast<uint32_t>(bundles_.size())),
      steps_(&options_, &bundles_, options_.parameters_agree ? options_.first_step : 0,
             plan.elements, coder_.threads()),
      checkpoints_(&options_),
      closing_(&options_, BuffersOf(bundles_)) {
  stats_.elements = plan.trained;
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
  return checkpoints_.Name(minimum_step, checkpoints_.EarliestAfter(steps_.step()));
}

std::vector<ShardEffect> SyncShard::Handle(StreamId stream, protocol::ExchangeRequest exchange,
                                           absl::Time now) {
  Effects out;
  closing_.Advance(now);
  if (!gate_.Pass(stream, exchange, &out)) return out;
  const uint32_t rank = exchange.sender.rank;
  if (IsAhead(exchange)) {
    ranks_.NoteStep(rank, exchange.step);
    answers_.Ask(stream, exchange, steps_.step(), &out);
    return out;
  }
  absl::Status valid = CheckAddress(exchange);
  if (valid.ok() && !exchange.keys_only) {
    valid = CheckPayload(options_, bundles_[exchange.bundle], exchange, HasArrived(exchange));
  }
  if (absl::IsAborted(valid)) {
    answers_.GiveUpReplay(stream, exchange, std::string(valid.message()), &out);
    return out;
  }
  if (!valid.ok()) {
    gate_.Refuse(stream, exchange, valid, &out);
    return out;
  }
  // Runs before any admission, because an admission may close the checkpoint's step.
  checkpoints_.Learn(exchange.checkpoint_step, steps_.step(), &out);
  plans_.Record(exchange, PositionOf(exchange));
  ranks_.Reach(rank, exchange.step);
  const uint64_t acked_step = exchange.acked_step;
  if (steps_.IsClosed(exchange.step, exchange.bundle)) {
    HandleClosed(stream, std::move(exchange), &out);
  } else if (exchange.keys_only) {
    HandleKeys(stream, exchange, &out);
  } else {
    Admit(stream, std::move(exchange), now, &out);
  }
  // Runs after the answer, because a request may acknowledge a step and ask for it again.
  if (ranks_.Acknowledge(rank, acked_step)) ForgetResults();
  return out;
}

PlanSchedule::Position SyncShard::PositionOf(const protocol::ExchangeRequest& exchange) const {
  return {.open_step = steps_.step(), .is_closed = steps_.IsClosed(exchange.step, exchange.bundle)};
}

absl::Status SyncShard::CheckAddress(const protocol::ExchangeRequest& exchange) const {
  if (exchange.bundle >= bundles_.size()) {
    return InvalidRequest(exchange,
                          absl::StrCat("shard ", options_.shard, " has ", bundles_.size(),
                                       " bundles; worker and shard cut the tensors differently"));
  }
  if (exchange.step > steps_.next_step()) {
    return InvalidRequest(
        exchange, absl::StrCat("more than one step ahead of the open step ", steps_.step()));
  }
  if (exchange.acked_step > 0 && exchange.acked_step >= steps_.step()) {
    return InvalidRequest(exchange, absl::StrCat("acknowledges step ", exchange.acked_step,
                                                 ", but step ", steps_.step(), " is still open"));
  }
  const absl::Status stamps = gate_.CheckStamps(exchange);
  if (!stamps.ok()) return stamps;
  const absl::Status plans = plans_.Check(exchange, PositionOf(exchange));
  if (!plans.ok()) return plans;
  const absl::Status base =
      sink_.CheckBase(exchange, steps_.IsNext(exchange.step, exchange.bundle));
  if (!base.ok()) return base;
  return checkpoints_.Check(exchange, steps_.step());
}

void SyncShard::Admit(StreamId stream, protocol::ExchangeRequest exchange, absl::Time now,
                      Effects* out) {
  const uint32_t rank = exchange.sender.rank;
  const uint32_t checksum = protocol::BundleChecksum(exchange.frames);
  const bool joins = !closing_.IsMember(exchange.bundle, rank, exchange.step);
  if (joins && !exchange.skip) {
    answers_.NotAwaited(stream, exchange, out);
    return;
  }
  OpenBundle* open = steps_.Find(exchange.step, exchange.bundle);
  if (open != nullptr && open->arrived(rank)) {
    if (open->checksum(rank) != checksum && !IsStoodFor(exchange)) {
      answers_.OtherBytes(stream, exchange, open->checksum(rank), checksum, out);
      return;
    }
    answers_.Repeat(stream, exchange, out);
    if (!joins) return;
    BecomeMember(exchange.bundle, rank, exchange.step);
    CloseComplete(out);
    return;
  }
  if (OverMemory(exchange)) {
    answers_.Busy(stream, exchange, Waited(now), out);
    return;
  }
  open = steps_.FindOrOpen(exchange.step, exchange.bundle, closing_);
  if (joins) BecomeMember(exchange.bundle, rank, exchange.step);
  CountIn(exchange);
  if (options_.exchange.quorum > 0)
    ranks_.SetAdmitted(exchange.bundle, rank, {exchange.step, checksum});
  const uint64_t bytes = protocol::TotalBytes(exchange.frames);
  stats_.held_bytes -= open->held_bytes();
  open->Admit(rank, checksum, exchange.rate, std::move(exchange.frames), now, exchange.weight,
              exchange.work);
  // Parameters are not summed. The next step waits, as an aggregator handles one step at a time.
  if (exchange.step == steps_.step() && exchange.step > 0) open->SumPrefix();
  stats_.held_bytes += open->held_bytes();
  if (exchange.step == steps_.step()) closing_.NoteQuorum(exchange.bundle, *open);
  const bool due = exchange.step == steps_.step() && IsDue(exchange.bundle);
  if (due) Close(exchange.bundle, out);
  if (due && !sink_.forwards()) {
    AdvanceSteps(out);
  } else {
    answers_.Admitted(stream, exchange, bytes, open, out);
  }
}

bool SyncShard::OverMemory(const protocol::ExchangeRequest& exchange) const {
  if (exchange.step == steps_.step() && exchange.bundle == steps_.LowestOpen()) return false;
  return reserved_bytes_ + stats_.held_bytes + sink_.log().bytes() +
             protocol::TotalBytes(exchange.frames) >
         options_.max_memory;
}

absl::Duration SyncShard::Waited(absl::Time now) const {
  absl::Duration waited;
  for (uint32_t bundle = 0; bundle < bundles(); ++bundle) {
    const OpenBundle* const open = steps_.Find(steps_.step(), bundle);
    if (open != nullptr) waited = std::max(waited, now - open->first_arrival());
  }
  return waited;
}

void SyncShard::CountIn(const protocol::ExchangeRequest& exchange) {
  const BundleLayout& plan = bundles_[exchange.bundle];
  ++stats_.contributions;
  if (exchange.skip && plan.Exchanges(exchange.step)) ++stats_.skipped_contributions;
  stats_.bytes_in += protocol::TotalBytes(exchange.frames);
  if (!exchange.skip) stats_.dense_bytes_in += sizeof(float) * plan.elements;
  gate_.Accept(exchange.sender.rank);
}

// Makes the rank a member from this step on, because it is in time for this step.
void SyncShard::BecomeMember(uint32_t bundle, uint32_t rank, uint64_t step) {
  closing_.Join(bundle, rank, step);
  steps_.AwaitMembers(bundle, closing_);
}

// Stops waiting for the rank. Its admitted contributions stay.
void SyncShard::Vacate(uint32_t rank) {
  if (!closing_.Leave(rank)) return;
  for (uint32_t bundle = 0; bundle < bundles_.size(); ++bundle)
    steps_.AwaitMembers(bundle, closing_);
  members_changed_ = true;
}

ShardStats SyncShard::Stats() const {
  ShardStats stats = stats_;
  coder_.AddFigures(&stats);
  stats.open_step = steps_.step();
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
