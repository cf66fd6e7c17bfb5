// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/coordinator_host.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::server {
namespace {

constexpr absl::Duration kSilenceMin = absl::Seconds(5);
// Time to wait for a coordinator's first record before it serves calls.
constexpr absl::Duration kBeginPatience = absl::Seconds(2);

// Returns the state that the previous coordinator left. It is announced until this coordinator's
// initial state is on disk.
protocol::JobState StateOfRecord(const CoordinatorOptions& options) {
  protocol::JobState state;
  if (!options.run.has_value()) return state;
  state.phase = protocol::JobPhase::kRecovering;
  state.generation = options.run->generation;
  state.term = options.run->term;
  if (!options.checkpoints.empty()) state.durable_step = options.checkpoints.back().step;
  return state;
}

}  // namespace

CoordinatorHost::CoordinatorHost(CoordinatorOptions options, std::unique_ptr<RunFolder> folder,
                                 ParentJob* upper, const Clock* clock, Logger logger)
    : tick_(std::min(options.server.lease_timeout / 20, absl::Milliseconds(100))),
      silence_(std::max(3 * options.server.heartbeat_interval, kSilenceMin)),
      clock_(clock),
      logger_(std::move(logger)),
      folder_(std::move(folder)),
      upper_(upper),
      calls_(logger_),
      plans_(options.exchange.compression, options.exchange.control, options.momentum_note),
      announced_(StateOfRecord(options)),
      coordinator_(std::move(options), clock->Now()),
      incarnation_(coordinator_.incarnation()),
      writer_([this](const RunWrite& write) { return WriteTo(folder_.get(), write); },
              {.written = [this](const RunWrite& write,
                                 const absl::Status& status) { WriteEnded(write, status); },
               .retries =
                   [this] {
                     MutexLock lock(&mutex_);
                     effects_changed_.SignalAll();
                   }},
              clock_, logger_) {
  MutexLock lock(&mutex_);
  Coordinator::Effects effects;
  coordinator_.Begin(&effects);
  Deliver(std::move(effects));
  // No calls arrive yet. If the record cannot be written soon, later callers see that in the
  // status.
  const absl::Time until = clock_->Now() + kBeginPatience;
  while (!effects_.idle() && writer_.NowAtDisk().trouble.empty()) {
    const absl::Duration left = until - clock_->Now();
    if (left <= absl::ZeroDuration()) break;
    effects_changed_.WaitFor(&mutex_, left);
  }
  ticker_ = std::thread([this] { RunTicks(); });
}

CoordinatorHost::~CoordinatorHost() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    writer_.StopRetrying();
    stopping_changed_.SignalAll();
    effects_changed_.SignalAll();
  }
  ticker_.join();
  MutexLock lock(&mutex_);
  while (!effects_.idle()) effects_changed_.Wait(&mutex_);
}

void CoordinatorHost::RunTicks() {
  MutexLock lock(&mutex_);
  while (!stopping_) {
    stopping_changed_.WaitFor(&mutex_, tick_);
    const absl::Time now = clock_->Now();
    // While a state is not announced yet, the core must not make decisions. The core treats this
    // time as a pause of its own process.
    if (!effects_.AwaitsRecord()) {
      Coordinator::Effects effects;
      coordinator_.Tick(now, &effects);
      Deliver(std::move(effects));
    }
    if (history_.due() <= now) history_.Add(coordinator_.Status(now), now);
  }
}

JoinToken CoordinatorHost::Join(JoinWaiter* waiter, protocol::WorkerJoin join) {
  MutexLock lock(&mutex_);
  const JoinToken token = calls_.AddJoin(waiter);
  Coordinator::Effects effects;
  coordinator_.Join(token, std::move(join), clock_->Now(), &effects);
  Deliver(std::move(effects));
  return token;
}

bool CoordinatorHost::JoinCancelled(JoinToken token) {
  MutexLock lock(&mutex_);
  if (!calls_.ForgetJoin(token)) return false;
  coordinator_.JoinCancelled(token);
  return true;
}

absl::StatusOr<protocol::JobState> CoordinatorHost::Heartbeat(
    const protocol::WorkerHeartbeat& heartbeat) {
  MutexLock lock(&mutex_);
  Coordinator::Effects effects;
  absl::StatusOr<protocol::JobState> state =
      coordinator_.Heartbeat(heartbeat, clock_->Now(), &effects);
  Deliver(std::move(effects));
  return Announced(std::move(state), heartbeat.sender);
}

absl::StatusOr<protocol::JobState> CoordinatorHost::Leave(const protocol::WorkerLeave& leave) {
  MutexLock lock(&mutex_);
  Coordinator::Effects effects;
  absl::StatusOr<protocol::JobState> state = coordinator_.Leave(leave, clock_->Now(), &effects);
  Deliver(std::move(effects));
  return Announced(std::move(state), leave.last.sender);
}

absl::Status CoordinatorHost::WorkerPart(const protocol::Sender& sender,
                                         const protocol::CheckpointPart& part) {
  MutexLock lock(&mutex_);
  Coordinator::Effects effects;
  absl::Status status = coordinator_.WorkerPart(sender, part, clock_->Now(), &effects);
  Deliver(std::move(effects));
  return status;
}

CheckpointToken CoordinatorHost::RequestCheckpoint(CheckpointAnswer answer) {
  MutexLock lock(&mutex_);
  const CheckpointToken token = calls_.AddRequest(std::move(answer));
  Coordinator::Effects effects;
  coordinator_.RequestCheckpoint(token, &effects);
  Deliver(std::move(effects));
  return token;
}

bool CoordinatorHost::RequestCancelled(CheckpointToken token) {
  MutexLock lock(&mutex_);
  coordinator_.RequestCancelled(token);
  return calls_.ForgetRequest(token);
}

ControlStreamId CoordinatorHost::Open(CommandOutput* output) {
  MutexLock lock(&mutex_);
  return calls_.AddStream(output);
}

absl::StatusOr<uint64_t> CoordinatorHost::NumberShard() {
  MutexLock lock(&mutex_);
  // The coordinator's own number may not be on disk yet. A successor could then get the same number
  // and give the same numbers to shards.
  const absl::Status written = CheckRecordIsWritten();
  if (!written.ok()) return written;
  return coordinator_.NumberShard();
}

absl::Status CoordinatorHost::CheckRecordIsWritten() const {
  if (!effects_.AwaitsRecord()) return absl::OkStatus();
  return absl::UnavailableError("the coordinator waits for run.json to be written; ask again");
}

absl::StatusOr<std::string> CoordinatorHost::Evict(const Eviction& eviction) {
  MutexLock lock(&mutex_);
  const absl::Status written = CheckRecordIsWritten();
  if (!written.ok()) return written;
  Coordinator::Effects effects;
  absl::StatusOr<std::string> outcome = coordinator_.Evict(eviction, clock_->Now(), &effects);
  Deliver(std::move(effects));
  return outcome;
}

absl::StatusOr<RunningSettings> CoordinatorHost::Change(const RunningSettings& change) {
  MutexLock lock(&mutex_);
  const absl::Status written = CheckRecordIsWritten();
  if (!written.ok()) return written;
  Coordinator::Effects effects;
  absl::StatusOr<RunningSettings> settings = coordinator_.Change(change, &effects);
  Deliver(std::move(effects));
  return settings;
}

void CoordinatorHost::ShardArrived(ControlStreamId stream, const protocol::ShardArrival& arrival) {
  MutexLock lock(&mutex_);
  Coordinator::Effects effects;
  coordinator_.AttachShard(stream, arrival, clock_->Now(), &effects);
  Deliver(std::move(effects));
}

void CoordinatorHost::ShardHealth(ControlStreamId stream,
                                  const protocol::ShardHealthReport& health) {
  MutexLock lock(&mutex_);
  coordinator_.ShardHealth(stream, health, clock_->Now());
}

void CoordinatorHost::ShardAcknowledged(ControlStreamId stream, uint64_t sequence) {
  MutexLock lock(&mutex_);
  Coordinator::Effects effects;
  coordinator_.ShardAcknowledged(stream, sequence, clock_->Now(), &effects);
  Deliver(std::move(effects));
}

void CoordinatorHost::ShardFailed(ControlStreamId stream, absl::string_view reason) {
  MutexLock lock(&mutex_);
  Coordinator::Effects effects;
  coordinator_.ShardFailed(stream, reason, &effects);
  Deliver(std::move(effects));
}

void CoordinatorHost::ShardPart(ControlStreamId stream, const protocol::CheckpointPart& part) {
  MutexLock lock(&mutex_);
  Coordinator::Effects effects;
  coordinator_.ShardPart(stream, part, clock_->Now(), &effects);
  Deliver(std::move(effects));
}

void CoordinatorHost::PartExamined(ControlStreamId stream, const protocol::CheckpointPart& part) {
  MutexLock lock(&mutex_);
  Coordinator::Effects effects;
  coordinator_.PartExamined(stream, part, clock_->Now(), &effects);
  Deliver(std::move(effects));
}

void CoordinatorHost::ShardNamedCheckpoint(ControlStreamId stream, uint64_t step) {
  MutexLock lock(&mutex_);
  coordinator_.ShardNamedCheckpoint(stream, step);
}

void CoordinatorHost::ShardNotReproducible(ControlStreamId stream, uint32_t rank,
                                           absl::string_view reason) {
  MutexLock lock(&mutex_);
  Coordinator::Effects effects;
  coordinator_.ShardNotReproducible(stream, rank, reason, clock_->Now(), &effects);
  Deliver(std::move(effects));
}

void CoordinatorHost::ShardRefusedRank(ControlStreamId stream, uint32_t rank, uint64_t incarnation,
                                       absl::string_view reason) {
  MutexLock lock(&mutex_);
  Coordinator::Effects effects;
  coordinator_.ShardRefusedRank(stream, rank, incarnation, reason, clock_->Now(), &effects);
  Deliver(std::move(effects));
}

void CoordinatorHost::ShardGone(ControlStreamId stream) {
  MutexLock lock(&mutex_);
  calls_.ForgetStream(stream);
  coordinator_.ShardDetached(stream);
}

void CoordinatorHost::StartRackTerm(uint32_t term, uint64_t restore_step, bool parameters_agree) {
  MutexLock lock(&mutex_);
  Coordinator::Effects effects;
  coordinator_.StartRackTerm(term, restore_step, parameters_agree, clock_->Now(), &effects);
  Deliver(std::move(effects));
}

void CoordinatorHost::ParentLost(uint32_t term, absl::string_view cause) {
  MutexLock lock(&mutex_);
  Coordinator::Effects effects;
  coordinator_.ParentLost(term, cause, clock_->Now(), &effects);
  Deliver(std::move(effects));
}

void CoordinatorHost::FinishParent(uint32_t term) {
  MutexLock lock(&mutex_);
  Coordinator::Effects effects;
  coordinator_.FinishParent(term, &effects);
  Deliver(std::move(effects));
}

void CoordinatorHost::ReleaseCheckpoints(uint64_t durable_step) {
  MutexLock lock(&mutex_);
  coordinator_.ReleaseCheckpoints(durable_step);
}

bool CoordinatorHost::HasCheckpoint(uint64_t step) const {
  MutexLock lock(&mutex_);
  return coordinator_.HasCheckpoint(step);
}

std::optional<absl::Status> CoordinatorHost::CheckpointOutcome(uint64_t step) const {
  MutexLock lock(&mutex_);
  return coordinator_.CheckpointOutcome(step);
}

void CoordinatorHost::Fail(absl::string_view reason) {
  MutexLock lock(&mutex_);
  Coordinator::Effects effects;
  coordinator_.Fail(reason, &effects);
  Deliver(std::move(effects));
}

bool CoordinatorHost::Drained() const {
  MutexLock lock(&mutex_);
  return coordinator_.Drained() && effects_.idle();
}

bool CoordinatorHost::AnyToldEnd() const {
  MutexLock lock(&mutex_);
  return coordinator_.AnyToldEnd();
}

void CoordinatorHost::PlanMade(const protocol::CompressionPlan& plan,
                               std::optional<PlanBytes> bytes) {
  MutexLock lock(&mutex_);
  plans_.Add(plan, std::move(bytes));
}

JobStatus CoordinatorHost::StatusNow() const {
  JobStatus status = coordinator_.Status(clock_->Now());
  status.codecs = plans_.codecs();
  protocol::DiskWait wait = writer_.NowAtDisk();
  if (!wait.what.empty()) {
    status.record_unwritten = effects_.AwaitsRecord() && !wait.trouble.empty();
    status.waits.push_back({.who = "the coordinator",
                            .what = std::move(wait.what),
                            .lasts = wait.lasts,
                            .trouble = std::move(wait.trouble)});
  }
  return status;
}

JobStatus CoordinatorHost::Status() const {
  MutexLock lock(&mutex_);
  return StatusNow();
}

std::vector<SlowestStream> CoordinatorHost::SlowestStreamsNow() const {
  MutexLock lock(&mutex_);
  return SlowestStreams(coordinator_.Streams());
}

JobReport CoordinatorHost::Report() const {
  MutexLock lock(&mutex_);
  return MakeReport(StatusNow(), history_, silence_);
}

void CoordinatorHost::Deliver(Coordinator::Effects effects) {
  // A record that cannot be written may be the reason why the queue is full.
  if (JobHasEnded()) writer_.StopRetrying();
  while (effects_.full() && !stopping_) effects_changed_.Wait(&mutex_);
  Enqueue(std::move(effects));
}

void CoordinatorHost::Enqueue(Coordinator::Effects effects) {
  if (JobHasEnded()) writer_.StopRetrying();
  effects_.Add(std::move(effects));
  CarryOutWaiting();
  LogEnd();
}

void CoordinatorHost::CarryOutWaiting() {
  while (std::optional<CoordinatorEffect> effect = effects_.Take()) CarryOut(*std::move(effect));
  if (!effects_.AwaitsRecord()) announced_ = coordinator_.State();
}

void CoordinatorHost::CarryOut(CoordinatorEffect effect) {
  if (auto* record = std::get_if<PersistRun>(&effect)) {
    writer_.Write(std::move(*record));
  } else if (auto* checkpoint = std::get_if<WriteCheckpoint>(&effect)) {
    writer_.Write(std::move(*checkpoint));
  } else if (const auto* removal = std::get_if<DropCheckpoint>(&effect)) {
    writer_.Write(*removal);
  } else if (const auto* join = std::get_if<AnswerJoin>(&effect)) {
    calls_.Answer(*join, clock_->Now());
  } else if (const auto* command = std::get_if<CommandShard>(&effect)) {
    calls_.Send(*command);
  } else if (const auto* refusal = std::get_if<RefuseShard>(&effect)) {
    calls_.Refuse(*refusal, clock_->Now());
  } else if (const auto* answer = std::get_if<AnswerCheckpoint>(&effect)) {
    calls_.Answer(*answer);
  } else if (const auto* ask = std::get_if<AskParent>(&effect)) {
    if (upper_ != nullptr) upper_->Asked(*ask);
  } else if (const auto* leave = std::get_if<LeaveParent>(&effect)) {
    if (upper_ != nullptr) upper_->Finished(*leave);
  } else {
    const Notice& notice = std::get<Notice>(effect);
    logger_.Write(notice.warning ? LogLevel::kWarning : LogLevel::kInfo, notice.fields,
                  notice.text);
  }
}

void CoordinatorHost::WriteEnded(const RunWrite& write, const absl::Status& status) {
  MutexLock lock(&mutex_);
  effects_.WriteEnded();
  if (const auto* persist = std::get_if<PersistRun>(&write)) {
    if (!status.ok()) RecordUnwritten(persist->record, status);
  } else if (const auto* checkpoint = std::get_if<WriteCheckpoint>(&write)) {
    Coordinator::Effects effects;
    coordinator_.CheckpointWritten(checkpoint->manifest.step, status, clock_->Now(), &effects);
    Enqueue(std::move(effects));
  } else if (!status.ok()) {
    logger_.Warning(status.message());  // The remaining files only waste disk space.
  }
  CarryOutWaiting();
  effects_changed_.SignalAll();
}

void CoordinatorHost::RecordUnwritten(const protocol::RunRecord& record,
                                      const absl::Status& status) {
  if (record.finished || coordinator_.phase() == protocol::JobPhase::kFinished) {
    // Only a later start needs this record.
    logger_.Warning(status.message());
    return;
  }
  const std::string reason =
      absl::StrCat("term ", record.term, " of the job cannot be recorded: ", status.message());
  calls_.FailAll(reason);
  effects_.DropUnannounced();
  if (stopping_) return;  // Another coordinator may continue the job.
  Coordinator::Effects effects;
  coordinator_.Fail(reason, &effects);
  Enqueue(std::move(effects));
}

absl::StatusOr<protocol::JobState> CoordinatorHost::Announced(
    absl::StatusOr<protocol::JobState> state, const protocol::Sender& sender) {
  if (!state.ok() || !effects_.AwaitsRecord()) return state;
  coordinator_.EndNotTold(sender);
  return announced_;
}

bool CoordinatorHost::JobHasEnded() const {
  const protocol::JobPhase phase = coordinator_.phase();
  return phase == protocol::JobPhase::kFinished || phase == protocol::JobPhase::kFailed;
}

void CoordinatorHost::LogEnd() {
  if (end_logged_ || !JobHasEnded()) return;
  end_logged_ = true;
  if (coordinator_.phase() == protocol::JobPhase::kFinished) {
    logger_.Write(LogLevel::kInfo, {.event = "job_finished"}, "the job has finished");
  } else {
    logger_.Write(LogLevel::kError, {.event = "job_failed"},
                  absl::StrCat("the job has failed: ", coordinator_.failure()));
  }
}

}  // namespace sluice::server
