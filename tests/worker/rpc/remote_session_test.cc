// SPDX-License-Identifier: Apache-2.0
// Tests RemoteClient and RemoteSession with servers that answer as a test says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <limits>
#include <thread>

#include "absl/strings/str_cat.h"
#include "compress/codec_table.h"
#include "compress/frame.h"
#include "compress/gpu/gpu_encoder.h"
#include "compress/gpu/kernels/host_device.h"
#include "tests/compress/gpu/breaking_device.h"
#include "tests/worker/rpc/deaf_port.h"
#include "tests/worker/rpc/fake_server.h"
#include "tests/worker/rpc/joined_session.h"
#include "worker/rpc/remote_client.h"

namespace sluice::worker {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr size_t kRemoteSessionSize = 64;

protocol::TensorTable RemoteSessionTable() {
  return {{.name = "a", .shape = {kRemoteSessionSize}, .strides = {}},
          {.name = "b", .shape = {kRemoteSessionSize}, .strides = {}}};
}

RemoteSessionOptions Options(const std::string& coordinator) {
  RemoteSessionOptions options;
  options.coordinator = coordinator;
  options.job_name = "test";
  options.job_hash = 9;
  options.exchange.compression.min_elements = 0;
  options.server.join_timeout = absl::Seconds(100);
  options.server.connect_timeout = absl::Seconds(100);
  options.backoff_min = absl::Milliseconds(5);
  options.backoff_max = absl::Milliseconds(20);
  return options;
}

std::vector<float> Gradient(float at) {
  std::vector<float> gradient(kRemoteSessionSize);
  for (size_t i = 0; i < kRemoteSessionSize; ++i) gradient[i] = at + static_cast<float>(i);
  return gradient;
}

// Runs one step with the same gradient for both tensors, and expects it as the mean.
void DoStep(Session* session, const std::vector<float>& gradient) {
  ASSERT_TRUE(session->Submit(1, gradient).ok());
  ASSERT_TRUE(session->Submit(0, gradient).ok());
  const absl::StatusOr<StepResult> result = session->Wait();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->n_min, 1u);
  for (const uint32_t tensor : {0, 1}) {
    std::vector<float> mean(kRemoteSessionSize);
    ASSERT_TRUE(session->Apply(tensor, absl::MakeSpan(mean)).ok());
    EXPECT_EQ(mean, gradient);
  }
}

// If a program calls the wrong method for means or updates, the call must fail.
TEST(RemoteSessionTest, AnUpdateIsNotTakenForAMeanNorAMeanForAnUpdate) {
  for (const bool shards_update : {false, true}) {
    FakeServer server({});
    RemoteSessionOptions options = Options(server.address());
    options.shards_update = shards_update;
    const JoinedSession session(options, RemoteSessionTable(), "abc");
    ASSERT_TRUE(session.ok()) << session.status();
    const std::vector<float> gradient = Gradient(1);
    for (const uint32_t tensor : {1, 0}) ASSERT_TRUE(session->Submit(tensor, gradient).ok());
    ASSERT_TRUE(session->Wait().ok());
    std::vector<float> values(kRemoteSessionSize);
    const absl::Status status = shards_update ? session->Apply(0, absl::MakeSpan(values))
                                              : session->ApplyUpdate(0, absl::MakeSpan(values));
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr(shards_update ? "use ApplyUpdate" : "use Apply,"));
  }
}

TEST(RemoteSessionTest, TellsFiguresOfItself) {
  FakeServer server({});
  RemoteSessionOptions options = Options(server.address());
  options.quality_interval = 2;
  const std::unique_ptr<JobClient> client = MakeRemoteClient(options);
  EXPECT_FALSE(client->figures().has_value());
  const absl::StatusOr<JoinedJob> joined = client->Join(RemoteSessionTable(), "abc");
  ASSERT_TRUE(joined.ok()) << joined.status();
  Session* const session = joined->session;
  ASSERT_TRUE(client->figures().has_value());
  EXPECT_FALSE(session->figures()->quality.has_value());
  for (int step = 0; step < 3; ++step) DoStep(session, Gradient(1));
  session->Report({.step = 3, .samples = 48, .loss = 0.5});
  const std::optional<SessionFigures> figures = client->figures();
  ASSERT_TRUE(figures.has_value());
  EXPECT_EQ(figures->traffic.steps, 3u);
  EXPECT_EQ(figures->traffic.bytes_up, server.bytes_read());
  EXPECT_EQ(figures->dense_bytes, 3 * 2 * kRemoteSessionSize * sizeof(float));
  EXPECT_EQ(figures->bytes_in_flight, 0u);
  EXPECT_EQ(figures->progress.samples, 48u);
  EXPECT_EQ(figures->seconds.steps, 2u);
  uint64_t exchanges = 0;
  for (const uint64_t count : figures->exchanges.counts) exchanges += count;
  EXPECT_EQ(exchanges, 3u);
  EXPECT_GT(figures->exchanges.seconds, 0);
  ASSERT_TRUE(figures->quality.has_value());
  EXPECT_EQ(figures->quality->chunks, 2u);
  EXPECT_EQ(figures->quality->CapturedEnergy(), 1) << "nothing is lost";
  EXPECT_EQ(figures->fragments_in_flight, 0u);
  ASSERT_TRUE(session->Skip().ok());
  EXPECT_EQ(session->figures()->fragments_in_flight, 1u);
  ASSERT_TRUE(session->Wait().ok());
  ASSERT_TRUE(session->Leave().ok());
}

// Gradients in GPU memory must be encoded on the GPU, and means must be applied there. In this
// test, GPU memory is host memory.
TEST(RemoteSessionTest, GradientsThatLieOnAGpuAndTheirMeans) {
  FakeServer server({});
  const auto device = compress::gpu::MakeEncodingDevice(compress::gpu::MakeHostDevice(1 << 24));
  RemoteSessionOptions options = Options(server.address());
  options.exchange.compression.uplink = *compress::ParseCodecSpec("int8");
  {
    const JoinedSession without(options, RemoteSessionTable(), "abc");
    ASSERT_TRUE(without.ok()) << without.status();
    EXPECT_FALSE(without->AcceptsGpuViews());
  }
  options.device = device.get();
  const JoinedSession session(options, RemoteSessionTable(), "abc");
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE(session->AcceptsGpuViews());
  for (int step = 0; step < 3; ++step) {
    const std::vector<float> gradient = Gradient(static_cast<float>(step));
    for (const uint32_t tensor : {1, 0}) {
      GradientView view(gradient);
      view.on_gpu = true;
      ASSERT_TRUE(session->Submit(tensor, view).ok());
    }
    ASSERT_TRUE(session->Wait().ok());
    std::vector<float> means[2] = {Gradient(7), Gradient(7)};
    const absl::Status applied = session->ApplyOnGpu(
        {{0, means[0].data(), kRemoteSessionSize}, {1, means[1].data(), kRemoteSessionSize}},
        nullptr);
    ASSERT_TRUE(applied.ok()) << applied;
    for (const uint32_t tensor : {0, 1}) {
      std::vector<float> mean(kRemoteSessionSize);
      ASSERT_TRUE(session->Apply(tensor, absl::MakeSpan(mean)).ok());
      EXPECT_EQ(means[tensor], mean);
      EXPECT_NEAR(mean[3], gradient[3], 1) << "int8 rounds the mean";
    }
  }
  float few[2];
  EXPECT_EQ(session->ApplyOnGpu({{0, few, 2}}, nullptr).code(), absl::StatusCode::kInvalidArgument);
}

TEST(RemoteSessionTest, AGpuThatFailsEndsTheSession) {
  FakeServer server({});
  compress::gpu::DeviceCalls calls;
  const auto device =
      compress::gpu::MakeEncodingDevice(std::make_unique<compress::gpu::BreakingDevice>(
          compress::gpu::MakeHostDevice(1 << 24), 0, &calls));
  RemoteSessionOptions options = Options(server.address());
  options.exchange.compression.uplink = *compress::ParseCodecSpec("int8");
  options.device = device.get();
  const JoinedSession session(options, RemoteSessionTable(), "abc");
  ASSERT_TRUE(session.ok()) << session.status();
  const std::vector<float> gradient = Gradient(1);
  for (const uint32_t tensor : {1, 0}) {
    GradientView view(gradient);
    view.on_gpu = true;
    if (!session->Submit(tensor, view).ok()) break;
  }
  const absl::Status status = session->Wait().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("it fell off the bus"));
}

TEST(RemoteSessionTest, StepsAndLeaves) {
  FakeServer server({});
  const JoinedSession session(Options(server.address()), RemoteSessionTable(), "abc");
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(session.info().world_size, 1u);
  for (int step = 0; step < 3; ++step) DoStep(session.get(), Gradient(static_cast<float>(step)));
  ASSERT_TRUE(session->Skip().ok());
  ASSERT_TRUE(session->Wait().ok());
  const TrafficCounters traffic = session->traffic();
  EXPECT_EQ(traffic.steps, 4u);
  EXPECT_EQ(traffic.bytes_up, server.bytes_read());
  EXPECT_EQ(traffic.bytes_down, server.bytes_written());
  for (const protocol::Stage stage :
       {protocol::Stage::kEncode, protocol::Stage::kSend, protocol::Stage::kReceive}) {
    EXPECT_GT(session->stages()[static_cast<size_t>(stage)], 0) << ToString(stage);
  }
  session->ReportParameters(4, "hash");
  ASSERT_TRUE(session->Leave().ok());

  const std::vector<v1::ExchangeRequest> exchanges = server.exchanges();
  ASSERT_EQ(exchanges.size(), 8u);
  EXPECT_EQ(exchanges[0].sender().job_uid(), 77u);
  EXPECT_FALSE(exchanges[1].has_sender());
  EXPECT_EQ(exchanges[7].acked_step(), 3u);
  EXPECT_TRUE(exchanges[7].skip());
  const std::vector<v1::JoinRequest> joins = server.joins();
  EXPECT_EQ(joins[0].job_hash(), 9u);
  EXPECT_EQ(joins[0].parameters_sha256(), "abc");
  EXPECT_EQ(joins[0].pid(), static_cast<uint32_t>(getpid()));
  EXPECT_EQ(joins[0].table().hash(), protocol::HashTensorTable(RemoteSessionTable()));
  const std::vector<v1::LeaveRequest> leaves = server.leaves();
  ASSERT_EQ(leaves.size(), 1u);
  EXPECT_TRUE(leaves[0].finished());
  EXPECT_EQ(leaves[0].parameters_sha256(), "hash");
  EXPECT_FALSE(session->Submit(0, Gradient(0)).ok());
}

TEST(RemoteSessionTest, AnUnreachableShardIsNamed) {
  const DeafPort deaf;
  FakeServer server({});
  server.SetShards({server.address(), deaf.address()});
  RemoteSessionOptions options = Options(server.address());
  options.shards = 2;
  options.server.connect_timeout = absl::Seconds(2);
  const JoinedSession session(options, RemoteSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  const std::vector<float> gradient = Gradient(0);
  (void)session->Submit(1, gradient);
  (void)session->Submit(0, gradient);
  const absl::Status status = session->Wait().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(absl::StrCat("shard 1 at ", deaf.address())),
                    HasSubstr("for 2s (connection refused)")));
  EXPECT_EQ(session->Wait().status(), status);
}

TEST(RemoteSessionTest, AnUnreachableCoordinatorIsNamed) {
  const DeafPort deaf;
  RemoteSessionOptions options = Options(deaf.address());
  options.server.join_timeout = absl::Seconds(2);
  const std::unique_ptr<JobClient> client = MakeRemoteClient(options);
  const absl::Status status = client->Join(RemoteSessionTable(), "").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(deaf.address()));
  EXPECT_THAT(std::string(status.message()), HasSubstr("connection refused"));
  EXPECT_EQ(client->Join(RemoteSessionTable(), "").status(), status);
}

TEST(RemoteSessionTest, ARefusedJoinSaysWhy) {
  FakeServer server(
      {.join = {grpc::StatusCode::INVALID_ARGUMENT, "tensor 1 is b here and c there"}});
  const absl::Status status =
      MakeRemoteClient(Options(server.address()))->Join(RemoteSessionTable(), "").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("tensor 1 is b here"));
  EXPECT_EQ(server.joins().size(), 1u);
}

TEST(RemoteSessionTest, ARepeatedJoinIsTheSameMember) {
  FakeServer server({.joins_unavailable = 2});
  const JoinedSession session(Options(server.address()), RemoteSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  const std::vector<v1::JoinRequest> joins = server.joins();
  ASSERT_EQ(joins.size(), 3u);
  EXPECT_NE(joins[0].nonce(), 0u);
  EXPECT_EQ(joins[0].nonce(), joins[2].nonce());
}

TEST(RemoteSessionTest, AJoinReplyWithoutAllShardsIsRefused) {
  FakeServer server({});
  RemoteSessionOptions options = Options(server.address());
  options.shards = 2;
  const absl::Status status = MakeRemoteClient(options)->Join(RemoteSessionTable(), "").status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("names 1 shards, the job has 2"));
}

TEST(RemoteSessionTest, ABrokenStreamIsOpenedAgainAndBytesAreRepeated) {
  FakeServer server({.streams_broken = 2});
  RemoteSessionOptions options = Options(server.address());
  const JoinedSession session(options, RemoteSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  DoStep(session.get(), Gradient(3));
  DoStep(session.get(), Gradient(4));
  const std::vector<v1::ExchangeRequest> exchanges = server.exchanges();
  ASSERT_EQ(exchanges.size(), 8u);
  for (const size_t first : {0, 2, 4}) {
    EXPECT_TRUE(exchanges[first].has_sender()) << first;
    for (const size_t i : {0, 1}) {
      EXPECT_EQ(exchanges[first + i].bundle(), i);
      EXPECT_EQ(exchanges[first + i].contributions(0).frame(),
                exchanges[i].contributions(0).frame());
    }
  }
}

TEST(RemoteSessionTest, NothingIsSentBeforeTheShardHasBegunTheStream) {
  FakeServer server({.holds_streams = true});
  const JoinedSession session(Options(server.address()), RemoteSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  const std::vector<float> gradient = Gradient(1);
  for (const uint32_t tensor : {1, 0}) ASSERT_TRUE(session->Submit(tensor, gradient).ok());
  server.AwaitHeldStream();
  for (int i = 0; i < 10; ++i) server.AwaitHeartbeat();
  ASSERT_TRUE(server.exchanges().empty());
  server.BeginStreams();
  const absl::StatusOr<StepResult> result = session->Wait();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->n_min, 1u);
  EXPECT_EQ(server.exchanges().size(), 2u);
}

TEST(RemoteSessionTest, AStreamThatEndsBeforeItHasBegunIsOpenedAgain) {
  FakeServer server({.streams_unbegun = 2});
  const JoinedSession session(Options(server.address()), RemoteSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  DoStep(session.get(), Gradient(1));
  ASSERT_TRUE(session->Leave().ok());
}

TEST(RemoteSessionTest, GoingAwayBeforeTheStreamHasBegunIsQuiet) {
  FakeServer server({.holds_streams = true});
  const std::vector<float> gradient = Gradient(1);  // The session's encoder reads it.
  const JoinedSession session(Options(server.address()), RemoteSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(session->Submit(1, gradient).ok());
  server.AwaitHeldStream();
}

TEST(RemoteSessionTest, BusyIsAskedAgain) {
  FakeServer server({.busy = 5});
  const JoinedSession session(Options(server.address()), RemoteSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  DoStep(session.get(), Gradient(3));
  EXPECT_EQ(server.exchanges().size(), 7u);
}

TEST(RemoteSessionTest, AStreamThatIsRefusedIsFinal) {
  FakeServer server({.stream = {grpc::StatusCode::PERMISSION_DENIED, "no token"}});
  const JoinedSession session(Options(server.address()), RemoteSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(session->Skip().ok());
  EXPECT_THAT(std::string(session->Wait().status().message()), HasSubstr("no token"));
}

// While token files are being replaced, a token may be refused for a while. This must not end the
// session.
TEST(RemoteSessionTest, ATokenThatIsRefusedForAWhileEndsNoSession) {
  FakeServer server({.heartbeats_refused = 3, .streams_refused = 2});
  const JoinedSession session(Options(server.address()), RemoteSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  DoStep(session.get(), Gradient(3));
  while (server.heartbeats().size() < 5) server.AwaitHeartbeat();
  DoStep(session.get(), Gradient(4));
  EXPECT_TRUE(session->Leave().ok());
}

TEST(RemoteSessionTest, ATokenThatStaysRefusedEndsTheSession) {
  FakeServer server({.heartbeat = {grpc::StatusCode::UNAUTHENTICATED, "a wrong token"},
                     .silent = true,
                     .lease_ms = 3000});
  const JoinedSession session(Options(server.address()), RemoteSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  (void)session->Skip();
  const absl::Status status = session->Wait().status();
  EXPECT_TRUE(absl::IsUnauthenticated(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("refused this worker"), HasSubstr("3s: a wrong token")));
  EXPECT_GE(server.heartbeats().size(), 2u);
}

// Returns when a heartbeat names this process as the newest known process of shard 0.
void AwaitKnownShard(FakeServer* server, uint64_t incarnation) {
  do {
    server->AwaitHeartbeat();
  } while (server->heartbeats().back().known_shards(0) != incarnation);
}

TEST(RemoteSessionTest, AWorkerGoesWhereAShardIsServedNow) {
  FakeServer server({.silent = true});
  FakeServer later({.incarnation = 6});
  const JoinedSession session(Options(server.address()), RemoteSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  std::thread tells([&] {
    while (server.exchanges().empty()) server.AwaitHeartbeat();
    AwaitKnownShard(&server, 5);
    server.AnnounceShard(later.address(), 6);
  });
  DoStep(session.get(), Gradient(3));
  tells.join();
  EXPECT_FALSE(later.exchanges().empty());
  EXPECT_EQ(later.exchanges().front().sender().server_incarnation(), 6u);
  AwaitKnownShard(&server, 6);
}

// The session must reject answers from a replaced process that the shard's address still leads to.
TEST(RemoteSessionTest, AProcessThatWasReplacedIsNotListenedTo) {
  FakeServer server({});
  RemoteSessionOptions options = Options(server.address());
  options.server.connect_timeout = absl::Milliseconds(500);
  const JoinedSession session(options, RemoteSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  DoStep(session.get(), Gradient(3));
  server.AnnounceShard(server.address(), 6);
  AwaitKnownShard(&server, 6);
  (void)session->Skip();
  const absl::Status status = session->Wait().status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("replaced by a newer one"));
}

TEST(RemoteSessionTest, AnswersThatAreNoMessagesAreFinal) {
  FakeServer server({.garbage = true});
  const JoinedSession session(Options(server.address()), RemoteSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(session->Skip().ok());
  const absl::Status status = session->Wait().status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("shard 0 at " + server.address()));
  EXPECT_THAT(std::string(status.message()), HasSubstr("not an ExchangeReply"));
}

TEST(RemoteSessionTest, AFailedJobWakesWait) {
  FakeServer server({.failure = "rank 1 on host-b was lost", .silent = true});
  const JoinedSession session(Options(server.address()), RemoteSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  (void)session->Skip();
  const absl::Status status = session->Wait().status();
  EXPECT_EQ(status.message(), "rank 1 on host-b was lost");
  EXPECT_EQ(session->Leave(), status);
}

TEST(RemoteSessionTest, ASilentCoordinatorEndsTheSessionAfterALease) {
  FakeServer server(
      {.heartbeat = {grpc::StatusCode::UNAVAILABLE, "gone"}, .silent = true, .lease_ms = 2000});
  const JoinedSession session(Options(server.address()), RemoteSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  (void)session->Skip();
  const absl::Status status = session->Wait().status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat("coordinator at ", server.address())));
  EXPECT_THAT(std::string(status.message()), HasSubstr("for 2s"));
  EXPECT_GE(server.heartbeats().size(), 2u);
}

TEST(RemoteSessionTest, HeartbeatsTellProgress) {
  FakeServer server({});
  const JoinedSession session(Options(server.address()), RemoteSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  DoStep(session.get(), Gradient(1));
  session->Report({.step = 1, .total_steps = 8, .loss = 0.5, .seconds_left = 100});
  server.AwaitHeartbeat();  // May have been composed before the report.
  server.AwaitHeartbeat();
  const v1::HeartbeatRequest last = server.heartbeats().back();
  EXPECT_EQ(last.sender().job_uid(), 77u);
  EXPECT_EQ(last.progress().step(), 1u);
  EXPECT_EQ(last.progress().loss(), 0.5);
  // The remaining time decreases after the report.
  EXPECT_LT(last.progress().seconds_left(), 100);
  EXPECT_GT(last.progress().seconds_left(), 0);
  EXPECT_EQ(last.progress().bytes_up(), server.bytes_read());
  EXPECT_EQ(last.progress().dense_bytes_up(), 2 * 4 * kRemoteSessionSize);
}

TEST(RemoteSessionTest, HeartbeatsTellWhatIsOwed) {
  FakeServer server({});
  RemoteSessionOptions options = Options(server.address());
  options.quality_interval = 1;
  options.exchange.compression.uplink = *compress::ParseCodecSpec("topk:10%");
  const JoinedSession session(options, RemoteSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  const std::vector<float> gradient = Gradient(1);  // Read until Wait returns.
  ASSERT_TRUE(session->Submit(1, gradient).ok());
  ASSERT_TRUE(session->Submit(0, gradient).ok());
  ASSERT_TRUE(session->Wait().ok());
  server.AwaitHeartbeat();  // May have been composed before the step.
  server.AwaitHeartbeat();
  EXPECT_GT(session->figures()->quality->owed, 0);
  EXPECT_EQ(server.heartbeats().back().progress().residual_energy(),
            session->figures()->quality->owed);
}

TEST(RemoteSessionTest, RankZerosParametersReplaceOurs) {
  const std::vector<float> theirs = Gradient(7);
  std::vector<std::byte> frame;
  ASSERT_TRUE(compress::EncodeFrame(*compress::MakeCodec({.codec = compress::CodecId::kNone}),
                                    {.gradient = theirs, .residual = {}}, &frame)
                  .ok());
  const std::string value(reinterpret_cast<const char*>(frame.data()), frame.size());
  FakeServer server({.parameters_agree = false, .world_size = 2, .values = {value, value}});
  RemoteSessionOptions options = Options(server.address());
  options.rank = 1;
  const JoinedSession session(options, RemoteSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  std::vector<float> a = Gradient(0);
  std::vector<float> b = Gradient(1);
  const absl::Status status = session->AgreeOnParameters({absl::MakeSpan(a), absl::MakeSpan(b)});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(a, theirs);
  EXPECT_EQ(b, theirs);
  EXPECT_EQ(session->traffic().bytes_down, 0u);
  EXPECT_EQ(session->traffic().steps, 0u);
}

TEST(RemoteSessionTest, RankZeroSendsOnlyFiniteParameters) {
  FakeServer server({.parameters_agree = false});
  const JoinedSession session(Options(server.address()), RemoteSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  std::vector<float> a = Gradient(0);
  std::vector<float> b = Gradient(1);
  b[9] = std::numeric_limits<float>::infinity();
  const absl::Status status = session->AgreeOnParameters({absl::MakeSpan(a), absl::MakeSpan(b)});
  EXPECT_THAT(std::string(status.message()), HasSubstr("parameter b is not finite"));
  EXPECT_TRUE(server.exchanges().empty());
}

TEST(RemoteSessionTest, WaitingWithoutATensorIsAnError) {
  FakeServer server({});
  const JoinedSession session(Options(server.address()), RemoteSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  const std::vector<float> gradient = Gradient(0);
  ASSERT_TRUE(session->Submit(1, gradient).ok());
  EXPECT_THAT(std::string(session->Wait().status().message()), HasSubstr("before a was submitted"));
}

TEST(RemoteSessionTest, AbandonTellsWhy) {
  FakeServer server({});
  JoinedSession session(Options(server.address()), RemoteSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  session.client()->Abandon("the disk is full");
  const std::vector<v1::LeaveRequest> leaves = server.leaves();
  ASSERT_EQ(leaves.size(), 1u);
  EXPECT_FALSE(leaves[0].finished());
  EXPECT_EQ(leaves[0].reason(), "the disk is full");
  EXPECT_THAT(std::string(session->Skip().message()), HasSubstr("the disk is full"));
}

TEST(RemoteSessionTest, AbandonEndsAJoinThatStillTries) {
  const DeafPort deaf;
  RemoteSessionOptions options = Options(deaf.address());
  options.server.join_timeout = absl::Hours(1);
  const std::unique_ptr<JobClient> client = MakeRemoteClient(options);
  std::thread watcher([&] { client->Abandon("stopped by a signal"); });
  EXPECT_EQ(client->Join(RemoteSessionTable(), "").status().code(), absl::StatusCode::kCancelled);
  watcher.join();
}

TEST(RemoteSessionTest, GoingAwayInMidStepIsQuiet) {
  const std::vector<float> gradient = Gradient(0);  // Outlives the session.
  FakeServer server({.silent = true});
  const JoinedSession session(Options(server.address()), RemoteSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(session->Submit(1, gradient).ok());
}

}  // namespace
}  // namespace sluice::worker
