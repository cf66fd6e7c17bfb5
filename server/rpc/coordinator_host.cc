#include "server/rpc/coordinator_host.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/rpc/convert.h"

namespace sluice {
namespace {

// Effects behind one that is for the disk. Each comes from a call or a shard's report.
constexpr size_t kWaitingMax = 10000;
constexpr absl::Duration kSilenceMin = absl::Seconds(5);

bool IsForDisk(const CoordinatorEffect& effect) {
  return std::holds_alternative<PersistRun>(effect) ||
         std::holds_alternative<WriteCheckpoint>(effect) ||
         std::holds_alternative<DropCheckpoint>(effect);
}

}  // namespace

CoordinatorHost::CoordinatorHost(CoordinatorOptions options, std::unique_ptr<RunFolder> folder,
                                 UpperSide* upper, const Clock* clock, Logger logger)
    : tick_(std::min(options.lease / 20, absl::Milliseconds(100))),
      silence_(std::max(3 * options.heartbeat, kSilenceMin)),
      clock_(clock),
      logger_(std::move(logger)),
      folder_(std::move(folder)),
      upper_(upper),
      plans_(options.compression, options.control, options.momentum_note),
      coordinator_(std::move(options), clock->Now()),
      incarnation_(coordinator_.incarnation()) {
  MutexLock lock(&mutex_);
  Coordinator::Effects effects;
  announced_ = coordinator_.State();
  coordinator_.Begin(&effects);
  Deliver(std::move(effects));
  while (!waiting_.empty()) WriteFirst();  // Nobody calls yet.
  ticker_ = std::thread([this] { RunTicks(); });
  writer_ = std::thread([this] { RunWrites(); });
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
    Coordinator::Effects effects;
    const absl::Time now = clock_->Now();
    coordinator_.Tick(now, &effects);
    Deliver(std::move(effects));
    if (history_.due() <= now) history_.Add(coordinator_.Status(now), now);
  }
}

JoinToken CoordinatorHost::Join(JoinWaiter* waiter, WorkerJoin join) {
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

absl::StatusOr<JobState> CoordinatorHost::Heartbeat(const WorkerHeartbeat& heartbeat) {
  MutexLock lock(&mutex_);
  Coordinator::Effects effects;
  absl::StatusOr<JobState> state = coordinator_.Heartbeat(heartbeat, clock_->Now(), &effects);
  Deliver(std::move(effects));
  return Announced(std::move(state), heartbeat.sender);
}

absl::StatusOr<JobState> CoordinatorHost::Leave(const WorkerLeave& leave) {
  MutexLock lock(&mutex_);
  Coordinator::Effects effects;
  absl::StatusOr<JobState> state = coordinator_.Leave(leave, clock_->Now(), &effects);
  Deliver(std::move(effects));
  return Announced(std::move(state), leave.last.sender);
}

absl::Status CoordinatorHost::WorkerPart(const Sender& sender, const CheckpointPart& part) {
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
  // The coordinator's own number may be what is not on disk yet; the next one could have the same,
  // and would give the same numbers.
  if (persisting_ > 0) {
    return absl::UnavailableError("the coordinator waits for run.json to be written; ask again");
  }
  return coordinator_.NumberShard();
}

void CoordinatorHost::ShardArrived(ControlStreamId stream, const ShardArrival& arrival) {
  MutexLock lock(&mutex_);
  Coordinator::Effects effects;
  coordinator_.AttachShard(stream, arrival, clock_->Now(), &effects);
  Deliver(std::move(effects));
}

void CoordinatorHost::ShardHealth(ControlStreamId stream, const ShardHealthReport& health) {
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

void CoordinatorHost::ShardPart(ControlStreamId stream, const CheckpointPart& part) {
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

void CoordinatorHost::BeginTerm(uint32_t term, uint64_t restore_step, bool parameters_agree) {
  MutexLock lock(&mutex_);
  Coordinator::Effects effects;
  coordinator_.BeginTerm(term, restore_step, parameters_agree, clock_->Now(), &effects);
  Deliver(std::move(effects));
}

void CoordinatorHost::AboveLost(uint32_t term, absl::string_view cause) {
  MutexLock lock(&mutex_);
  Coordinator::Effects effects;
  coordinator_.AboveLost(term, cause, clock_->Now(), &effects);
  Deliver(std::move(effects));
}

void CoordinatorHost::FinishAbove(uint32_t term) {
  MutexLock lock(&mutex_);
  Coordinator::Effects effects;
  coordinator_.FinishAbove(term, &effects);
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

void CoordinatorHost::PlanMade(const CompressionPlan& plan, std::optional<PlanBytes> bytes) {
  MutexLock lock(&mutex_);
  plans_.Add(plan, std::move(bytes));
}

JobStatus CoordinatorHost::StatusNow() const {
  JobStatus status = coordinator_.Status(clock_->Now());
  status.codecs = plans_.codecs();
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
  writing_ = false;
  if (const auto* persist = std::get_if<PersistRun>(&effect)) {
    --persisting_;
    Persisted(persist->record, status);
  } else if (const auto* write = std::get_if<WriteCheckpoint>(&effect)) {
    Coordinator::Effects effects;
    coordinator_.CheckpointWritten(write->manifest.step, status, clock_->Now(), &effects);
    Enqueue(std::move(effects));
  } else if (!status.ok()) {
    logger_.Warning(status.message());  // It only takes room.
  }
  CarryOutWaiting();
  waiting_changed_.SignalAll();
}

void CoordinatorHost::Persisted(const RunRecord& record, const absl::Status& status) {
  if (status.ok()) return;
  if (record.finished) {  // Then only a later start does not know it.
    logger_.Warning(status.message());
    return;
  }
  const std::string reason =
      absl::StrCat("term ", record.term, " of the job cannot be recorded: ", status.message());
  for (const auto& [token, answer] : requests_) answer(absl::UnavailableError(reason));
  requests_.clear();
  // What was to follow is void: nobody may hear of it.
  for (const auto& [token, waiter] : waiters_) {
    waiter->Answer(absl::FailedPreconditionError(reason));
  }
  waiters_.clear();
  waiting_.clear();
  persisting_ = 0;
  Coordinator::Effects effects;
  coordinator_.Fail(reason, &effects);
  Enqueue(std::move(effects));
}

absl::StatusOr<JobState> CoordinatorHost::Announced(absl::StatusOr<JobState> state,
                                                    const Sender& sender) {
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
      logger_.Write(LogLevel::kWarning, {.event = "worker_refused"},
                    absl::StrCat("a worker was refused: ", status.message()));
    }
    waiter->second->Answer(join->grant);
    waiters_.erase(waiter);
  } else if (const auto* command = std::get_if<CommandShard>(&effect)) {
    const auto output = outputs_.find(command->stream);
    if (output == outputs_.end()) return;
    output->second->Send(std::make_shared<const v1::ShardCommand>(CommandToProto(*command)));
  } else if (const auto* refusal = std::get_if<RefuseShard>(&effect)) {
    logger_.Write(LogLevel::kWarning, {.event = "shard_refused"},
                  absl::StrCat("a shard was refused: ", refusal->why.message()));
    const auto output = outputs_.find(refusal->stream);
    if (output != outputs_.end()) output->second->Close(ToGrpc(refusal->why));
  } else if (const auto* answer = std::get_if<AnswerCheckpoint>(&effect)) {
    const auto request = requests_.find(answer->token);
    if (request == requests_.end()) return;
    request->second(answer->step);
    requests_.erase(request);
  } else if (const auto* ask = std::get_if<AskAbove>(&effect)) {
    if (upper_ != nullptr) upper_->Asked(*ask);
  } else if (const auto* leave = std::get_if<LeaveAbove>(&effect)) {
    if (upper_ != nullptr) upper_->Finished(*leave);
  } else {
    const Notice& notice = std::get<Notice>(effect);
    logger_.Write(notice.warning ? LogLevel::kWarning : LogLevel::kInfo, notice.fields,
                  notice.text);
  }
}

void CoordinatorHost::LogEnd() {
  const JobPhase phase = coordinator_.phase();
  if (end_logged_ || (phase != JobPhase::kFinished && phase != JobPhase::kFailed)) return;
  end_logged_ = true;
  if (phase == JobPhase::kFinished) {
    logger_.Write(LogLevel::kInfo, {.event = "job_finished"}, "the job has finished");
  } else {
    logger_.Write(LogLevel::kError, {.event = "job_failed"},
                  absl::StrCat("the job has failed: ", coordinator_.failure()));
  }
}

}  // namespace sluice
