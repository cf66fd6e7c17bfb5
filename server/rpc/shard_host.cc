// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/shard_host.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/process_usage.h"
#include "net/grpc/grpc_status.h"
#include "protocol/checkpoint/checkpoint_folder.h"
#include "server/rpc/shard_start.h"

namespace sluice::server {
namespace {

// The ticker's longest pause. The ticker can be woken earlier.
constexpr absl::Duration kIdle = absl::Seconds(1);

double EncodeSeconds(const protocol::StageTimes& stages) {
  return stages.Seconds()[static_cast<size_t>(protocol::Stage::kEncode)];
}

// Returns true if the shard answers the stream's request with FENCED or INVALID.
bool IsRefused(const std::vector<ShardEffect>& effects, StreamId stream) {
  return std::any_of(effects.begin(), effects.end(), [stream](const ShardEffect& effect) {
    const auto* reply = std::get_if<SendReply>(&effect);
    return reply != nullptr && reply->stream == stream &&
           (reply->answer->outcome == protocol::Outcome::kFenced ||
            reply->answer->outcome == protocol::Outcome::kInvalid);
  });
}

}  // namespace

ShardHost::ShardHost(Options options, const Clock* clock, Logger logger)
    : options_(std::move(options)),
      folder_(protocol::PartsFolder(options_.job.checkpoint, options_.shard)),
      reader_(&options_.job, options_.shard, options_.fetch_part, clock),
      clock_(clock),
      logger_(std::move(logger)),
      stages_(&CpuNanosecondsOfThisThread),
      waits_(job::RankLimit(options_.job)),
      links_(job::RankLimit(options_.job),
             options_.job.exchange.in_lockstep() && options_.job.exchange.quorum == 0),
      trace_(options_.trace) {
  if (options_.job.exchange.quorum > 0) ticker_ = std::thread([this] { RunTicks(); });
  if (!options_.job.checkpoint.enabled()) return;
  examiner_ = std::make_unique<PartExaminer>(
      options_.job.checkpoint, options_.job.server.rejoin_timeout,
      [this](const protocol::PartExamined& examined) { Report(examined); }, clock_, logger_);
  const auto report = [this](protocol::CheckpointPart part) {
    if (options_.job.checkpoint.at_shards()) part.server = options_.shard;
    Report(part);
  };
  if (options_.job.checkpoint.at_shards()) {
    claim_ = std::make_unique<PartsClaim>(folder_, options_.job.name);
  }
  writer_ = std::make_unique<SnapshotWriter>(
      folder_, [this] { return ClaimFolder(); }, report, clock_, logger_);
}

ShardHost::~ShardHost() {
  if (ticker_.joinable()) {
    {
      MutexLock lock(&mutex_);
      stopping_ = true;
      tick_sooner_.SignalAll();
    }
    ticker_.join();
  }
  // All streams are closed by now. The lock is only for the thread sanitizer, which cannot see that
  // gRPC's own locks already ensure this.
  MutexLock lock(&mutex_);
  gate_.Await(&mutex_);
  shard_.reset();
  streams_ = AnswerStreams();
}

void ShardHost::ReportTo(std::function<void(const ShardEvent&)> listener) {
  MutexLock lock(&listener_mutex_);
  listener_ = std::move(listener);
}

void ShardHost::Report(const ShardEvent& news) {
  MutexLock lock(&listener_mutex_);
  if (listener_) listener_(news);
}

absl::Status ShardHost::Start(const protocol::StartShard& start) {
  const absl::Time begun_at = clock_->Now();
  absl::StatusOr<protocol::Layout> layout = LayoutFor(options_.job, start);
  if (!layout.ok()) return layout.status();
  if (claim_ != nullptr) {
    const absl::Status claimed = claim_->BeginTerm(start.job_uid, start.term, logger_);
    if (!claimed.ok()) return claimed;
  }
  bool is_running = false;
  const absl::Status begun = MoveToTerm(start, &is_running);
  if (!begun.ok() || is_running) return begun;
  std::shared_ptr<const protocol::ShardSnapshot> snapshot;
  if (start.restore_step > 0) {
    absl::StatusOr<std::shared_ptr<const protocol::ShardSnapshot>> read = reader_.Read(start);
    if (absl::IsDataLoss(read.status())) ReportUnusable(start, read.status());
    if (!read.ok()) return read.status();
    snapshot = *std::move(read);
  }
  // This runs without the lock: restoring may take a while, and there is no core for others to use.
  absl::StatusOr<std::unique_ptr<Shard>> shard =
      Shard::Create(OptionsOf(start, *std::move(layout), std::move(snapshot)));
  if (!shard.ok()) return shard.status();
  MutexLock lock(&mutex_);
  gate_.Await(&mutex_);
  shard_ = *std::move(shard);
  // Changes that wait for a copy hold no more memory than the windows of all ranks.
  gate_.LimitBytes(shard_->options().window_bytes * shard_->options().incarnations.size());
  streams_.LimitBytes(AnswerBytesMax(shard_->options()));
  waits_ = RankWaits(job::RankLimit(options_.job));  // After a rollback, ranks repeat steps.
  links_.Rewind();
  links_.SetPresent(start.incarnations);
  term_.BindTo(start.job_uid);
  if (term_.ended()) Deliver(shard_->End(term_.end_reason()));
  LogStart(start, clock_->Now() - begun_at);
  if (options_.weights != nullptr) options_.weights->Begin(start, *shard_, logger_);
  return absl::OkStatus();
}

ShardOptions ShardHost::OptionsOf(const protocol::StartShard& start, protocol::Layout layout,
                                  std::shared_ptr<const protocol::ShardSnapshot> snapshot) {
  ShardOptions options =
      ShardOptionsFor(options_.job, options_.shard, start, std::move(layout), std::move(snapshot));
  options.server_incarnation = incarnation();
  options.threads = options_.threads;
  options.stages = &stages_;
  options.run_copy = [this](absl::FunctionRef<void()> copy)
                         ABSL_NO_THREAD_SAFETY_ANALYSIS { RunCopy(copy); };
  return options;
}

void ShardHost::LogStart(const protocol::StartShard& start, absl::Duration took) const {
  const ShardStats stats = shard_->Stats();
  logger_.Info(DescribeStart(options_.job, start, stats, shard_->bundles(), took));
  const std::shared_ptr<const protocol::CompressionPlan> plan = shard_->plan();
  if (options_.shard == 0 && plan != nullptr) ReportPlan(*plan);
  const std::string warning = ReplayWarning(options_.job, stats);
  if (!warning.empty()) logger_.Warning(warning);
}

// Tells the coordinator that the job must continue from an earlier checkpoint.
void ShardHost::ReportUnusable(const protocol::StartShard& start, const absl::Status& why) {
  Report(protocol::CheckpointPart{.term = start.term,
                                  .step = start.restore_step,
                                  .name = protocol::ShardPartName(options_.shard, start.term),
                                  .error = std::string(why.message()),
                                  .unreadable = true});
}

void ShardHost::ReportPlan(const protocol::CompressionPlan& plan) const {
  logger_.Write(LogLevel::kInfo, {.event = "plan_changed", .step = plan.effective_step},
                absl::StrCat("plan ", plan.id, " from step ", plan.effective_step, ": ",
                             plan.reason, " (", protocol::Summary(plan), ")"));
  if (!options_.on_plan) return;
  const ShardOptions& shard = shard_->options();
  options_.on_plan(plan, BytesUnder(plan, shard.exchange.compression, shard.table,
                                    static_cast<uint32_t>(shard.incarnations.size())));
}

// Prepares the host for the core of start.term, or returns why that is impossible.
absl::Status ShardHost::MoveToTerm(const protocol::StartShard& start, bool* is_running) {
  MutexLock lock(&mutex_);
  gate_.Await(&mutex_);
  const absl::Status may_start = term_.MayStart(start);
  if (!may_start.ok()) return may_start;
  if (shard_ != nullptr && shard_->options().term == start.term) {
    term_.MoveTo(start);
    *is_running = true;
    return SetMembershipLocked(start.generation, start.incarnations);
  }
  if (shard_ != nullptr) {
    Deliver(shard_->Suspend(start.term, ""));
    shard_.reset();
  }
  term_.MoveTo(start);
  return absl::OkStatus();
}

absl::Status ShardHost::ClaimFolder() const {
  return claim_ == nullptr ? absl::OkStatus() : claim_->ClaimAgain();
}

void ShardHost::Suspend(uint32_t term, absl::string_view reason) {
  MutexLock lock(&mutex_);
  gate_.Await(&mutex_);
  // The command may be repeated after the term's Start. That core already has the right term.
  if (term < term_.term() || (shard_ != nullptr && shard_->options().term >= term)) return;
  term_.Suspend(term, reason);
  if (shard_ == nullptr) return;
  Deliver(shard_->Suspend(term, reason));
  shard_.reset();
}

absl::Status ShardHost::NameCheckpoint(uint64_t minimum_step) {
  if (writer_ == nullptr) {
    return absl::FailedPreconditionError(
        "the coordinator asks for a checkpoint, but this server's job file has no checkpoint.dir");
  }
  if (options_.shard != 0) return absl::InvalidArgumentError("only shard 0 names checkpoints");
  MutexLock lock(&mutex_);
  gate_.Await(&mutex_);
  // If there is no core, this shard's part was damaged, and the job will roll back further.
  if (shard_ != nullptr) shard_->NameCheckpoint(minimum_step);
  return absl::OkStatus();
}

void ShardHost::KeepCheckpoints(const std::vector<uint64_t>& steps, uint64_t before) const {
  if (claim_ != nullptr) claim_->KeepOnly(steps, before, logger_);
}

absl::Status ShardHost::CheckSender(const protocol::Sender& sender) const {
  MutexLock lock(&mutex_);
  const absl::Status withdrawn = term_.Withdrawn();
  if (!withdrawn.ok()) return withdrawn;
  if (shard_ == nullptr) return absl::UnavailableError("no job has started here yet");
  const std::string fenced = shard_->FenceReason(sender);
  return fenced.empty() ? absl::OkStatus() : absl::FailedPreconditionError(fenced);
}

absl::Status ShardHost::SetMembership(uint32_t generation,
                                      const std::vector<uint64_t>& incarnations) {
  MutexLock lock(&mutex_);
  gate_.Await(&mutex_);
  return shard_ == nullptr ? absl::OkStatus() : SetMembershipLocked(generation, incarnations);
}

absl::Status ShardHost::SetMembershipLocked(uint32_t generation,
                                            const std::vector<uint64_t>& incarnations) {
  const absl::Status set = shard_->SetMembership(generation, incarnations);
  if (set.ok()) links_.SetPresent(incarnations);
  Conclude(shard_->Tick(clock_->Now()));  // Closes bundles that waited for workers that have left.
  gate_.RunDeferred();
  return set;
}

void ShardHost::ReleaseResults(uint64_t durable_step) {
  MutexLock lock(&mutex_);
  gate_.Await(&mutex_);
  if (shard_ != nullptr) shard_->ReleaseResults(durable_step);
}

void ShardHost::Publish(uint32_t term, const std::vector<Publication>& publications) {
  MutexLock lock(&mutex_);
  for (const Publication& publication : publications) {
    gate_.Await(&mutex_);
    if (shard_ == nullptr || shard_->options().term != term) return;
    Conclude(shard_->Publish(publication));
    gate_.RunDeferred();
  }
}

void ShardHost::End(absl::string_view reason) {
  MutexLock lock(&mutex_);
  gate_.Await(&mutex_);
  term_.End(reason);
  if (shard_ == nullptr) return;
  if (options_.weights != nullptr) options_.weights->OfferNow(*shard_);
  Deliver(shard_->End(reason));
  gate_.RunDeferred();
}

void ShardHost::SetIncarnation(uint64_t incarnation) {
  MutexLock lock(&mutex_);
  incarnation_ = incarnation;
}

void ShardHost::Withdraw(absl::string_view reason) {
  MutexLock lock(&mutex_);
  term_.Withdraw(reason);
  streams_.CloseAll(net::ToGrpc(term_.Withdrawn()));
}

// The heartbeat thread calls this and must not wait for a copy. The next heartbeat ticks again.
void ShardHost::Tick() {
  MutexLock lock(&mutex_);
  if (shard_ == nullptr || gate_.copying()) return;
  Conclude(shard_->Tick(clock_->Now()));
  gate_.RunDeferred();
}

void ShardHost::OfferWeights() {
  MutexLock lock(&mutex_);
  gate_.Await(&mutex_);
  if (options_.weights != nullptr && shard_ != nullptr) options_.weights->OfferNow(*shard_);
  gate_.RunDeferred();
}

void ShardHost::Conclude(const std::vector<ShardEffect>& effects) {
  Deliver(effects);
  if (options_.weights != nullptr) options_.weights->OfferAfterStep(*shard_);
}

// The core calls this function while the host calls the core with the lock held.
void ShardHost::RunCopy(absl::FunctionRef<void()> copy) {
  gate_.Run(&mutex_, [&] {
    if (options_.before_copy) options_.before_copy();
    copy();
  });
  tick_sooner_.SignalAll();
}

// Ticks when the core requests it. Heartbeats are too rare to apply straggler_timeout on time.
void ShardHost::RunTicks() {
  MutexLock lock(&mutex_);
  while (!stopping_) {
    const absl::Time now = clock_->Now();
    next_tick_ = shard_ == nullptr || gate_.copying() ? absl::InfiniteFuture() : shard_->tick_due();
    if (next_tick_ <= now) {
      Conclude(shard_->Tick(now));
      gate_.RunDeferred();
    } else {
      tick_sooner_.WaitFor(&mutex_, std::min(next_tick_ - now, kIdle));
    }
  }
}

StreamId ShardHost::Open(AnswerOutput* output) {
  MutexLock lock(&mutex_);
  return streams_.Open(output);
}

void ShardHost::Closed(StreamId stream) {
  MutexLock lock(&mutex_);
  streams_.Closed(stream);
  std::function<void()> forget = [this, stream]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    streams_.Forget(stream);
    if (shard_ != nullptr) shard_->StreamClosed(stream);
  };
  if (!gate_.Defer(&mutex_, 0, &forget)) forget();
}

void ShardHost::Handle(StreamId stream, protocol::ExchangeRequest exchange,
                       const RequestArrival& arrival) {
  const uint64_t bytes = protocol::TotalBytes(exchange.frames);
  MutexLock lock(&mutex_);
  const absl::Status withdrawn = term_.Withdrawn();
  if (!withdrawn.ok()) {
    streams_.Close(stream, net::ToGrpc(withdrawn));
    return;
  }
  if (gate_.copying()) {
    const auto waiting = std::make_shared<protocol::ExchangeRequest>(std::move(exchange));
    std::function<void()> handle =
        [this, stream, waiting, arrival]()
            ABSL_NO_THREAD_SAFETY_ANALYSIS { HandleLocked(stream, std::move(*waiting), arrival); };
    if (gate_.Defer(&mutex_, bytes, &handle)) return;
    handle();
  } else {
    HandleLocked(stream, std::move(exchange), arrival);
  }
  gate_.RunDeferred();
}

void ShardHost::HandleLocked(StreamId stream, protocol::ExchangeRequest exchange,
                             const RequestArrival& arrival) {
  if (shard_ != nullptr) {
    const absl::Time now = clock_->Now();
    const uint32_t rank = exchange.sender.rank;
    const bool keys_only = exchange.keys_only;
    if (arrival.link.has_value() && shard_->FenceReason(exchange.sender).empty()) {
      links_.Report(rank, arrival.up, *arrival.link);
      ForwardMeasurements();
    }
    const TraceTags tags{.step = exchange.step, .bundle = exchange.bundle};
    const double encoded = trace_.on() ? EncodeSeconds(stages_) : 0;
    const std::vector<ShardEffect> effects = shard_->Handle(stream, std::move(exchange), now);
    if (trace_.on()) {
      trace_.Handled(tags, now, clock_->Now(), EncodeSeconds(stages_) - encoded);
    }
    // A refused request may come from another process and may name any rank and step.
    if (!IsRefused(effects, stream)) {
      streams_.SetRank(stream, rank);
      if (!keys_only) NoteArrival(rank, tags, arrival.came.value_or(now), now);
    }
    Conclude(effects);
    if (shard_->tick_due() < next_tick_) tick_sooner_.SignalAll();
    return;
  }
  Send(stream, std::make_shared<const protocol::ExchangeReply>(term_.AnswerWithoutCore(exchange)));
}

void ShardHost::Refuse(StreamId stream, uint64_t step, uint32_t bundle, std::string why) {
  auto answer = std::make_shared<protocol::ExchangeReply>();
  answer->outcome = protocol::Outcome::kInvalid;
  answer->step = step;
  answer->bundle = bundle;
  answer->message = std::move(why);
  MutexLock lock(&mutex_);
  Send(stream, answer);
}

void ShardHost::NoteAnswer(const SendReply& reply) {
  const std::optional<uint32_t> rank = streams_.RankOf(reply.stream);
  if (!rank.has_value() || reply.answer->outcome == protocol::Outcome::kPending) return;
  const protocol::ExchangeReply& answer = *reply.answer;
  if (answer.outcome == protocol::Outcome::kResult) {
    if (trace_.on()) trace_.Answered(answer);
    waits_.Answered(*rank, answer.step, answer.bundle, clock_->Now());
  } else {
    waits_.Refused(*rank, answer.step, answer.bundle);
  }
}

void ShardHost::Deliver(const std::vector<ShardEffect>& effects) {
  if (effects.empty()) return;
  const absl::Time begin = trace_.on() ? clock_->Now() : absl::Time();
  const protocol::StageSpan sending(&stages_, protocol::Stage::kSend);
  for (const ShardEffect& effect : effects) {
    if (const auto* reply = std::get_if<SendReply>(&effect)) {
      Send(reply->stream, reply->answer);
      NoteAnswer(*reply);
    } else if (const auto* replaced = std::get_if<StreamReplaced>(&effect)) {
      streams_.EndReplaced(*replaced);
    } else if (const auto* notice = std::get_if<Notice>(&effect)) {
      logger_.Write(LogLevel::kWarning, notice->fields, notice->text);
    } else if (const auto* named = std::get_if<CheckpointNamed>(&effect)) {
      Report(*named);
    } else if (const auto* made = std::get_if<PlanMade>(&effect)) {
      ReportPlan(*made->plan);
    } else if (const auto* other = std::get_if<NotReproducible>(&effect)) {
      Report(*other);
    } else if (const auto* refused = std::get_if<RankRefused>(&effect)) {
      Report(*refused);
    } else if (const auto* taken = std::get_if<WriteSnapshot>(&effect)) {
      if (writer_ != nullptr) writer_->Write(taken->snapshot);
    } else if (const auto* summed = std::get_if<BundleSummed>(&effect)) {
      options_.on_summed(summed->sum);
    } else if (const auto* alarm = std::get_if<Alarm>(&effect)) {
      logger_.Write(LogLevel::kError, {.event = "alarm"}, alarm->text);
      options_.on_alarm(alarm->text);
    }
  }
  streams_.ForgetAnswer();
  if (trace_.on()) trace_.Sent(begin, clock_->Now());
}

void ShardHost::Send(StreamId stream,
                     const std::shared_ptr<const protocol::ExchangeReply>& answer) {
  streams_.Send(stream, answer, incarnation_, clock_->Now());
}

}  // namespace sluice::server
