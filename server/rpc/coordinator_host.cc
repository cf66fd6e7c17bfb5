#include "server/rpc/coordinator_host.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net/grpc/grpc_status.h"
#include "protocol/wire/shard_messages.h"

namespace sluice::server {
namespace {

// Maximum number of effects behind a disk write. Each comes from a call or a shard's report.
constexpr size_t kWaitingMax = 10000;
constexpr absl::Duration kSilenceMin = absl::Seconds(5);
// Time to wait for a coordinator's first record before it serves calls.
constexpr absl::Duration kBeginPatience = absl::Seconds(2);
// Pause between two attempts to write the run record. The pause doubles each time.
constexpr absl::Duration kWriteAgainMin = absl::Milliseconds(100);
constexpr absl::Duration kWriteAgainMax = absl::Seconds(2);

bool IsForDisk(const CoordinatorEffect& effect) {
  return std::holds_alternative<PersistRun>(effect) ||
         std::holds_alternative<WriteCheckpoint>(effect) ||
         std::holds_alternative<DropCheckpoint>(effect);
}

// Returns true if the effect is still delivered after the job has failed.
bool MayBeTold(const CoordinatorEffect& effect) {
  const auto* command = std::get_if<CommandShard>(&effect);
  return std::holds_alternative<Notice>(effect) || std::holds_alternative<RefuseShard>(effect) ||
         (command != nullptr && std::holds_alternative<protocol::EndShard>(command->command));
}

// Returns true if a retry may succeed. Returns false if another coordinator owns the folder now.
bool MayBeWrittenLater(const absl::Status& status) {
  return !status.ok() && !absl::IsFailedPrecondition(status) && !absl::IsInvalidArgument(status);
}

std::string Describe(const CoordinatorEffect& effect) {
  if (const auto* persist = std::get_if<PersistRun>(&effect)) {
    return absl::StrCat("the record of term ", persist->record.term,
                        persist->record.generation > 0
                            ? absl::StrCat(", generation ", persist->record.generation)
                            : "",
                        " (run.json)");
  }
  if (const auto* write = std::get_if<WriteCheckpoint>(&effect)) {
    return absl::StrCat("the manifest of the checkpoint after step ", write->manifest.step);
  }
  return absl::StrCat("the removal of the checkpoint after step ",
                      std::get<DropCheckpoint>(effect).step);
}

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
    : tick_(std::min(options.lease / 20, absl::Milliseconds(100))),
      silence_(std::max(3 * options.heartbeat, kSilenceMin)),
      clock_(clock),
      logger_(std::move(logger)),
      folder_(std::move(folder)),
      upper_(upper),
      plans_(options.compression, options.control, options.momentum_note),
      announced_(StateOfRecord(options)),
      coordinator_(std::move(options), clock->Now()),
      incarnation_(coordinator_.incarnation()) {
  MutexLock lock(&mutex_);
  Coordinator::Effects effects;
  coordinator_.Begin(&effects);
  Deliver(std::move(effects));
  writer_ = std::thread([this] { RunWrites(); });
  // No calls arrive yet. If the record cannot be written soon, later callers see that in the
  // status.
  const absl::Time until = clock_->Now() + kBeginPatience;
  while ((!waiting_.empty() || writing_) && disk_wait_.trouble.empty()) {
    const absl::Duration left = until - clock_->Now();
    if (left <= absl::ZeroDuration()) break;
    waiting_changed_.WaitFor(&mutex_, left);
  }
  ticker_ = std::thread([this] { RunTicks(); });
}

CoordinatorHost::~CoordinatorHost() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    stopping_changed_.SignalAll();
    waiting_changed_.SignalAll();
  }
  ticker_.join();
  writer_.join();
}

void CoordinatorHost::RunTicks() {
  MutexLock lock(&mutex_);
  while (!stopping_) {
    stopping_changed_.WaitFor(&mutex_, tick_);
    const absl::Time now = clock_->Now();
    // While a state is not announced yet, the core must not make decisions. The core treats this
    // time as a pause of its own process.
    if (persisting_ == 0) {
      Coordinator::Effects effects;
      coordinator_.Tick(now, &effects);
      Deliver(std::move(effects));
    }
    if (history_.due() <= now) history_.Add(coordinator_.Status(now), now);
  }
}

JoinToken CoordinatorHost::Join(JoinWaiter* waiter, protocol::WorkerJoin join) {
  MutexLock lock(&mutex_);
  const JoinToken token = ++last_id_;
  waiters_.emplace(token, waiter);
  Coordinator::Effects effects;
  coordinator_.Join(token, std::move(join), clock_->Now(), &effects);
  Deliver(std::move(effects));
  return token;
}

bool CoordinatorHost::JoinCancelled(JoinToken token) {
  MutexLock lock(&mutex_);
  if (waiters_.erase(token) == 0) return false;
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
  const CheckpointToken token = ++last_id_;
  requests_.emplace(token, std::move(answer));
  Coordinator::Effects effects;
  coordinator_.RequestCheckpoint(token, &effects);
  Deliver(std::move(effects));
  return token;
}

bool CoordinatorHost::RequestCancelled(CheckpointToken token) {
  MutexLock lock(&mutex_);
  coordinator_.RequestCancelled(token);
  return requests_.erase(token) > 0;
}

ControlStreamId CoordinatorHost::Open(ControlOutput* output) {
  MutexLock lock(&mutex_);
  outputs_.emplace(++last_id_, output);
  return last_id_;
}

absl::StatusOr<uint64_t> CoordinatorHost::NumberShard() {
  MutexLock lock(&mutex_);
  // The coordinator's own number may not be on disk yet. A successor could then get the same number
  // and give the same numbers to shards.
  if (persisting_ > 0) {
    return absl::UnavailableError("the coordinator waits for run.json to be written; ask again");
  }
  return coordinator_.NumberShard();
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

void CoordinatorHost::ShardGone(ControlStreamId stream) {
  MutexLock lock(&mutex_);
  outputs_.erase(stream);
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
  return coordinator_.Drained() && waiting_.empty() && !writing_;
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
  if (!disk_wait_.what.empty()) {
    status.waits.push_back({.who = "the coordinator",
                            .what = disk_wait_.what,
                            .lasts = clock_->Now() - disk_wait_.since,
                            .trouble = disk_wait_.trouble});
    status.record_unwritten = persisting_ > 0 && !disk_wait_.trouble.empty();
  }
  return status;
}

JobStatus CoordinatorHost::Status() const {
  MutexLock lock(&mutex_);
  return StatusNow();
}

JobReport CoordinatorHost::Report() const {
  MutexLock lock(&mutex_);
  return MakeReport(StatusNow(), history_, silence_);
}

void CoordinatorHost::Deliver(Coordinator::Effects effects) {
  while (waiting_.size() > kWaitingMax && !stopping_) waiting_changed_.Wait(&mutex_);
  Enqueue(std::move(effects));
}

void CoordinatorHost::Enqueue(Coordinator::Effects effects) {
  for (CoordinatorEffect& effect : effects) {
    if (std::holds_alternative<PersistRun>(effect)) ++persisting_;
    waiting_.push_back(std::move(effect));
  }
  CarryOutWaiting();
  if (!waiting_.empty()) waiting_changed_.SignalAll();
  LogEnd();
}

void CoordinatorHost::CarryOutWaiting() {
  while (!writing_ && !waiting_.empty() && !IsForDisk(waiting_.front())) {
    const CoordinatorEffect effect = std::move(waiting_.front());
    waiting_.pop_front();
    CarryOut(effect);
  }
  if (persisting_ == 0) announced_ = coordinator_.State();
}

void CoordinatorHost::RunWrites() {
  MutexLock lock(&mutex_);
  while (!stopping_ || !waiting_.empty()) {
    if (waiting_.empty()) {
      waiting_changed_.Wait(&mutex_);
    } else {
      WriteFirst();
    }
  }
}

void CoordinatorHost::WriteFirst() {
  const CoordinatorEffect effect = std::move(waiting_.front());
  waiting_.pop_front();
  writing_ = true;
  disk_wait_ = {.what = Describe(effect), .since = clock_->Now()};
  absl::Status status = Write(effect);
  for (absl::Duration pause = kWriteAgainMin; MayBeWrittenLater(status) && MustBeWritten(effect);
       pause = std::min(2 * pause, kWriteAgainMax)) {
    ReportUnwritten(status);
    PauseWriting(effect, pause);
    if (MustBeWritten(effect)) status = Write(effect);
  }
  if (status.ok() && !disk_wait_.trouble.empty()) {
    logger_.Write(LogLevel::kInfo, {.event = "record_written"},
                  absl::StrCat(disk_wait_.what, " is written; the job continues"));
  }
  writing_ = false;
  disk_wait_ = OwnWait();
  Written(effect, status);
  CarryOutWaiting();
  waiting_changed_.SignalAll();
}

absl::Status CoordinatorHost::Write(const CoordinatorEffect& effect) {
  mutex_.Unlock();
  absl::Status status;
  if (const auto* persist = std::get_if<PersistRun>(&effect)) {
    status = folder_->Persist(persist->record);
  } else if (const auto* write = std::get_if<WriteCheckpoint>(&effect)) {
    status = folder_->Write(write->manifest);
  } else {
    status = folder_->Drop(std::get<DropCheckpoint>(effect).step);
  }
  mutex_.Lock();
  return status;
}

// Returns true if the job cannot continue without the record. Once the job has finished, all
// present parties learn that without the record. A failed job announces nothing.
bool CoordinatorHost::MustBeWritten(const CoordinatorEffect& effect) const {
  const auto* persist = std::get_if<PersistRun>(&effect);
  const protocol::JobPhase phase = coordinator_.phase();
  return persist != nullptr && !persist->record.finished && !stopping_ &&
         phase != protocol::JobPhase::kFinished && phase != protocol::JobPhase::kFailed;
}

void CoordinatorHost::ReportUnwritten(const absl::Status& status) {
  const std::string& trouble = disk_wait_.trouble = std::string(status.message());
  // The file name in the error differs between attempts, so only the code is compared.
  if (std::exchange(disk_wait_.code, status.code()) == status.code()) return;
  logger_.Write(
      LogLevel::kWarning, {.event = "record_unwritten"},
      absl::StrCat(
          disk_wait_.what, " cannot be written: ", trouble,
          "; the coordinator retries, and until it succeeds the membership cannot change"));
  waiting_changed_.SignalAll();
}

void CoordinatorHost::PauseWriting(const CoordinatorEffect& effect, absl::Duration pause) {
  const absl::Time until = clock_->Now() + pause;
  while (MustBeWritten(effect)) {
    const absl::Duration left = until - clock_->Now();
    if (left <= absl::ZeroDuration()) return;
    waiting_changed_.WaitFor(&mutex_, left);
  }
}

void CoordinatorHost::Written(const CoordinatorEffect& effect, const absl::Status& status) {
  if (const auto* persist = std::get_if<PersistRun>(&effect)) {
    --persisting_;
    Persisted(persist->record, status);
  } else if (const auto* write = std::get_if<WriteCheckpoint>(&effect)) {
    Coordinator::Effects effects;
    coordinator_.CheckpointWritten(write->manifest.step, status, clock_->Now(), &effects);
    Enqueue(std::move(effects));
  } else if (!status.ok()) {
    logger_.Warning(status.message());  // The remaining files only waste disk space.
  }
}

void CoordinatorHost::Persisted(const protocol::RunRecord& record, const absl::Status& status) {
  if (status.ok()) return;
  if (record.finished || coordinator_.phase() == protocol::JobPhase::kFinished) {
    // Only a later start needs this record.
    logger_.Warning(status.message());
    return;
  }
  const std::string reason =
      absl::StrCat("term ", record.term, " of the job cannot be recorded: ", status.message());
  DropUnannounced(reason);
  if (stopping_) return;  // Another coordinator may continue the job.
  Coordinator::Effects effects;
  coordinator_.Fail(reason, &effects);
  Enqueue(std::move(effects));
}

// Drops waiting effects, because the job or this process ends before they could be recorded. No
// party may learn of them.
void CoordinatorHost::DropUnannounced(absl::string_view reason) {
  for (const auto& [token, answer] : requests_) answer(absl::UnavailableError(reason));
  requests_.clear();
  for (const auto& [token, waiter] : waiters_) {
    waiter->Answer(absl::FailedPreconditionError(reason));
  }
  waiters_.clear();
  std::erase_if(waiting_, [](const CoordinatorEffect& effect) { return !MayBeTold(effect); });
  persisting_ = 0;
}

absl::StatusOr<protocol::JobState> CoordinatorHost::Announced(
    absl::StatusOr<protocol::JobState> state, const protocol::Sender& sender) {
  if (!state.ok() || persisting_ == 0) return state;
  coordinator_.EndNotTold(sender);
  return announced_;
}

void CoordinatorHost::CarryOut(const CoordinatorEffect& effect) {
  if (const auto* join = std::get_if<AnswerJoin>(&effect)) {
    const auto waiter = waiters_.find(join->token);
    if (waiter == waiters_.end()) return;
    const absl::Status status = join->grant.status();
    if (absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status)) {
      LogRefusal({.event = "worker_refused"},
                 absl::StrCat("a worker was refused: ", status.message()));
    }
    waiter->second->Answer(join->grant);
    waiters_.erase(waiter);
  } else if (const auto* command = std::get_if<CommandShard>(&effect)) {
    const auto output = outputs_.find(command->stream);
    if (output == outputs_.end()) return;
    auto message = std::make_shared<const v1::ShardCommand>(
        protocol::CommandToProto(command->sequence, command->command));
    const size_t bytes = message->ByteSizeLong();
    output->second->Send(std::move(message), bytes);
  } else if (const auto* refusal = std::get_if<RefuseShard>(&effect)) {
    LogRefusal({.event = "shard_refused"},
               absl::StrCat("a shard was refused: ", refusal->why.message()));
    const auto output = outputs_.find(refusal->stream);
    if (output != outputs_.end()) output->second->Close(net::ToGrpc(refusal->why));
  } else if (const auto* answer = std::get_if<AnswerCheckpoint>(&effect)) {
    const auto request = requests_.find(answer->token);
    if (request == requests_.end()) return;
    request->second(answer->step);
    requests_.erase(request);
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

// Limits these log lines, because a client with the job's credentials can be refused repeatedly.
void CoordinatorHost::LogRefusal(const LogFields& kind, absl::string_view text) {
  const std::optional<uint64_t> silent = refusals_[kind.event].Say(clock_->Now());
  if (!silent.has_value()) return;
  logger_.Write(LogLevel::kWarning, kind,
                *silent == 0 ? std::string(text)
                             : absl::StrCat(text, " (and ", *silent,
                                            " more since the last line of this kind)"));
}

void CoordinatorHost::LogEnd() {
  const protocol::JobPhase phase = coordinator_.phase();
  if (end_logged_ ||
      (phase != protocol::JobPhase::kFinished && phase != protocol::JobPhase::kFailed))
    return;
  end_logged_ = true;
  if (phase == protocol::JobPhase::kFinished) {
    logger_.Write(LogLevel::kInfo, {.event = "job_finished"}, "the job has finished");
  } else {
    logger_.Write(LogLevel::kError, {.event = "job_failed"},
                  absl::StrCat("the job has failed: ", coordinator_.failure()));
  }
}

}  // namespace sluice::server
