// SPDX-License-Identifier: Apache-2.0
// Tests a job with checkpoints on real servers: the order of records on disk, and recovery after
// losses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "protocol/checkpoint/checkpoint_folder.h"
#include "server/rpc/server.h"
#include "tests/rpc/await.h"
#include "tests/rpc/fake_worker.h"

namespace sluice::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint32_t kRecoveryShards = 2;
constexpr uint32_t kWorkers = 2;

// Makes all writes fail while it exists, as a full disk would.
class NoFileGrows {
 public:
  NoFileGrows() : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit none{.rlim_cur = 0, .rlim_max = before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
  }
  ~NoFileGrows() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*const handler_)(int);
  rlimit before_{};
};

// Two fake workers, which only keep their parts of checkpoints, and two servers.
class RecoveryTest : public ::testing::Test {
 protected:
  RecoveryTest() {
    job_.name = "test";
    job_.hash = 9;
    job_.workers = kWorkers;
    job_.shards = kRecoveryShards;
    job_.exchange.compression.layout = {.chunk_elements = 4, .bundle_elements = 4};
    job_.exchange.compression.min_elements = 0;
    job_.server.heartbeat_interval = absl::Milliseconds(50);
    job_.server.lease_timeout = absl::Seconds(60);  // Only tests send heartbeats.
    job_.checkpoint.interval = 3;
    job_.checkpoint.replay_limit = 0;
    job_.checkpoint.dir =
        absl::StrCat(::testing::TempDir(), "/recovery/",
                     ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(job_.checkpoint.dir);
    servers_.resize(kRecoveryShards);
  }
  // Shard 0 is destroyed last, because it waits a while for open streams.
  void TearDown() override {
    streams_.clear();
    while (!servers_.empty()) servers_.pop_back();
  }
  const std::string& dir() const { return job_.checkpoint.dir; }

  absl::Status StartServer(uint32_t shard) {
    // A restarted server uses its first port again, as in a real job, so that others find it.
    ServerOptions options{.job = job_,
                          .shard = shard,
                          .listen = absl::StrCat("127.0.0.1:", ports_[shard]),
                          .advertise = "",
                          .coordinator = shard == 0 ? "" : servers_[0]->address(),
                          .supervised = supervised_,
                          .software_version = "1",
                          .job_uid = 77,
                          .finished_patience = finished_patience_};
    absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(std::move(options), &clock_);
    if (!server.ok()) return server.status();
    servers_[shard] = *std::move(server);
    ports_[shard] = servers_[shard]->port();
    return absl::OkStatus();
  }
  void StartServers() {
    for (uint32_t shard = 0; shard < kRecoveryShards; ++shard) {
      const absl::Status started = StartServer(shard);
      ASSERT_TRUE(started.ok()) << started;
    }
  }
  // Opens new sessions of both workers. Each worker has a stream to every shard.
  void JoinAll() {
    streams_.clear();
    workers_.clear();
    std::vector<std::thread> joins;
    for (uint32_t rank = 0; rank < kWorkers; ++rank) {
      workers_.push_back(std::make_unique<FakeWorker>(servers_[0]->address(), rank));
      workers_[rank]->request().set_nonce(++nonce_);
    }
    for (auto& worker : workers_) {
      joins.emplace_back([&worker] {
        const grpc::Status status = worker->Join();
        EXPECT_TRUE(status.ok()) << status.error_message();
      });
    }
    for (std::thread& join : joins) join.join();
    checkpoint_step_ = 0;
    for (auto& worker : workers_) {
      for (uint32_t shard = 0; shard < kRecoveryShards; ++shard)
        streams_.push_back(worker->Open(shard));
    }
  }
  FakeWorker::OpenStream& StreamOf(uint32_t rank, uint32_t shard) {
    return streams_[rank * kRecoveryShards + shard];
  }
  void ExchangeStep(uint64_t step) {
    for (uint32_t shard = 0; shard < kRecoveryShards; ++shard) {
      for (uint32_t rank = 0; rank < kWorkers; ++rank) {
        v1::ExchangeRequest request = workers_[rank]->Contribution(step, 1);
        request.set_checkpoint_step(checkpoint_step_);
        StreamOf(rank, shard).stream->Write(request);
      }
      for (uint32_t rank = 0; rank < kWorkers; ++rank) {
        const v1::ExchangeReply reply = AwaitReply(&StreamOf(rank, shard));
        ASSERT_EQ(reply.outcome(), v1::OUTCOME_RESULT) << reply.message();
        if (shard == 0 && reply.checkpoint_step() != 0) checkpoint_step_ = reply.checkpoint_step();
      }
    }
    if (checkpoint_step_ == step) ReportParts();
  }
  void ReportParts() {
    for (uint32_t rank = 0; rank < kWorkers; ++rank) {
      const uint32_t term = workers_[rank]->grant().term();
      const auto part = protocol::WritePart(dir(), term, checkpoint_step_,
                                            protocol::WorkerPartName(rank, term), "here");
      ASSERT_TRUE(part.ok()) << part.status();
      v1::ReportCheckpointRequest request;
      *request.mutable_sender() = workers_[rank]->Sender();
      request.mutable_part()->set_term(term);
      request.mutable_part()->set_step(checkpoint_step_);
      request.mutable_part()->set_name(part->name);
      request.mutable_part()->set_bytes(part->bytes);
      request.mutable_part()->set_checksum(part->checksum);
      v1::ReportCheckpointReply reply;
      grpc::ClientContext context;
      context.set_deadline(TestDeadline());
      const auto stub = v1::Coordinator::NewStub(TestChannel(servers_[0]->address()));
      const grpc::Status status = stub->ReportCheckpoint(&context, request, &reply);
      ASSERT_TRUE(status.ok()) << status.error_message();
    }
    checkpoint_step_ = 0;
  }
  void ExchangeSteps(uint64_t first, uint64_t last) {
    for (uint64_t step = first; step <= last; ++step) ExchangeStep(step);
  }
  uint64_t Newest() { return servers_[0]->Status()->checkpoint_step; }
  // Runs steps from step `next` on until a checkpoint is complete and the next has not begun.
  void ExchangeUntilCheckpoint(uint64_t next) {
    const uint64_t before = Newest();
    AwaitThat([&] {
      ExchangeStep(next++);
      return Newest() != before;
    });
    next_ = next;
  }
  void AwaitTerm(uint32_t term) {
    AwaitThat([&] { return workers_[0]->Beat().term() == term; });
  }
  // Waits until only these checkpoints remain. Others are removed in the background.
  void AwaitCheckpoints(const std::vector<uint64_t>& steps) {
    AwaitThat([&] { return *protocol::ListCheckpoints(dir()) == steps; });
  }
  void LeaveUntilFinished() {
    EXPECT_EQ(workers_[0]->Leave(true).phase(), v1::JOB_PHASE_RUNNING);
    // The end is recorded on disk before any worker learns of it.
    for (const uint32_t rank : {1, 0}) {
      AwaitThat([&] { return workers_[rank]->Leave(true).phase() == v1::JOB_PHASE_FINISHED; });
    }
    streams_.clear();
    AwaitThat([&] { return servers_[0]->Outcome().has_value(); });
    EXPECT_TRUE(servers_[0]->Outcome()->ok());
  }

  SteadyClock clock_;
  job::JobSpec job_;
  int ports_[kRecoveryShards] = {};
  uint64_t nonce_ = 0;
  absl::Duration finished_patience_ = absl::Seconds(10);
  bool supervised_ = false;
  uint64_t checkpoint_step_ = 0;
  uint64_t next_ = 1;  // The first step after ExchangeUntilCheckpoint.
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<std::unique_ptr<FakeWorker>> workers_;
  std::vector<FakeWorker::OpenStream> streams_;  // By rank and shard.
};

TEST_F(RecoveryTest, ACheckpointIsCompleteOnDiskAndTheRunRecordedAsFinished) {
  StartServers();
  EXPECT_EQ(protocol::ReadRunRecord(dir())->job_uid, 77u);
  JoinAll();
  ExchangeUntilCheckpoint(1);
  const uint64_t first = Newest();
  EXPECT_GE(first, 3u);
  const auto manifest = protocol::ReadManifest(dir(), first);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->parts.size(), 4u);
  EXPECT_TRUE(protocol::VerifyCheckpoint(dir(), *manifest).ok());
  ExchangeUntilCheckpoint(next_);
  const uint64_t second = Newest();
  EXPECT_GE(second, first + 3);
  ExchangeUntilCheckpoint(next_);
  AwaitCheckpoints({second, Newest()});  // The last two checkpoints are kept.
  const v1::GetStatusReply status = workers_[0]->Status();
  EXPECT_EQ(status.checkpoint_step(), Newest());
  EXPECT_GT(status.seconds_since_checkpoint(), 0);
  LeaveUntilFinished();
  EXPECT_TRUE(protocol::ReadRunRecord(dir())->finished);
  servers_[0].reset();
  EXPECT_THAT(std::string(StartServer(0).message()), HasSubstr("holds a finished run of job test"));
}

TEST_F(RecoveryTest, ARestartedShardBringsTheJobBackToTheCheckpoint) {
  StartServers();
  JoinAll();
  ExchangeUntilCheckpoint(1);
  const uint64_t checkpoint = Newest();
  servers_[1].reset();
  ASSERT_TRUE(StartServer(1).ok());
  AwaitTerm(1);
  EXPECT_EQ(workers_[1]->Beat().phase(), v1::JOB_PHASE_RECOVERING);
  EXPECT_EQ(protocol::ReadRunRecord(dir())->term, 1u);
  const v1::ExchangeReply fenced = Ask(&StreamOf(0, 0), workers_[0]->Contribution(next_, 1));
  EXPECT_EQ(fenced.outcome(), v1::OUTCOME_FENCED);
  EXPECT_EQ(fenced.term(), 1u);
  JoinAll();
  EXPECT_EQ(workers_[0]->grant().term(), 1u);
  EXPECT_EQ(workers_[0]->grant().restore_step(), checkpoint);
  EXPECT_EQ(workers_[0]->grant().first_step(), checkpoint + 1);
  ExchangeUntilCheckpoint(checkpoint + 1);
  EXPECT_EQ(workers_[0]->Status().rollbacks(), 1u);
  EXPECT_THAT(workers_[0]->Status().last_rollback(), HasSubstr("was restarted"));
  LeaveUntilFinished();
}

TEST_F(RecoveryTest, ADamagedPartOfAShardMakesWayForTheCheckpointBefore) {
  StartServers();
  JoinAll();
  ExchangeUntilCheckpoint(1);
  const uint64_t whole = Newest();
  ExchangeUntilCheckpoint(next_);
  const uint64_t damaged = Newest();
  std::ofstream(protocol::StepFolder(dir(), damaged) + "/" + protocol::ShardPartName(1, 0),
                std::ios::app)
      << "x";
  servers_[1].reset();
  ASSERT_TRUE(StartServer(1).ok());
  AwaitTerm(1);
  JoinAll();
  EXPECT_EQ(workers_[0]->grant().term(), 2u);
  EXPECT_EQ(workers_[0]->grant().restore_step(), whole);
  EXPECT_THAT(
      workers_[0]->Status().last_rollback(),
      AllOf(HasSubstr(absl::StrCat("step ", damaged, " cannot be used")), HasSubstr("shard 1")));
  ExchangeUntilCheckpoint(whole + 1);
  EXPECT_TRUE(protocol::VerifyCheckpoint(dir(), *protocol::ReadManifest(dir(), Newest())).ok());
  AwaitCheckpoints({whole, Newest()});
}

TEST_F(RecoveryTest, ARestartedCoordinatorGoesOnWithTheRun) {
  StartServers();
  JoinAll();
  ExchangeUntilCheckpoint(1);
  const uint64_t checkpoint = Newest();
  EXPECT_THAT(std::string(StartServer(0).message()), HasSubstr("another coordinator uses"));
  servers_[0].reset();
  const absl::Status started = StartServer(0);
  ASSERT_TRUE(started.ok()) << started;
  EXPECT_EQ(protocol::ReadRunRecord(dir())->term, 1u);
  // Shard 1 stayed alive. It connects again and learns the new term.
  JoinAll();
  EXPECT_EQ(workers_[0]->grant().job_uid(), 77u);
  EXPECT_EQ(workers_[0]->grant().term(), 1u);
  EXPECT_EQ(workers_[0]->grant().restore_step(), checkpoint);
  ExchangeUntilCheckpoint(checkpoint + 1);
  LeaveUntilFinished();
}

TEST_F(RecoveryTest, AServerThatIsStoppedAsksForALastCheckpoint) {
  job_.checkpoint.interval = 1000;
  for (uint32_t stopped : {0u, 1u}) {
    StartServers();
    JoinAll();
    const uint64_t first = workers_[0]->grant().first_step();
    ExchangeSteps(first, first + 1);
    servers_[stopped]->Stop("was stopped by SIGTERM");
    EXPECT_FALSE(servers_[stopped]->Outcome().has_value());
    ExchangeUntilCheckpoint(first + 2);
    streams_.clear();
    std::optional<absl::Status> outcome;
    AwaitThat([&] { return (outcome = servers_[stopped]->Outcome()).has_value(); });
    EXPECT_THAT(std::string(outcome->message()), HasSubstr("was stopped by SIGTERM"));
    EXPECT_FALSE(protocol::ReadRunRecord(dir())->finished);
    servers_[1].reset();
    servers_[0].reset();
  }
}

TEST_F(RecoveryTest, ATermThatCannotBeRecordedIsAnnouncedOnceItCan) {
  StartServers();
  JoinAll();
  ExchangeUntilCheckpoint(1);
  // The record is replaced by a folder, which a rename cannot replace.
  std::filesystem::remove(dir() + "/run.json");
  std::filesystem::create_directories(dir() + "/run.json/in-the-way");
  servers_[1].reset();
  ASSERT_TRUE(StartServer(1).ok());
  AwaitThat([&] { return servers_[0]->Status()->record_unwritten; });
  ASSERT_EQ(servers_[0]->Status()->waits.size(), 1u);
  EXPECT_THAT(servers_[0]->Status()->waits[0].what, HasSubstr("the record of term 1"));
  for (auto& worker : workers_) {
    const v1::HeartbeatReply reply = worker->Beat();
    EXPECT_EQ(reply.phase(), v1::JOB_PHASE_RUNNING) << reply.failure();
    EXPECT_EQ(reply.term(), 0u) << "term 1 is not on disk yet";
  }
  std::filesystem::remove_all(dir() + "/run.json");
  AwaitTerm(1);
  EXPECT_FALSE(servers_[0]->Status()->record_unwritten);
  JoinAll();
  ExchangeUntilCheckpoint(workers_[0]->grant().first_step());
}

TEST_F(RecoveryTest, AJobCanFailWhileItsTermCannotBeRecorded) {
  StartServers();
  JoinAll();
  ExchangeUntilCheckpoint(1);
  std::filesystem::remove(dir() + "/run.json");
  std::filesystem::create_directories(dir() + "/run.json/in-the-way");
  servers_[1].reset();
  ASSERT_TRUE(StartServer(1).ok());
  AwaitThat([&] { return servers_[0]->Status()->record_unwritten; });
  servers_[0]->Fail("a test ends it");
  AwaitThat([&] { return workers_[0]->Beat().phase() == v1::JOB_PHASE_FAILED; });
  EXPECT_FALSE(servers_[0]->Status()->record_unwritten);
}

TEST_F(RecoveryTest, ACoordinatorThatIsStartedAgainOnAFullDiskWaitsForSpace) {
  StartServers();
  JoinAll();
  ExchangeUntilCheckpoint(1);
  servers_[0].reset();
  {
    const NoFileGrows full;
    const absl::Status started = StartServer(0);
    ASSERT_TRUE(started.ok()) << started;
    AwaitThat([&] { return servers_[0]->Status()->record_unwritten; });
    EXPECT_EQ(workers_[0]->Beat().term(), 0u) << "term 1 is not on disk yet";
  }
  AwaitTerm(1);
}

// In this job, workers keep everything that they sent.
class ExactRecoveryTest : public RecoveryTest {
 protected:
  ExactRecoveryTest() { job_.checkpoint.replay_limit = 1 << 20; }

  void BeatAll() {
    for (auto& worker : workers_) {
      const v1::HeartbeatReply reply = worker->Beat();
      EXPECT_EQ(reply.phase(), v1::JOB_PHASE_RUNNING) << reply.failure();
      EXPECT_EQ(reply.term(), 0u);
      EXPECT_LE(reply.durable_step(), Newest());
    }
  }
  void AwaitReady(uint32_t shard) {
    AwaitThat([&] {
      BeatAll();
      return servers_[shard]->ready();
    });
  }
  // Resends the steps from `first` to `last` to a restarted shard, as sessions do.
  void SendAgain(uint32_t shard, uint64_t first, uint64_t last) {
    for (uint32_t rank = 0; rank < kWorkers; ++rank) {
      StreamOf(rank, shard) = workers_[rank]->Open(shard);
    }
    for (uint64_t step = first; step <= last; ++step) {
      for (uint32_t rank = 0; rank < kWorkers; ++rank) {
        StreamOf(rank, shard).stream->Write(workers_[rank]->Contribution(step, 1));
      }
      for (uint32_t rank = 0; rank < kWorkers; ++rank) {
        const v1::ExchangeReply reply = AwaitReply(&StreamOf(rank, shard));
        ASSERT_EQ(reply.outcome(), v1::OUTCOME_RESULT) << reply.message();
      }
    }
  }
  // Sends heartbeats too, because shard 0 names a checkpoint only after workers have reported.
  void ExchangeAndBeatUntilCheckpoint() {
    const uint64_t before = Newest();
    AwaitThat([&] {
      BeatAll();
      ExchangeStep(next_++);
      return Newest() != before;
    });
  }
};

TEST_F(ExactRecoveryTest, ARestartedShardIsBroughtBackInTheSameTerm) {
  StartServers();
  JoinAll();
  ExchangeUntilCheckpoint(1);
  const uint64_t checkpoint = Newest();
  const protocol::RunRecord before = *protocol::ReadRunRecord(dir());
  EXPECT_EQ(before.generation, 1u);
  EXPECT_EQ(before.members.size(), kWorkers);
  servers_[1].reset();
  ASSERT_TRUE(StartServer(1).ok());
  AwaitReady(1);
  SendAgain(1, checkpoint + 1, next_ - 1);
  ExchangeAndBeatUntilCheckpoint();
  const v1::GetStatusReply status = workers_[0]->Status();
  EXPECT_EQ(status.repairs(), 1u);
  EXPECT_EQ(status.rollbacks(), 0u);
  EXPECT_EQ(status.recovery_class(), "replay") << status.recovery_reason();
  EXPECT_THAT(status.last_repair(), HasSubstr("was restarted; it replays from step"));
  EXPECT_EQ(*protocol::ReadRunRecord(dir()), before);
  LeaveUntilFinished();
}

TEST_F(ExactRecoveryTest, ARestartedCoordinatorGoesOnInTheSameTerm) {
  StartServers();
  JoinAll();
  ExchangeUntilCheckpoint(1);
  const uint64_t checkpoint = Newest();
  servers_[0].reset();
  const absl::Status started = StartServer(0);
  ASSERT_TRUE(started.ok()) << started;
  AwaitReady(0);
  SendAgain(0, checkpoint + 1, next_ - 1);
  ExchangeAndBeatUntilCheckpoint();
  EXPECT_EQ(workers_[0]->Status().repairs(), 1u);
  EXPECT_EQ(workers_[0]->Status().rollbacks(), 0u);
  EXPECT_EQ(protocol::ReadRunRecord(dir())->term, 0u);
  LeaveUntilFinished();
}

TEST_F(ExactRecoveryTest, ASuccessorOfAWorkerGoesThroughTheStepsAgain) {
  StartServers();
  JoinAll();
  ExchangeUntilCheckpoint(1);
  const uint64_t checkpoint = Newest();
  auto successor = std::make_unique<FakeWorker>(servers_[0]->address(), 1);
  successor->request().set_nonce(++nonce_);
  std::atomic<bool> joined = false;
  std::thread join([&] {
    const grpc::Status status = successor->Join();
    EXPECT_TRUE(status.ok()) << status.error_message();
    joined = true;
  });
  AwaitThat([&] {
    EXPECT_EQ(workers_[0]->Beat().term(), 0u);
    return joined.load();
  });
  join.join();
  EXPECT_EQ(successor->grant().term(), 0u);
  EXPECT_EQ(successor->grant().generation(), 2u);
  EXPECT_EQ(successor->grant().restore_step(), checkpoint);
  EXPECT_EQ(protocol::ReadRunRecord(dir())->generation, 2u);
  workers_[1] = std::move(successor);
  for (uint32_t shard = 0; shard < kRecoveryShards; ++shard) {
    StreamOf(1, shard) = workers_[1]->Open(shard);
    for (uint64_t step = checkpoint + 1; step < next_; ++step) {
      const v1::ExchangeReply reply = Ask(&StreamOf(1, shard), workers_[1]->Contribution(step, 1));
      EXPECT_EQ(reply.outcome(), v1::OUTCOME_RESULT) << reply.message();
    }
  }
  ExchangeAndBeatUntilCheckpoint();
  EXPECT_EQ(workers_[0]->Status().repairs(), 1u);
  LeaveUntilFinished();
}

TEST_F(ExactRecoveryTest, AShard0ThatDiesBeforeAllKnowTheEndTellsThemAfterwards) {
  StartServers();
  JoinAll();
  ExchangeStep(1);
  for (auto& worker : workers_) worker->Leave(true);
  AwaitThat([&] { return protocol::ReadRunRecord(dir())->finished; });
  streams_.clear();
  servers_[0].reset();
  ASSERT_TRUE(StartServer(0).ok());
  EXPECT_EQ(workers_[0]->Beat().phase(), v1::JOB_PHASE_FINISHED);
  for (auto& worker : workers_) {
    EXPECT_EQ(worker->Leave(true).phase(), v1::JOB_PHASE_FINISHED);
  }
  for (auto& server : servers_) {
    AwaitThat([&] { return server->Outcome().has_value(); });
    EXPECT_TRUE(server->Outcome()->ok()) << *server->Outcome();
  }
}

TEST_F(ExactRecoveryTest, AFinishedRunOfWhichNobodyAsksIsRefused) {
  StartServers();
  JoinAll();
  ExchangeStep(1);
  LeaveUntilFinished();
  servers_[1].reset();
  servers_[0].reset();
  finished_patience_ = absl::Milliseconds(200);
  ASSERT_TRUE(StartServer(0).ok());
  AwaitThat([&] { return servers_[0]->Outcome().has_value(); });
  EXPECT_THAT(std::string(servers_[0]->Outcome()->message()),
              HasSubstr("holds a finished run of job test"));
}

TEST_F(ExactRecoveryTest, AFinishedRunOfWhichNobodyAsksIsWellForASupervisedServer) {
  supervised_ = true;
  StartServers();
  JoinAll();
  ExchangeStep(1);
  LeaveUntilFinished();
  servers_[1].reset();
  servers_[0].reset();
  finished_patience_ = absl::Milliseconds(200);
  for (uint32_t shard = 0; shard < kRecoveryShards; ++shard) {
    ASSERT_TRUE(StartServer(shard).ok());
    AwaitThat([&] { return servers_[shard]->Outcome().has_value(); });
    EXPECT_TRUE(servers_[shard]->Outcome()->ok()) << *servers_[shard]->Outcome();
  }
}

TEST_F(ExactRecoveryTest, AShardThatIsStartedAgainAfterTheEndIsToldOfIt) {
  StartServers();
  JoinAll();
  ExchangeStep(1);
  LeaveUntilFinished();
  servers_[1].reset();
  ASSERT_TRUE(StartServer(1).ok());
  AwaitThat([&] { return servers_[1]->Outcome().has_value(); });
  EXPECT_TRUE(servers_[1]->Outcome()->ok()) << *servers_[1]->Outcome();
}

TEST_F(ExactRecoveryTest, TheJobOutlivesSupervisedServersThatAreStopped) {
  supervised_ = true;
  StartServers();
  JoinAll();
  ExchangeStep(1);
  servers_[1]->Stop("was stopped by a test");
  std::optional<absl::Status> outcome;
  uint64_t step = 1;
  while (!outcome.has_value()) {
    ExchangeStep(++step);  // Up to the last checkpoint, which the server waits for.
    outcome = servers_[1]->Outcome();
  }
  EXPECT_THAT(std::string(outcome->message()), HasSubstr("was stopped by a test"));
  EXPECT_GT(Newest(), 0u);
  EXPECT_EQ(workers_[0]->Beat().phase(), v1::JOB_PHASE_RUNNING);
  servers_[1].reset();
  ASSERT_TRUE(StartServer(1).ok());
  AwaitReady(1);
  SendAgain(1, Newest() + 1, step);
  EXPECT_EQ(workers_[0]->Beat().phase(), v1::JOB_PHASE_RUNNING);
  LeaveUntilFinished();
}

}  // namespace
}  // namespace sluice::server
