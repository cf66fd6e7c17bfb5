// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/server.h"

#include <gmock/gmock.h>
#include <grpcpp/impl/codegen/client_unary_call.h>
#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "tests/rpc/await.h"
#include "tests/rpc/fake_worker.h"

namespace sluice::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint32_t kServerShards = 2;
constexpr size_t kMessageBytesMax = 64 << 10;

// A job with `workers` fake workers and two real servers on free ports.
class ServerTest : public ::testing::Test {
 protected:
  void StartServers(uint32_t workers) {
    job::JobSpec job;
    job.name = "test";
    job.hash = 9;
    job.workers = workers;
    job.shards = kServerShards;
    job.exchange.compression.layout = {.chunk_elements = 4, .bundle_elements = 4};
    job.exchange.compression.downlink.codec = compress::CodecId::kNone;
    job.exchange.compression.min_elements = 0;
    job.server.heartbeat_interval = absl::Milliseconds(50);
    // The lease is so long that a busy machine causes no loss.
    job.server.lease_timeout = absl::Hours(1);
    for (uint32_t shard = 0; shard < kServerShards; ++shard) {
      ServerOptions options{.job = job,
                            .shard = shard,
                            .listen = "127.0.0.1:0",
                            .advertise = "",
                            .coordinator = shard == 0 ? "" : servers_[0]->address(),
                            .message_bytes_max = kMessageBytesMax,
                            .software_version = "1",
                            .job_uid = 77};
      absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(std::move(options), &clock_);
      ASSERT_TRUE(server.ok()) << server.status();
      servers_.push_back(*std::move(server));
    }
    for (uint32_t rank = 0; rank < workers; ++rank) {
      workers_.push_back(std::make_unique<FakeWorker>(servers_[0]->address(), rank));
    }
  }
  // Shard 0 is destroyed last, because it waits a while for open streams.
  void TearDown() override {
    while (!servers_.empty()) servers_.pop_back();
  }
  void JoinAll() {
    std::vector<std::thread> joins;
    for (auto& worker : workers_) {
      joins.emplace_back([&worker] {
        const grpc::Status status = worker->Join();
        EXPECT_TRUE(status.ok()) << status.error_message();
      });
    }
    for (std::thread& join : joins) join.join();
  }
  absl::Status AwaitOutcome(uint32_t shard) {
    std::optional<absl::Status> outcome;
    AwaitThat([&] { return (outcome = servers_[shard]->Outcome()).has_value(); });
    return *outcome;
  }

  SteadyClock clock_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<std::unique_ptr<FakeWorker>> workers_;
};

std::vector<float> ValuesOf(const v1::ExchangeReply& reply) {
  std::vector<float> values(4);
  const std::string& frame = reply.results(0);
  EXPECT_TRUE(
      compress::DecodeAddFrame({reinterpret_cast<const std::byte*>(frame.data()), frame.size()},
                               absl::MakeSpan(values))
          .ok());
  return values;
}

TEST_F(ServerTest, ItSaysWhatItHasUsed) {
  StartServers(1);
  JoinAll();
  FakeWorker::OpenStream open = workers_[0]->Open(1);
  ASSERT_EQ(Ask(&open, workers_[0]->Contribution(1, 1)).outcome(), v1::OUTCOME_RESULT);
  const auto ask = [this](uint32_t shard) {
    grpc::ClientContext context;
    context.set_deadline(TestDeadline());
    v1::GetUsageReply reply;
    const auto stub = v1::ParameterShard::NewStub(TestChannel(servers_[shard]->address()));
    EXPECT_TRUE(stub->GetUsage(&context, {}, &reply).ok());
    return reply;
  };
  // Processor time for sending may be recorded after the answer has arrived.
  AwaitThat([&] { return ask(1).stages(3).processor_seconds() > 0; });
  const v1::GetUsageReply used = ask(1);
  double staged = 0;
  std::vector<std::string> stages;
  for (const v1::StageUsage& usage : used.stages()) {
    EXPECT_GT(usage.processor_seconds(), 0) << usage.stage();
    stages.push_back(usage.stage());
    staged += usage.processor_seconds();
  }
  EXPECT_THAT(stages, ElementsAre("receive", "sum", "encode", "send"));
  EXPECT_LT(staged, used.processor_seconds());
  EXPECT_GT(used.peak_rss_bytes(), 1u << 20);
  EXPECT_EQ(servers_[1]->Stages()[static_cast<size_t>(protocol::Stage::kSum)],
            used.stages(1).processor_seconds());
  const v1::GetUsageReply idle = ask(0);
  for (const v1::StageUsage& usage : idle.stages()) {
    EXPECT_EQ(usage.processor_seconds(), 0) << usage.stage();
  }
}

TEST_F(ServerTest, JoinExchangeAStepLeaveAndEnd) {
  StartServers(3);
  EXPECT_FALSE(servers_[1]->ready());
  JoinAll();
  EXPECT_TRUE(servers_[1]->ready());
  for (uint32_t shard = 0; shard < kServerShards; ++shard) {
    std::vector<FakeWorker::OpenStream> streams;
    for (uint32_t rank = 0; rank < 3; ++rank) streams.push_back(workers_[rank]->Open(shard));
    const float values[] = {1, 2, 6};
    for (uint32_t rank : {2u, 0u}) {
      EXPECT_EQ(Ask(&streams[rank], workers_[rank]->Contribution(1, values[rank])).outcome(),
                v1::OUTCOME_PENDING);
    }
    const v1::ExchangeReply last = Ask(&streams[1], workers_[1]->Contribution(1, values[1]));
    EXPECT_EQ(last.outcome(), v1::OUTCOME_RESULT);
    EXPECT_EQ(last.record().n(), 3u);
    EXPECT_EQ(last.server_incarnation(),
              workers_[0]->grant().shards(static_cast<int>(shard)).server_incarnation());
    EXPECT_NE(last.server_incarnation(), 0u);
    EXPECT_THAT(ValuesOf(last), ElementsAre(3, 3, 3, 3));
    v1::ExchangeReply other;
    ASSERT_TRUE(streams[0].stream->Read(&other));
    EXPECT_EQ(other.SerializeAsString(), last.SerializeAsString());
    for (auto& open : streams) {
      open.stream->WritesDone();
      while (open.stream->Read(&other)) {
      }
      EXPECT_TRUE(open.stream->Finish().ok());
    }
  }
  EXPECT_EQ(workers_[0]->Leave(true).phase(), v1::JOB_PHASE_RUNNING);
  EXPECT_EQ(workers_[1]->Leave(true).phase(), v1::JOB_PHASE_RUNNING);
  EXPECT_EQ(workers_[2]->Leave(true).phase(), v1::JOB_PHASE_FINISHED);
  EXPECT_TRUE(AwaitOutcome(0).ok());
  EXPECT_TRUE(AwaitOutcome(1).ok());
}

TEST_F(ServerTest, AnotherTableIsRefusedByName) {
  StartServers(2);
  std::thread first([&] { EXPECT_TRUE(workers_[0]->Join().ok()); });
  AwaitThat([&] { return workers_[0]->Status().members(0).joined(); });
  FakeWorker other(servers_[0]->address(), 1);
  other.request().mutable_table()->mutable_tensors(0)->set_shape(0, 16);
  const grpc::Status refused = other.Join();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused.error_message(), HasSubstr("w [16]"));
  other.request().mutable_table()->mutable_tensors(0)->set_dtype(v1::DTYPE_UNSPECIFIED);
  EXPECT_EQ(other.Join().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(workers_[1]->Join().ok());
  first.join();
}

TEST_F(ServerTest, AJoinThatIsCancelledFreesItsRank) {
  StartServers(1);
  servers_.pop_back();  // Without the second server, no Join is answered.
  FakeWorker first(servers_[0]->address(), 0);
  std::thread joining([&] {
    EXPECT_EQ(first.Join(std::chrono::system_clock::now() + std::chrono::seconds(1)).error_code(),
              grpc::StatusCode::DEADLINE_EXCEEDED);
  });
  AwaitThat([&] { return first.Status().members(0).joined(); });
  FakeWorker second(servers_[0]->address(), 0);
  second.request().set_nonce(5);
  EXPECT_EQ(second.Join().error_code(), grpc::StatusCode::ALREADY_EXISTS);
  joining.join();
  AwaitThat([&] { return !first.Status().members(0).joined(); });
}

TEST_F(ServerTest, AFlippedBitIsNamedAndHarmsNobody) {
  StartServers(1);
  JoinAll();
  auto open = workers_[0]->Open(0);
  v1::ExchangeRequest flipped = workers_[0]->Contribution(1, 2);
  flipped.mutable_contributions(0)->mutable_frame()->at(25) ^= 4;
  const v1::ExchangeReply refused = Ask(&open, flipped);
  EXPECT_EQ(refused.outcome(), v1::OUTCOME_INVALID);
  EXPECT_THAT(refused.message(), HasSubstr("rank 0, step 1, bundle 0: chunk"));
  EXPECT_THAT(refused.message(), HasSubstr("checksum"));
  const v1::ExchangeReply result = Ask(&open, workers_[0]->Contribution(1, 2));
  EXPECT_EQ(result.outcome(), v1::OUTCOME_RESULT);
  EXPECT_THAT(ValuesOf(result), ElementsAre(2, 2, 2, 2));
}

TEST_F(ServerTest, ASenderThatHoldsNothingIsFenced) {
  StartServers(1);
  JoinAll();
  auto open = workers_[0]->Open(1);
  v1::ExchangeRequest stranger = workers_[0]->Contribution(1, 2);
  stranger.mutable_sender()->set_incarnation(1);
  EXPECT_EQ(Ask(&open, stranger).outcome(), v1::OUTCOME_FENCED);
  EXPECT_EQ(Ask(&open, workers_[0]->Contribution(1, 2)).outcome(), v1::OUTCOME_RESULT);
  v1::ExchangeRequest later = workers_[0]->Contribution(2, 2);
  later.clear_sender();
  EXPECT_EQ(Ask(&open, later).outcome(), v1::OUTCOME_RESULT) << "the stream's sender is known";
}

TEST_F(ServerTest, AStreamReplacedMidStepLosesNothing) {
  StartServers(2);
  JoinAll();
  auto lost = workers_[0]->Open(0);
  EXPECT_EQ(Ask(&lost, workers_[0]->Contribution(1, 2)).outcome(), v1::OUTCOME_PENDING);
  lost.context->TryCancel();
  v1::ExchangeReply nothing;
  EXPECT_FALSE(lost.stream->Read(&nothing));
  EXPECT_EQ(lost.stream->Finish().error_code(), grpc::StatusCode::CANCELLED);

  auto again = workers_[0]->Open(0);
  EXPECT_EQ(Ask(&again, workers_[0]->Contribution(1, 2)).outcome(), v1::OUTCOME_PENDING);
  auto other = workers_[1]->Open(0);
  EXPECT_EQ(Ask(&other, workers_[1]->Contribution(1, 4)).outcome(), v1::OUTCOME_RESULT);
  v1::ExchangeReply result;
  ASSERT_TRUE(again.stream->Read(&result));
  EXPECT_EQ(result.record().n(), 2u);
  EXPECT_THAT(ValuesOf(result), ElementsAre(3, 3, 3, 3));
}

TEST_F(ServerTest, AMessageOverTheLimitEndsItsStreamOnly) {
  StartServers(1);
  JoinAll();
  auto open = workers_[0]->Open(0);
  v1::ExchangeRequest large = workers_[0]->Contribution(1, 2);
  large.mutable_contributions(0)->mutable_frame()->resize(kMessageBytesMax);
  open.stream->Write(large);
  v1::ExchangeReply nothing;
  EXPECT_FALSE(open.stream->Read(&nothing));
  EXPECT_EQ(open.stream->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  auto again = workers_[0]->Open(0);
  EXPECT_EQ(Ask(&again, workers_[0]->Contribution(1, 2)).outcome(), v1::OUTCOME_RESULT);
}

grpc::Status SendRaw(const std::string& address, const char* method, absl::string_view bytes) {
  grpc::ClientContext context;
  context.set_deadline(TestDeadline());
  const grpc::Slice slice(bytes.data(), bytes.size());
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer reply;
  const auto channel = TestChannel(address);
  const grpc::internal::RpcMethod rpc(method, grpc::internal::RpcMethod::NORMAL_RPC);
  return grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
      channel.get(), rpc, &context, request, &reply);
}

TEST_F(ServerTest, BytesThatAreNoMessageAreRefused) {
  StartServers(1);
  const std::string address = servers_[0]->address();
  EXPECT_EQ(SendRaw(address, "/sluice.v1.ParameterShard/Exchange", "\xff\xff\xff").error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_FALSE(SendRaw(address, "/sluice.v1.Coordinator/Join", "\xff\xff\xff").ok());
  EXPECT_TRUE(SendRaw(address, "/sluice.v1.Coordinator/GetStatus", "").ok());
}

TEST_F(ServerTest, HealthIsServedAndReflectionOnlyWhenAsked) {
  StartServers(1);
  const std::string address = servers_[0]->address();
  EXPECT_TRUE(SendRaw(address, "/grpc.health.v1.Health/Check", "").ok());
  const char* reflection = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
  EXPECT_EQ(SendRaw(address, reflection, "").error_code(), grpc::StatusCode::UNIMPLEMENTED);
  ServerOptions options{.job = {}, .listen = "127.0.0.1:0", .reflection = true};
  const auto open = Server::Start(std::move(options), &clock_);
  ASSERT_TRUE(open.ok()) << open.status();
  const grpc::Status served = SendRaw((*open)->address(), reflection, "");
  EXPECT_TRUE(served.ok()) << served.error_message();
}

TEST_F(ServerTest, BeforeTheJobStartedAWorkerIsAskedToWait) {
  StartServers(1);
  auto stub = v1::ParameterShard::NewStub(TestChannel(servers_[0]->address()));
  grpc::ClientContext context;
  context.set_deadline(TestDeadline());
  auto stream = stub->Exchange(&context);
  stream->Write({});
  v1::ExchangeReply reply;
  ASSERT_TRUE(stream->Read(&reply));
  EXPECT_EQ(reply.outcome(), v1::OUTCOME_BUSY);
  context.TryCancel();
  EXPECT_FALSE(stream->Finish().ok());
}

TEST_F(ServerTest, StoppingAShardTellsEverybodyWhy) {
  StartServers(1);
  JoinAll();
  auto open = workers_[0]->Open(0);
  v1::ExchangeRequest other_shard = workers_[0]->Contribution(1, 2);
  servers_[1]->Stop("was stopped by SIGTERM");
  AwaitThat([&] { return workers_[0]->Beat().phase() == v1::JOB_PHASE_FAILED; });
  EXPECT_THAT(workers_[0]->Beat().failure(), HasSubstr("was stopped by SIGTERM"));
  EXPECT_THAT(std::string(AwaitOutcome(0).message()), HasSubstr("was stopped by SIGTERM"));
  EXPECT_FALSE(AwaitOutcome(1).ok());
  const v1::ExchangeReply fenced = Ask(&open, other_shard);
  EXPECT_EQ(fenced.outcome(), v1::OUTCOME_FENCED);
  EXPECT_THAT(fenced.message(), HasSubstr("was stopped by SIGTERM"));
}

TEST_F(ServerTest, ARankThatIsShutOutEndsTheJobWithItsName) {
  StartServers(1);
  JoinAll();
  auto open = workers_[0]->Open(1);
  v1::ExchangeRequest bad = workers_[0]->Contribution(1, 2);
  bad.mutable_contributions(0)->mutable_frame()->pop_back();
  EXPECT_EQ(Ask(&open, bad).outcome(), v1::OUTCOME_INVALID);
  EXPECT_EQ(Ask(&open, bad).outcome(), v1::OUTCOME_INVALID);
  EXPECT_EQ(Ask(&open, bad).outcome(), v1::OUTCOME_FENCED);
  AwaitThat([&] { return workers_[0]->Beat().phase() == v1::JOB_PHASE_FAILED; });
  EXPECT_THAT(workers_[0]->Beat().failure(), HasSubstr("rank 0 was refused 3 times"));
}

TEST(ServerEnd, StaysUntilWhoAsksOncePerHeartbeatHasAsked) {
  SimulatedClock clock;
  job::JobSpec job;
  job.name = "test";
  job.server.heartbeat_interval = absl::Seconds(60);
  const auto server = Server::Start(
      {.job = job, .listen = "127.0.0.1:0", .software_version = "1", .job_uid = 77}, &clock);
  ASSERT_TRUE(server.ok()) << server.status();
  FakeWorker worker((*server)->address(), 0);
  worker.request().set_job_hash(job.hash);
  ASSERT_TRUE(worker.Join().ok());
  const absl::Time failed = clock.Now();
  (*server)->Fail("on purpose");
  std::optional<absl::Status> outcome;
  // The shard's agent learns of the end in real time while the simulated clock advances.
  AwaitThat([&] {
    clock.Advance(absl::Seconds(5));
    outcome = (*server)->Outcome();
    return outcome.has_value();
  });
  EXPECT_TRUE(absl::IsAborted(*outcome)) << *outcome;
  EXPECT_GE(clock.Now() - failed, 2 * job.server.heartbeat_interval);
}

TEST_F(ServerTest, AShardOfAnotherJobFileEndsWithTheReason) {
  StartServers(1);
  job::JobSpec job;
  job.name = "test";
  job.hash = 10;
  job.shards = 2;
  const auto server = Server::Start({.job = job,
                                     .shard = 1,
                                     .listen = "127.0.0.1:0",
                                     .coordinator = servers_[0]->address(),
                                     .software_version = "1"},
                                    &clock_);
  ASSERT_TRUE(server.ok()) << server.status();
  std::optional<absl::Status> outcome;
  AwaitThat([&] { return (outcome = (*server)->Outcome()).has_value(); });
  EXPECT_THAT(std::string(outcome->message()), HasSubstr("another job file"));
}

TEST_F(ServerTest, ATakenPortAndAddressesThatAreNoneAreErrors) {
  StartServers(1);
  job::JobSpec job;
  ServerOptions options{.job = job, .listen = servers_[0]->address()};
  EXPECT_EQ(Server::Start(options, &clock_).status().code(), absl::StatusCode::kUnavailable);
  options.listen = "localhost";
  EXPECT_EQ(Server::Start(options, &clock_).status().code(), absl::StatusCode::kInvalidArgument);
  options.listen = "127.0.0.1:0";
  options.shard = 1;
  EXPECT_EQ(Server::Start(options, &clock_).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice::server
