#include "server/rpc/shard_agent.h"

#include <grpcpp/client_context.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "server/rpc/convert.h"
#include "server/rpc/steady_deadline.h"

namespace sluice::server {
namespace {

constexpr absl::Duration kRetryPause = absl::Milliseconds(200);
constexpr absl::Duration kAskAgainPause = absl::Seconds(1);
// After the end, for the acknowledgement to arrive.
constexpr absl::Duration kFarewell = absl::Seconds(2);

// Trying again would give the same answer.
bool IsFinal(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::ALREADY_EXISTS:
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::UNIMPLEMENTED:
      return true;
    default:
      return false;
  }
}

}  // namespace

ShardAgent::ShardAgent(Options options, std::shared_ptr<grpc::Channel> channel, ShardHost* host,
                       const Clock* clock, Logger logger)
    : options_(std::move(options)),
      channel_(std::move(channel)),
      host_(host),
      clock_(clock),
      logger_(std::move(logger)),
      last_contact_(clock->Now()) {
  host_->ReportTo([this](const ShardHost::News& news) { Tell(news); });
  thread_ = std::thread([this] { Run(); });
}

ShardAgent::~ShardAgent() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    if (context_ != nullptr) context_->TryCancel();
    changed_.SignalAll();
  }
  thread_.join();
  host_->ReportTo(nullptr);
}

void ShardAgent::Tell(const ShardHost::News& news) {
  v1::ShardReport report;
  std::optional<v1::ShardReport>* last = &named_;
  if (const auto* part = std::get_if<protocol::CheckpointPart>(&news)) {
    PartToProto(*part, report.mutable_part());
    last = &part_;
  } else if (const auto* other = std::get_if<NotReproducible>(&news)) {
    report.mutable_not_reproducible()->set_rank(other->rank);
    report.mutable_not_reproducible()->set_step(other->step);
    report.mutable_not_reproducible()->set_reason(ValidText(other->text));
    last = &not_reproducible_;
  } else {
    report.set_checkpoint_named(std::get<CheckpointNamed>(news).step);
  }
  MutexLock lock(&mutex_);
  *last = report;
  // The worker asks until the job goes back: once is enough.
  if (last == &not_reproducible_ && Waits(report.report_case())) return;
  outbox_.push_back(std::move(report));
  changed_.SignalAll();
}

bool ShardAgent::Waits(v1::ShardReport::ReportCase kind) const {
  return std::any_of(outbox_.begin(), outbox_.end(),
                     [&](const v1::ShardReport& report) { return report.report_case() == kind; });
}

// News of an earlier term is none.
void ShardAgent::BeginTerm(uint32_t term) {
  MutexLock lock(&mutex_);
  if (term <= term_) return;
  term_ = term;
  named_.reset();
  part_.reset();
  not_reproducible_.reset();
  std::erase_if(outbox_, [](const v1::ShardReport& report) {
    return report.has_part() || report.has_not_reproducible() ||
           report.report_case() == v1::ShardReport::kCheckpointNamed;
  });
}

void ShardAgent::ReportFailure(absl::string_view reason) {
  v1::ShardReport report;
  report.set_failed(ValidText(reason));
  MutexLock lock(&mutex_);
  outbox_.push_back(std::move(report));
  changed_.SignalAll();
}

ShardAgent::End ShardAgent::end() const {
  MutexLock lock(&mutex_);
  return end_;
}

bool ShardAgent::WasLetIn() const {
  MutexLock lock(&mutex_);
  return incarnation_ != 0;
}

bool ShardAgent::ShouldStop() const {
  MutexLock lock(&mutex_);
  return stopping_ || end_.ended;
}

void ShardAgent::EndWith(JobPhase phase, std::string reason) {
  host_->End(phase == JobPhase::kFinished ? "the job has finished" : reason);
  SetEnd(phase, std::move(reason));
}

void ShardAgent::GiveUp(std::string reason) {
  if (!options_.has_successors) return EndWith(JobPhase::kFailed, std::move(reason));
  host_->Withdraw(reason);
  SetEnd(JobPhase::kFailed, std::move(reason));
}

void ShardAgent::SetEnd(JobPhase phase, std::string reason) {
  MutexLock lock(&mutex_);
  if (!end_.ended) end_ = {.ended = true, .phase = phase, .reason = std::move(reason)};
  changed_.SignalAll();
}

void ShardAgent::Run() {
  bool told = false;  // The log knows that the token is refused.
  while (!ShouldStop()) {
    grpc::Status status = Enter();
    if (status.ok()) status = Attach();
    if (ShouldStop()) break;
    const bool refused = status.error_code() == grpc::StatusCode::UNAUTHENTICATED;
    // Once it was let in, its token is right, and the files are being changed.
    if (refused && !WasLetIn()) {
      GiveUp(absl::StrCat("the coordinator (", options_.coordinator,
                          ") refuses this shard: ", status.error_message()));
      break;
    }
    if (refused && !told) {
      logger_.Warning("the coordinator (", options_.coordinator,
                      ") refuses this shard, which it has let in before; trying again: ",
                      status.error_message());
    }
    told = refused;
    if (IsFinal(status)) {
      GiveUp(status.error_message());
      break;
    }
    if (PatienceIsOver(status)) break;
    MutexLock lock(&mutex_);
    do {
      if (!stopping_) changed_.WaitFor(&mutex_, kRetryPause);
    } while (!stopping_ && clock_->Now() < ask_again_at_);
  }
}

bool ShardAgent::PatienceIsOver(const grpc::Status& status) {
  absl::Duration patience;
  {
    MutexLock lock(&mutex_);
    patience = std::max(heard_ ? options_.lease : options_.join_timeout, options_.wait_limit);
    if (clock_->Now() - last_contact_ <= patience) return false;
  }
  const bool refused = status.error_code() == grpc::StatusCode::UNAUTHENTICATED;
  GiveUp(absl::StrCat("the coordinator (", options_.coordinator, ") ",
                      refused ? "has refused this shard for " : "could not be reached for ",
                      absl::FormatDuration(patience), ": ",
                      options_.transport->Explain(status.error_message())));
  return true;
}

v1::ShardReport ShardAgent::Hello() const {
  ShardArrival hello = options_.hello;
  const ShardHost::Work work = host_->work();
  hello.job_uid = work.job_uid;
  hello.term = work.term;
  hello.running = work.running;
  {
    MutexLock lock(&mutex_);
    hello.server_incarnation = incarnation_;
  }
  v1::ShardReport report;
  *report.mutable_hello() = HelloToProto(hello);
  return report;
}

grpc::Status ShardAgent::Enter() {
  grpc::ClientContext context;
  {
    MutexLock lock(&mutex_);
    if (stopping_) return grpc::Status::CANCELLED;
    if (incarnation_ != 0) return grpc::Status::OK;
    context_ = &context;
  }
  // One that stands still is asked again, by the rule for one that cannot be reached.
  context.set_deadline(SteadyDeadline(options_.lease));
  v1::EnterReply reply;
  const grpc::Status status =
      v1::ShardControl::NewStub(channel_)->Enter(&context, v1::EnterRequest(), &reply);
  if (status.ok()) host_->SetIncarnation(reply.server_incarnation());
  MutexLock lock(&mutex_);
  context_ = nullptr;
  if (status.ok()) incarnation_ = reply.server_incarnation();
  return status;
}

grpc::Status ShardAgent::Attach() {
  grpc::ClientContext context;
  {
    MutexLock lock(&mutex_);
    if (stopping_) return grpc::Status::CANCELLED;
    context_ = &context;
    reading_ = true;
    // Acknowledgements are of commands of the stream before. The coordinator gives them again; if
    // it is another process, its own may have the same numbers.
    std::erase_if(outbox_, [](const v1::ShardReport& report) {
      return report.report_case() == v1::ShardReport::kAcknowledged;
    });
    for (const std::optional<v1::ShardReport>* news : {&named_, &part_, &not_reproducible_}) {
      if (news->has_value() && !Waits((*news)->report_case())) outbox_.push_back(**news);
    }
  }
  const std::unique_ptr<v1::ShardControl::Stub> stub = v1::ShardControl::NewStub(channel_);
  const std::unique_ptr<Stream> stream = stub->Attach(&context);
  stream->Write(Hello());  // If it fails, so do reading and Finish, which says why.
  std::thread reader([this, &stream] { ReadCommands(stream.get()); });
  Talk(stream.get());
  reader.join();
  const grpc::Status status = stream->Finish();
  MutexLock lock(&mutex_);
  context_ = nullptr;
  return status;
}

void ShardAgent::ReadCommands(Stream* stream) {
  v1::ShardCommand command;
  while (stream->Read(&command)) Obey(command);
  MutexLock lock(&mutex_);
  reading_ = false;
  changed_.SignalAll();
}

// Writes health and whatever waits in the outbox until the stream or the job is over.
void ShardAgent::Talk(Stream* stream) {
  absl::Time next_health = clock_->Now();
  absl::Time farewell = absl::InfiniteFuture();
  for (;;) {
    v1::ShardReport report;
    {
      MutexLock lock(&mutex_);
      if (!reading_) return;
      const absl::Time now = clock_->Now();
      if (!outbox_.empty()) {
        report = std::move(outbox_.front());
        outbox_.erase(outbox_.begin());
      } else if (farewell < absl::InfiniteFuture()) {
        if (now >= farewell) context_->TryCancel();
        changed_.WaitFor(&mutex_, kRetryPause);
        continue;
      } else if (end_.ended) {
        farewell = now + kFarewell;
        stream->WritesDone();
        continue;
      } else if (now < next_health) {
        changed_.WaitFor(&mutex_, next_health - now);
        continue;
      }
    }
    const bool is_health = report.report_case() == v1::ShardReport::REPORT_NOT_SET;
    if (is_health) {
      *report.mutable_health() = HealthToProto(host_->Health());
      host_->Tick();
    }
    const bool written = stream->Write(report);
    const absl::Time now = clock_->Now();
    MutexLock lock(&mutex_);
    if (is_health) next_health = now + options_.heartbeat;
    if (written && heard_) last_contact_ = now;
    // What must not be lost goes again on the next stream.
    if (!written && !is_health) outbox_.insert(outbox_.begin(), std::move(report));
    while (!written && reading_) changed_.WaitFor(&mutex_, kRetryPause);
  }
}

void ShardAgent::Obey(const v1::ShardCommand& command) {
  {
    MutexLock lock(&mutex_);
    heard_ = true;
    last_contact_ = clock_->Now();
  }
  const absl::Status done = Do(command);
  // The coordinator has been told which checkpoint is damaged, and goes further back.
  if (absl::IsDataLoss(done)) {
    logger_.Warning("cannot begin: ", done.message());
    return;
  }
  if (absl::IsUnavailable(done)) return AskAgain(done);
  if (!done.ok()) {
    logger_.Error("the coordinator's command ", command.sequence(), ": ", done.message());
    ReportFailure(done.message());
    return;
  }
  v1::ShardReport acknowledged;
  acknowledged.set_acknowledged(command.sequence());
  MutexLock lock(&mutex_);
  outbox_.push_back(std::move(acknowledged));
  changed_.SignalAll();
}

void ShardAgent::AskAgain(const absl::Status& why) {
  MutexLock lock(&mutex_);
  if (why.message() != trouble_) {
    trouble_ = std::string(why.message());
    logger_.Warning(trouble_, "; trying again");
  }
  ask_again_at_ = clock_->Now() + kAskAgainPause;
  if (context_ != nullptr) context_->TryCancel();
}

absl::Status ShardAgent::Do(const v1::ShardCommand& command) {
  switch (command.command_case()) {
    case v1::ShardCommand::kStart:
      return ObeyStart(command.start());
    case v1::ShardCommand::kMembership: {
      absl::StatusOr<SetMembers> members = MembersFromProto(command.membership());
      if (!members.ok()) return members.status();
      return host_->SetMembership(members->generation, members->incarnations);
    }
    case v1::ShardCommand::kEnd:
      EndWith(PhaseFromProto(command.end().phase()), command.end().reason());
      return absl::OkStatus();
    case v1::ShardCommand::kNameCheckpoint:
      return host_->NameCheckpoint(command.name_checkpoint().minimum_step());
    case v1::ShardCommand::kSuspend:
      BeginTerm(command.suspend().term());
      host_->Suspend(command.suspend().term(), command.suspend().reason());
      return absl::OkStatus();
    case v1::ShardCommand::kRelease:
      host_->ReleaseResults(command.release().durable_step());
      return absl::OkStatus();
    case v1::ShardCommand::kKeep:
      host_->KeepCheckpoints({command.keep().steps().begin(), command.keep().steps().end()},
                             command.keep().before());
      return absl::OkStatus();
    case v1::ShardCommand::kPlan:
    case v1::ShardCommand::COMMAND_NOT_SET:
      break;
  }
  return absl::UnimplementedError("the coordinator sent a command that this version has not");
}

absl::Status ShardAgent::ObeyStart(const v1::StartJob& job) {
  const absl::StatusOr<StartShard> start = StartFromProto(job);
  if (!start.ok()) return start.status();
  BeginTerm(start->term);
  return host_->Start(*start);
}

}  // namespace sluice::server
