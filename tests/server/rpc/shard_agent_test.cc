// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/shard_agent.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <thread>

#include "protocol/wire/common_messages.h"
#include "protocol/wire/shard_messages.h"
#include "server/rpc/parameter_service.h"
#include "tests/rpc/await.h"
#include "tests/rpc/host_fixture.h"
#include "tests/server/rpc/slow_copy.h"

namespace sluice::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using ReportCase = v1::ShardReport::ReportCase;

// A fake coordinator that tests drive: the other end of Attach.
class FakeControl final : public v1::ShardControl::Service {
 public:
  using Stream = grpc::ServerReaderWriter<v1::ShardCommand, v1::ShardReport>;

  grpc::Status Enter(grpc::ServerContext* /*context*/, const v1::EnterRequest* /*request*/,
                     v1::EnterReply* reply) override {
    MutexLock lock(&mutex_);
    if (away_) return {grpc::StatusCode::UNAVAILABLE, "away"};
    if (!refuses_.ok()) return refuses_;
    reply->set_server_incarnation(++numbered_);
    return grpc::Status::OK;
  }
  grpc::Status Attach(grpc::ServerContext* context, Stream* stream) override {
    {
      MutexLock lock(&mutex_);
      if (away_) return {grpc::StatusCode::UNAVAILABLE, "away"};
      if (!refuses_.ok()) {
        ++refused_;
        return refuses_;
      }
      if (!holds_) stream->SendInitialMetadata();
      stream_ = stream;
      context_ = context;
      changed_.SignalAll();
    }
    v1::ShardReport report;
    while (stream->Read(&report)) {
      MutexLock lock(&mutex_);
      reports_.push_back(report);
      changed_.SignalAll();
    }
    MutexLock lock(&mutex_);
    stream_ = nullptr;
    changed_.SignalAll();
    return grpc::Status::OK;
  }

  // Sends a command on the current stream, or on the next stream if there is none.
  void Command(uint64_t sequence, const protocol::ShardCommand& command) {
    MutexLock lock(&mutex_);
    while (stream_ == nullptr) changed_.Wait(&mutex_);
    stream_->Write(protocol::CommandToProto(sequence, command));
  }
  // Returns the next report of this kind. Drops all reports before it.
  v1::ShardReport Await(ReportCase kind) {
    MutexLock lock(&mutex_);
    for (;;) {
      while (reports_.empty()) changed_.Wait(&mutex_);
      const v1::ShardReport report = reports_.front();
      reports_.erase(reports_.begin());
      if (report.report_case() == kind) return report;
    }
  }
  // Returns whether `count` reports of this kind have arrived since reports were last dropped.
  bool Has(size_t count, ReportCase kind) {
    MutexLock lock(&mutex_);
    return std::count_if(reports_.begin(), reports_.end(), [kind](const v1::ShardReport& report) {
             return report.report_case() == kind;
           }) >= static_cast<std::ptrdiff_t>(count);
  }
  void Forget() {
    MutexLock lock(&mutex_);
    reports_.clear();
  }
  // Waits until the agent acknowledges this command.
  void AwaitAcknowledged(uint64_t sequence) {
    while (Await(ReportCase::kAcknowledged).acknowledged() != sequence) {
    }
  }
  // Breaks the stream. While away, the fake coordinator refuses new streams.
  void GoAway(bool away) {
    MutexLock lock(&mutex_);
    away_ = away;
    if (stream_ == nullptr) return;
    context_->TryCancel();
    while (stream_ != nullptr) changed_.Wait(&mutex_);
    reports_.clear();
  }
  void ComeBack() {
    MutexLock lock(&mutex_);
    away_ = false;
  }
  // Delays the next stream until Begin is called.
  void Hold() {
    MutexLock lock(&mutex_);
    holds_ = true;
  }
  void Begin() {
    MutexLock lock(&mutex_);
    holds_ = false;
    stream_->SendInitialMetadata();
  }
  // Refuses all processes with `status` from now on, including the connected one. OK refuses none.
  void Refuse(const grpc::Status& status) {
    MutexLock lock(&mutex_);
    refuses_ = status;
    if (stream_ != nullptr) context_->TryCancel();
  }
  int refused() {
    MutexLock lock(&mutex_);
    return refused_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool away_ ABSL_GUARDED_BY(mutex_) = false;
  bool holds_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status refuses_ ABSL_GUARDED_BY(mutex_);
  int refused_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t numbered_ ABSL_GUARDED_BY(mutex_) = 4;
  Stream* stream_ ABSL_GUARDED_BY(mutex_) = nullptr;
  grpc::ServerContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::vector<v1::ShardReport> reports_ ABSL_GUARDED_BY(mutex_);
};

// An agent with its host, which serves workers, and a fake coordinator.
class ShardAgentTest : public HostFixture {
 protected:
  void Serve(absl::Duration rejoin_timeout) {
    host_ = MakeHost();
    parameters_ = std::make_unique<ParameterService>(
        host_.get(),
        ParameterService::Limits{.answers_max = 100, .message_bytes_max = size_t{1} << 20},
        net::Transport::Plain());
    grpc::ServerBuilder builder;
    builder.RegisterService(&control_);
    builder.RegisterService(parameters_.get());
    server_ = builder.BuildAndStart();
    ShardAgent::Options options;
    options.hello.job_name = "test";
    options.coordinator = "there:2";
    options.heartbeat = absl::Milliseconds(20);
    options.lease = lease_;
    options.join_timeout = absl::Milliseconds(300);
    options.rejoin_timeout = rejoin_timeout;
    options.has_successors = true;
    agent_ = std::make_unique<ShardAgent>(std::move(options), server_->InProcessChannel({}),
                                          host_.get(), &clock_, Logger("test"));
    EXPECT_EQ(control_.Await(ReportCase::kHello).hello().job_name(), "test");
  }
  void TearDown() override {
    if (server_ != nullptr) Kill();
  }
  // Ends the shard as if its process died, without a message to any party.
  void Kill() {
    agent_.reset();
    server_->Shutdown(TestDeadline());
    server_->Wait();
    server_.reset();
    parameters_.reset();
    host_.reset();
  }

  void StartAndSave() {
    control_.Command(1, StartOf(0, 0));
    control_.AwaitAcknowledged(1);
    control_.Command(2, protocol::NameCheckpoint{.minimum_step = 3});
    control_.AwaitAcknowledged(2);
    for (uint64_t step = 1; step <= 3; ++step) RunStep(host_.get(), 0, step);
  }
  static v1::ExchangeRequest Request(uint32_t term, uint64_t step) {
    v1::ExchangeRequest request;
    request.mutable_sender()->set_job_uid(kHostJob);
    request.mutable_sender()->set_term(term);
    request.mutable_sender()->set_incarnation(100);
    request.mutable_sender()->set_generation(1);
    request.set_step(step);
    request.set_acked_step(step - 1);
    request.add_contributions()->set_frame(NoneFrame({1, 2, 3, 4, 5, 6, 7, 8}));
    return request;
  }
  static v1::ExchangeReply AskOn(FakeWorker::Stream* stream, const v1::ExchangeRequest& request) {
    stream->Write(request);
    v1::ExchangeReply reply;
    Check(stream->Read(&reply), "a reply came");
    return reply;
  }
  void AwaitEnd() {
    AwaitThat([&] { return agent_->end().ended; });
  }

  FakeControl control_;
  std::unique_ptr<ShardHost> host_;
  std::unique_ptr<ParameterService> parameters_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<ShardAgent> agent_;
  absl::Duration lease_ = absl::Milliseconds(300);
};

TEST_F(ShardAgentTest, TellsOfCheckpointsAndTellsItAgainOnANewStream) {
  Serve(absl::Seconds(100));
  StartAndSave();
  EXPECT_EQ(control_.Await(ReportCase::kCheckpointNamed).checkpoint_named(), 3u);
  const v1::ShardReport part = control_.Await(ReportCase::kPart);
  EXPECT_EQ(part.part().step(), 3u);
  EXPECT_EQ(part.part().error(), "");
  EXPECT_EQ(part.part().name(), "shard-0-term-0.state");
  control_.GoAway(false);
  control_.Await(ReportCase::kHello);
  EXPECT_EQ(control_.Await(ReportCase::kCheckpointNamed).checkpoint_named(), 3u);
  EXPECT_EQ(control_.Await(ReportCase::kPart).SerializeAsString(), part.SerializeAsString());
}

TEST_F(ShardAgentTest, KeepsItsLeaseWhileASnapshotIsCopied) {
  SlowCopy copy;
  before_copy_ = copy.hook();
  Serve(absl::Seconds(100));
  std::thread training([&] { StartAndSave(); });
  EXPECT_TRUE(copy.AwaitBegin()) << "no snapshot was taken after step 3";
  // Waits several leases. One report may have been in flight before Forget.
  control_.Forget();
  constexpr size_t kHeartbeats = 50;
  AwaitThat([&] { return control_.Has(kHeartbeats, ReportCase::kHealth); });
  copy.LetEnd();
  training.join();
  EXPECT_EQ(control_.Await(ReportCase::kPart).part().error(), "");
  EXPECT_FALSE(agent_->end().ended);
}

TEST_F(ShardAgentTest, ReportsOfHealthWaitUntilTheCoordinatorHasBegunTheStream) {
  control_.Hold();
  Serve(absl::Seconds(100));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // Ten reports are due.
  EXPECT_FALSE(control_.Has(1, ReportCase::kHealth));
  control_.Begin();
  control_.Await(ReportCase::kHealth);
}

TEST_F(ShardAgentTest, HelloSaysWhatTheShardWorksForAlready) {
  Serve(absl::Seconds(100));
  control_.Command(1, StartOf(2, 0));
  control_.AwaitAcknowledged(1);
  control_.GoAway(false);
  const v1::ShardHello hello = control_.Await(ReportCase::kHello).hello();
  EXPECT_TRUE(hello.running());
  EXPECT_EQ(hello.job_uid(), kHostJob);
  EXPECT_EQ(hello.term(), 2u);
  control_.Command(1, protocol::SuspendShard{.term = 3, .reason = "rank 1 was lost"});
  control_.AwaitAcknowledged(1);
  control_.GoAway(false);
  const v1::ShardHello suspended = control_.Await(ReportCase::kHello).hello();
  EXPECT_FALSE(suspended.running());
  EXPECT_EQ(suspended.term(), 3u);
}

TEST_F(ShardAgentTest, MembersAndReleasesAreTakenAndAcknowledged) {
  Serve(absl::Seconds(100));
  StartAndSave();
  control_.Command(3, protocol::ReleaseResults{.durable_step = 1});
  control_.AwaitAcknowledged(3);
  EXPECT_EQ(host_->Health().results_from, 2u);
  while (control_.Await(ReportCase::kHealth).health().results_from() != 2) {
  }
  control_.Command(4, protocol::SetMembers{.generation = 2, .incarnations = {200}});
  control_.AwaitAcknowledged(4);

  const auto stub = v1::ParameterShard::NewStub(server_->InProcessChannel({}));
  grpc::ClientContext context;
  context.set_deadline(TestDeadline());
  const std::unique_ptr<FakeWorker::Stream> stream = stub->Exchange(&context);
  EXPECT_EQ(AskOn(stream.get(), Request(0, 4)).outcome(), v1::OUTCOME_FENCED);
  v1::ExchangeRequest other = Request(0, 2);
  other.mutable_sender()->set_incarnation(200);
  other.set_acked_step(0);
  EXPECT_EQ(AskOn(stream.get(), other).outcome(), v1::OUTCOME_BUSY);
  const v1::NotReproducible told = control_.Await(ReportCase::kNotReproducible).not_reproducible();
  EXPECT_EQ(told.rank(), 0u);
  EXPECT_EQ(told.step(), 2u);
  EXPECT_THAT(told.reason(), HasSubstr("not deterministic"));
  control_.GoAway(false);
  // The report is sent again, because the previous one may have been lost.
  control_.Await(ReportCase::kNotReproducible);
  stream->WritesDone();
}

// The process of a shard dies while its streams are open, and the next process replays the steps.
// It must resume from what the workers send.
TEST_F(ShardAgentTest, ARestartedShardTakesItsStepsUpAgainFromWhatTheWorkersSend) {
  Serve(absl::Seconds(100));
  control_.Command(1, StartOf(0, 0));
  control_.Command(2, protocol::NameCheckpoint{.minimum_step = 3});
  control_.AwaitAcknowledged(2);
  std::vector<v1::ExchangeReply> before(1);
  {
    const auto stub = v1::ParameterShard::NewStub(server_->InProcessChannel({}));
    grpc::ClientContext context;
    context.set_deadline(TestDeadline());
    const std::unique_ptr<FakeWorker::Stream> stream = stub->Exchange(&context);
    for (uint64_t step = 1; step <= 6; ++step) {
      before.push_back(AskOn(stream.get(), Request(0, step)));
      ASSERT_EQ(before.back().outcome(), v1::OUTCOME_RESULT);
    }
    Complete(protocol::CheckedPartFromProto(control_.Await(ReportCase::kPart).part()));
    context.TryCancel();
  }
  control_.GoAway(true);
  Kill();
  control_.ComeBack();

  Serve(absl::Seconds(100));
  protocol::StartShard start = StartOf(0, 3);
  start.replay = true;
  control_.Command(1, start);
  control_.AwaitAcknowledged(1);
  const auto stub = v1::ParameterShard::NewStub(server_->InProcessChannel({}));
  grpc::ClientContext context;
  context.set_deadline(TestDeadline());
  const std::unique_ptr<FakeWorker::Stream> stream = stub->Exchange(&context);
  const v1::ExchangeReply need = AskOn(stream.get(), Request(0, 6));
  EXPECT_EQ(need.outcome(), v1::OUTCOME_NEED);
  EXPECT_EQ(need.need_from(), 4u);
  EXPECT_EQ(need.server_incarnation(), 6u);
  for (uint64_t step = 4; step <= 6; ++step) {
    v1::ExchangeReply again = AskOn(stream.get(), Request(0, step));
    EXPECT_EQ(again.server_incarnation(), 6u);
    again.set_server_incarnation(5);
    // ready_ns is measured again. Everything else must be unchanged.
    EXPECT_GT(again.ready_ns(), before[step].ready_ns());
    again.set_ready_ns(before[step].ready_ns());
    EXPECT_EQ(again.SerializeAsString(), before[step].SerializeAsString()) << step;
  }
  EXPECT_EQ(host_->Health().results_from, 4u);
  stream->WritesDone();
}

TEST_F(ShardAgentTest, ARollbackFencesTheOldTermAndBeginsTheNewFromTheCheckpoint) {
  Serve(absl::Seconds(100));
  StartAndSave();
  const protocol::CheckpointPart part =
      protocol::CheckedPartFromProto(control_.Await(ReportCase::kPart).part());
  Complete(part);
  const std::string fourth = RunStep(host_.get(), 0, 4);

  const auto stub = v1::ParameterShard::NewStub(server_->InProcessChannel({}));
  grpc::ClientContext context;
  context.set_deadline(TestDeadline());
  const std::unique_ptr<FakeWorker::Stream> stream = stub->Exchange(&context);
  EXPECT_EQ(AskOn(stream.get(), Request(0, 5)).outcome(), v1::OUTCOME_RESULT);
  control_.Command(7, protocol::SuspendShard{.term = 1, .reason = "rank 1 was lost"});
  v1::ExchangeReply told;
  ASSERT_TRUE(stream->Read(&told)) << "the shard must send the answer without a request";
  EXPECT_EQ(told.outcome(), v1::OUTCOME_FENCED);
  EXPECT_EQ(told.term(), 1u);
  EXPECT_EQ(told.message(), "rank 1 was lost");
  control_.AwaitAcknowledged(7);
  const v1::ExchangeReply late = AskOn(stream.get(), Request(0, 6));
  EXPECT_EQ(late.outcome(), v1::OUTCOME_FENCED) << "a late request of the old term is fenced";
  EXPECT_EQ(late.term(), 1u);
  EXPECT_EQ(AskOn(stream.get(), Request(1, 4)).outcome(), v1::OUTCOME_BUSY);

  control_.Command(8, StartOf(1, 3));
  control_.AwaitAcknowledged(8);
  const v1::ExchangeReply fenced = AskOn(stream.get(), Request(0, 6));
  EXPECT_EQ(fenced.outcome(), v1::OUTCOME_FENCED);
  EXPECT_EQ(fenced.term(), 1u);
  EXPECT_EQ(RunStep(host_.get(), 1, 4), fourth);
  stream->WritesDone();
  // Reports of the previous term must not be repeated.
  control_.GoAway(false);
  control_.Await(ReportCase::kHello);
  control_.Command(9, protocol::NameCheckpoint{.minimum_step = 7});
  control_.AwaitAcknowledged(9);
  RunStep(host_.get(), 1, 5);
  EXPECT_EQ(control_.Await(ReportCase::kCheckpointNamed).checkpoint_named(), 7u);
}

TEST_F(ShardAgentTest, ADamagedPartIsReportedNotAcknowledgedAndNotTheEnd) {
  Serve(absl::Seconds(100));
  StartAndSave();
  const protocol::CheckpointPart part =
      protocol::CheckedPartFromProto(control_.Await(ReportCase::kPart).part());
  Complete(part);
  Damage(part);
  control_.Command(7, StartOf(1, 3));
  v1::ShardReport report;
  while (report.part().error().empty()) report = control_.Await(ReportCase::kPart);
  EXPECT_EQ(report.part().step(), 3u);
  EXPECT_EQ(report.part().name(), "shard-0-term-1.state");
  EXPECT_THAT(report.part().error(), HasSubstr(part.name));
  control_.Command(8, StartOf(2, 0));
  EXPECT_EQ(control_.Await(ReportCase::kAcknowledged).acknowledged(), 8u)
      << "command 7 failed and is not acknowledged";
  EXPECT_FALSE(agent_->end().ended);
}

TEST_F(ShardAgentTest, WhatCannotBeRestoredForAnotherReasonIsAFailure) {
  Serve(absl::Seconds(100));
  StartAndSave();
  Complete(protocol::CheckedPartFromProto(control_.Await(ReportCase::kPart).part()));
  protocol::StartShard other = StartOf(1, 3);
  other.table[0].shape[0] = 9;
  control_.Command(7, other);
  EXPECT_THAT(control_.Await(ReportCase::kFailed).failed(), HasSubstr("chunk 0 was saved as"));
}

TEST_F(ShardAgentTest, WaitsForACoordinatorThatComesBackWithinTheLimit) {
  Serve(absl::Seconds(100));
  StartAndSave();
  Complete(protocol::CheckedPartFromProto(control_.Await(ReportCase::kPart).part()));
  control_.GoAway(true);
  const absl::Time gone = clock_.Now();
  while (clock_.Now() - gone < absl::Seconds(1)) {
    EXPECT_FALSE(agent_->end().ended);
    std::this_thread::yield();
  }
  EXPECT_FALSE(RunStep(host_.get(), 0, 4).empty())
      << "the shard must serve workers in the meantime";
  control_.ComeBack();
  control_.Await(ReportCase::kHello);
  control_.Command(1, protocol::SuspendShard{.term = 1, .reason = "the coordinator was restarted"});
  protocol::StartShard start = StartOf(1, 3);
  start.coordinator_incarnation = 9;
  control_.Command(2, start);
  control_.AwaitAcknowledged(2);
  EXPECT_EQ(host_->Health().highest_closed_step, 3u);
}

// Another process serves the shard. The refused shard must break its streams without FENCED, so
// that workers look for the other process.
TEST_F(ShardAgentTest, ARefusedShardBreaksItsStreamsAndFencesNobody) {
  Serve(absl::Seconds(100));
  StartAndSave();
  const auto stub = v1::ParameterShard::NewStub(server_->InProcessChannel({}));
  grpc::ClientContext context;
  context.set_deadline(TestDeadline());
  const std::unique_ptr<FakeWorker::Stream> stream = stub->Exchange(&context);
  EXPECT_EQ(AskOn(stream.get(), Request(0, 4)).outcome(), v1::OUTCOME_RESULT);
  control_.Refuse({grpc::StatusCode::FAILED_PRECONDITION, "another one came later"});
  AwaitEnd();
  EXPECT_EQ(agent_->end().reason, "another one came later");
  v1::ExchangeReply reply;
  EXPECT_FALSE(stream->Read(&reply)) << reply.ShortDebugString();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  grpc::ClientContext later;
  later.set_deadline(TestDeadline());
  const std::unique_ptr<FakeWorker::Stream> next = stub->Exchange(&later);
  next->Write(Request(0, 5));
  EXPECT_FALSE(next->Read(&reply)) << reply.ShortDebugString();
  EXPECT_EQ(next->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(absl::IsUnavailable(host_->CheckSender(SenderOf(0))));
}

TEST_F(ShardAgentTest, ATokenThatIsRefusedOnceTheShardWasLetInIsTriedAgain) {
  Serve(absl::Seconds(100));
  control_.Command(1, StartOf(0, 0));
  control_.AwaitAcknowledged(1);
  control_.Refuse({grpc::StatusCode::UNAUTHENTICATED, "a wrong token"});
  AwaitThat([this] { return control_.refused() >= 2; });
  EXPECT_FALSE(agent_->end().ended);
  control_.Refuse(grpc::Status::OK);
  EXPECT_TRUE(control_.Await(ReportCase::kHello).hello().running());
}

TEST_F(ShardAgentTest, ATokenThatStaysRefusedIsTheEndWhenPatienceIsOver) {
  lease_ = absl::Seconds(3);  // Long enough for two heartbeats on a busy machine.
  Serve(absl::ZeroDuration());
  control_.Command(1, StartOf(0, 0));
  control_.AwaitAcknowledged(1);
  control_.Refuse({grpc::StatusCode::UNAUTHENTICATED, "a wrong token"});
  AwaitEnd();
  EXPECT_GE(control_.refused(), 2);
  EXPECT_THAT(agent_->end().reason,
              AllOf(HasSubstr("refused this shard for 3s"), HasSubstr("a wrong token")));
}

TEST_F(ShardAgentTest, AProcessKeepsItsNumberOnNewStreams) {
  Serve(absl::Seconds(100));
  for (int i = 0; i < 2; ++i) {
    control_.GoAway(false);
    EXPECT_EQ(control_.Await(ReportCase::kHello).hello().server_incarnation(), 5u);
  }
}

TEST_F(ShardAgentTest, WithoutCheckpointsACoordinatorThatIsGoneForALeaseIsTheEnd) {
  Serve(absl::ZeroDuration());
  control_.Command(1, StartOf(0, 0));
  control_.AwaitAcknowledged(1);
  control_.GoAway(true);
  AwaitEnd();
  EXPECT_EQ(agent_->end().phase, protocol::JobPhase::kFailed);
  EXPECT_THAT(agent_->end().reason, HasSubstr("could not be reached for 300ms"));
}

}  // namespace
}  // namespace sluice::server
