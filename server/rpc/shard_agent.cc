// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/shard_agent.h"

#include <grpcpp/client_context.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "net/grpc/steady_deadline.h"
#include "protocol/wire/common_messages.h"
#include "protocol/wire/shard_messages.h"

namespace sluice::server {
namespace {

constexpr absl::Duration kRetryPause = absl::Milliseconds(200);
constexpr absl::Duration kAskAgainPause = absl::Seconds(1);
// After the job has ended, the agent waits this long for its acknowledgement to arrive.
constexpr absl::Duration kFarewell = absl::Seconds(2);

// Returns true if a retry would fail in the same way.
bool IsFinal(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::ALREADY_EXISTS:
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::PERMISSION_DENIED:
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
  host_->ReportTo([this](const ShardHost::ShardEvent& event) { Report(event); });
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

void ShardAgent::Report(const ShardHost::ShardEvent& event) {
  v1::ShardReport report;
  std::optional<v1::ShardReport>* last = &named_;
  if (const auto* part = std::get_if<protocol::CheckpointPart>(&event)) {
    protocol::PartToProto(*part, report.mutable_part());
    last = &part_;
  } else if (const auto* other = std::get_if<NotReproducible>(&event)) {
    report.mutable_not_reproducible()->set_rank(other->rank);
    report.mutable_not_reproducible()->set_step(other->step);
    report.mutable_not_reproducible()->set_reason(ValidText(other->text));
    last = &not_reproducible_;
  } else if (const auto* refused = std::get_if<RankRefused>(&event)) {
    return ReportRefused(*refused);
  } else if (const auto* examined = std::get_if<protocol::PartExamined>(&event)) {
    return ReportExamined(*examined);
  } else {
    report.set_checkpoint_named(std::get<CheckpointNamed>(event).step);
  }
  MutexLock lock(&mutex_);
  *last = report;
  // One report is enough, although the worker asks repeatedly until the job rolls back.
  if (last == &not_reproducible_ && Waits(report.report_case())) return;
  outbox_.push_back(std::move(report));
  changed_.SignalAll();
}

// Lost with its stream: the coordinator repeats the command on the next stream.
void ShardAgent::ReportExamined(const protocol::PartExamined& examined) {
  v1::ShardReport report;
  protocol::PartToProto(examined.part, report.mutable_part_examined());
  MutexLock lock(&mutex_);
  outbox_.push_back(std::move(report));
  changed_.SignalAll();
}

void ShardAgent::ReportRefused(const RankRefused& refused) {
  v1::ShardReport report;
  report.mutable_rank_refused()->set_rank(refused.rank);
  report.mutable_rank_refused()->set_incarnation(refused.incarnation);
  report.mutable_rank_refused()->set_reason(ValidText(refused.text));
  MutexLock lock(&mutex_);
  refused_[refused.rank] = report;
  outbox_.push_back(std::move(report));
  changed_.SignalAll();
}

bool ShardAgent::Waits(v1::ShardReport::ReportCase kind) const {
  return std::any_of(outbox_.begin(), outbox_.end(),
                     [&](const v1::ShardReport& report) { return report.report_case() == kind; });
}

// Drops these reports because they are obsolete.
void ShardAgent::DropReportsOfEarlierTerms(uint32_t term) {
  MutexLock lock(&mutex_);
  if (term <= term_) return;
  term_ = term;
  named_.reset();
  part_.reset();
  not_reproducible_.reset();
  refused_.clear();
  std::erase_if(outbox_, [](const v1::ShardReport& report) {
    return report.has_part() || report.has_not_reproducible() || report.has_rank_refused() ||
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

void ShardAgent::EndWith(protocol::JobPhase phase, std::string reason) {
  host_->End(phase == protocol::JobPhase::kFinished ? "the job has finished" : reason);
  SetEnd(phase, std::move(reason));
}

void ShardAgent::GiveUp(std::string reason) {
  if (!options_.has_successors) return EndWith(protocol::JobPhase::kFailed, std::move(reason));
  host_->Withdraw(reason);
  SetEnd(protocol::JobPhase::kFailed, std::move(reason));
}

void ShardAgent::SetEnd(protocol::JobPhase phase, std::string reason) {
  MutexLock lock(&mutex_);
  if (!end_.ended) end_ = {.ended = true, .phase = phase, .reason = std::move(reason)};
  changed_.SignalAll();
}

void ShardAgent::Run() {
  bool told = false;  // True if the refusal of the token has been logged.
  while (!ShouldStop()) {
    grpc::Status status = Enter();
    if (status.ok()) status = Attach();
    if (ShouldStop()) break;
    const bool refused = status.error_code() == grpc::StatusCode::UNAUTHENTICATED;
    // If the shard was admitted before, its token was valid then. The token files are probably
    // being changed, so the agent retries.
    if (refused && !WasLetIn()) {
      GiveUp(absl::StrCat("the coordinator (", options_.coordinator,
                          ") refuses this shard: ", status.error_message()));
      break;
    }
    if (refused && !told) {
      logger_.Warning("the coordinator (", options_.coordinator,
                      ") refuses this shard, which it has accepted before; trying again: ",
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
    patience = std::max(heard_ ? options_.lease : options_.join_timeout, options_.rejoin_timeout);
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
  protocol::ShardArrival hello = options_.hello;
  const ShardHost::Work work = host_->work();
  hello.job_uid = work.job_uid;
  hello.term = work.term;
  hello.running = work.running;
  {
    MutexLock lock(&mutex_);
    hello.server_incarnation = incarnation_;
  }
  v1::ShardReport report;
  *report.mutable_hello() = protocol::HelloToProto(hello);
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
  // If the coordinator does not answer in time, the agent tries again, as with an unreachable
  // coordinator.
  context.set_deadline(net::SteadyDeadline(options_.lease));
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
    answered_ = false;
    // These answer commands of the previous stream. The coordinator repeats these commands, and a
    // restarted coordinator may use the same numbers for other commands.
    std::erase_if(outbox_, [](const v1::ShardReport& report) {
      return report.report_case() == v1::ShardReport::kAcknowledged ||
             report.report_case() == v1::ShardReport::kPartExamined;
    });
    for (const std::optional<v1::ShardReport>* event : {&named_, &part_, &not_reproducible_}) {
      if (event->has_value() && !Waits((*event)->report_case())) outbox_.push_back(**event);
    }
    if (!Waits(v1::ShardReport::kRankRefused)) {
      for (const auto& [rank, report] : refused_) outbox_.push_back(report);
    }
  }
  const std::unique_ptr<v1::ShardControl::Stub> stub = v1::ShardControl::NewStub(channel_);
  const std::unique_ptr<Stream> stream = stub->Attach(&context);
  // If this write fails, the reads fail too, and Finish returns the reason.
  stream->Write(Hello());
  std::thread reader([this, &stream] { ReadCommands(stream.get()); });
  Talk(stream.get());
  reader.join();
  const grpc::Status status = stream->Finish();
  MutexLock lock(&mutex_);
  context_ = nullptr;
  return status;
}

void ShardAgent::ReadCommands(Stream* stream) {
  stream->WaitForInitialMetadata();  // If there is no metadata, Read fails.
  {
    MutexLock lock(&mutex_);
    answered_ = true;
    changed_.SignalAll();
  }
  v1::ShardCommand command;
  while (stream->Read(&command)) Obey(command);
  MutexLock lock(&mutex_);
  reading_ = false;
  changed_.SignalAll();
}

// Writes health reports and the outbox until the stream or the job has ended.
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
      } else if (!answered_) {  // Health reports are large in big jobs.
        changed_.WaitFor(&mutex_, kRetryPause);
        continue;
      } else if (now < next_health) {
        changed_.WaitFor(&mutex_, next_health - now);
        continue;
      }
    }
    const bool is_health = report.report_case() == v1::ShardReport::REPORT_NOT_SET;
    if (is_health) {
      *report.mutable_health() = protocol::HealthToProto(host_->Health());
      host_->Tick();
    }
    const bool written = stream->Write(report);
    const absl::Time now = clock_->Now();
    MutexLock lock(&mutex_);
    if (is_health) next_health = now + options_.heartbeat;
    if (written && heard_) last_contact_ = now;
    // A report that must not be lost is kept for the next stream.
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
  const absl::StatusOr<protocol::ShardCommand> order = protocol::CommandFromProto(command);
  const absl::Status done = order.ok() ? Do(*order) : order.status();
  // The host has reported the damaged checkpoint, so the coordinator will roll back further.
  if (absl::IsDataLoss(done)) {
    logger_.Warning("cannot start: ", done.message());
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

absl::Status ShardAgent::Do(const protocol::ShardCommand& command) {
  if (const auto* start = std::get_if<protocol::StartShard>(&command)) {
    DropReportsOfEarlierTerms(start->term);
    return host_->Start(*start);
  }
  if (const auto* members = std::get_if<protocol::SetMembers>(&command)) {
    return host_->SetMembership(members->generation, members->incarnations);
  }
  if (const auto* name = std::get_if<protocol::NameCheckpoint>(&command)) {
    return host_->NameCheckpoint(name->minimum_step);
  }
  if (const auto* suspend = std::get_if<protocol::SuspendShard>(&command)) {
    DropReportsOfEarlierTerms(suspend->term);
    host_->Suspend(suspend->term, suspend->reason);
  } else if (const auto* release = std::get_if<protocol::ReleaseResults>(&command)) {
    host_->ReleaseResults(release->durable_step);
  } else if (const auto* keep = std::get_if<protocol::KeepCheckpoints>(&command)) {
    host_->KeepCheckpoints(keep->steps, keep->before);
  } else if (const auto* examine = std::get_if<protocol::ExaminePart>(&command)) {
    if (host_->examiner() != nullptr) host_->examiner()->Examine(examine->part);
  } else if (const auto* log = std::get_if<protocol::SetLogLevel>(&command)) {
    logger_.SetLowest(log->lowest);
  } else {
    const auto& end = std::get<protocol::EndShard>(command);
    EndWith(end.phase, end.reason);
  }
  return absl::OkStatus();
}

}  // namespace sluice::server
