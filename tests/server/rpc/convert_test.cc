#include "server/rpc/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "protocol/wire/exchange_messages.h"
#include "protocol/wire/link_message.h"
#include "protocol/wire/tensor_table_message.h"

namespace sluice::server {
namespace {

v1::ShardCommand Command(decltype(CommandShard::command) command) {
  return CommandToProto({.stream = 1, .sequence = 7, .command = std::move(command)});
}

TEST(ConvertTest, ATableOfTooManyBytesIsRefusedBeforeItIsCopied) {
  v1::TensorTable message;
  for (size_t tensor = 0; tensor < protocol::kMaxTensors; ++tensor) {
    v1::TensorInfo* info = message.add_tensors();
    info->set_name(std::string(300, 'n'));
    info->add_shape(1);
    info->set_dtype(v1::DTYPE_FLOAT32);
  }
  const absl::Status refused = protocol::TableFromProto(message).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(refused.message(), ::testing::HasSubstr("at most 16777216"));
  for (v1::TensorInfo& info : *message.mutable_tensors()) info.set_name("short");
  EXPECT_TRUE(protocol::TableFromProto(message).ok());
}

TEST(ConvertTest, PartsTravel) {
  protocol::CheckpointPart part{.term = 3,
                                .step = 1000,
                                .name = "shard-1-term-3.state",
                                .bytes = uint64_t{5} << 32,
                                .checksum = 0xDEADBEEF,
                                .error = "the disk is full",
                                .unreadable = true};
  v1::CheckpointPart message;
  PartToProto(part, &message);
  EXPECT_EQ(PartFromProto(message), part);
}

TEST(ConvertTest, APartWhoseNameIsNoFileNameIsAnError) {
  for (const char* name : {"", "../run.json", "/etc/passwd", ".hidden", "a b", "a\\b", "a\nb"}) {
    v1::CheckpointPart message;
    message.set_name(name);
    const protocol::CheckpointPart part = PartFromProto(message);
    EXPECT_NE(part.error, "") << name;
    EXPECT_EQ(part.name.find('\n'), std::string::npos);
  }
  v1::CheckpointPart message;
  message.set_name(std::string(1 << 20, 'a'));
  message.set_error(std::string(1 << 20, 'b'));
  EXPECT_LE(PartFromProto(message).name.size(), 128);
  EXPECT_LE(PartFromProto(message).error.size(), 4096);
}

TEST(ConvertTest, WhatIsNoTimeOrEnergyIsNone) {
  v1::HeartbeatRequest request;
  for (const double energy : {-1.0, HUGE_VAL, std::numeric_limits<double>::quiet_NaN()}) {
    request.mutable_progress()->set_residual_energy(energy);
    EXPECT_EQ(HeartbeatFromProto(request)->progress.residual_energy, 0) << energy;
  }
  request.mutable_progress()->set_residual_energy(2.5);
  EXPECT_EQ(HeartbeatFromProto(request)->progress.residual_energy, 2.5);
  v1::WorkerTimings* timings = request.mutable_timings();
  timings->set_steps(3);
  timings->set_compute_seconds(1.5);
  timings->set_decode_seconds(-1);
  timings->set_exposed_encode_seconds(std::numeric_limits<double>::quiet_NaN());
  timings->set_exposed_communication_seconds(std::numeric_limits<double>::infinity());
  const absl::StatusOr<WorkerHeartbeat> heartbeat = HeartbeatFromProto(request);
  ASSERT_TRUE(heartbeat.ok());
  EXPECT_EQ(heartbeat->timings.steps, 3u);
  EXPECT_EQ(heartbeat->timings.compute_seconds, 1.5);
  EXPECT_EQ(heartbeat->timings.decode_seconds, 0);
  EXPECT_EQ(heartbeat->timings.encode_seconds, 0);
  EXPECT_EQ(heartbeat->timings.exchange_seconds, 0);
  const ShardHealthReport health = HealthFromProto(HealthToProto({.waited_seconds = {2, -1, 0.5}}));
  EXPECT_EQ(health.waited_seconds, (std::vector<double>{2, 0, 0.5}));
}

TEST(ConvertTest, FiguresOfLinksTravelAndWhatIsNoneIsNone) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const LinkFigures link{.up_rate = 1e6,
                         .up_latency_s = 0.01,
                         .down_rate = 2e6,
                         .down_latency_s = 0.02,
                         .compute_late_s = 3,
                         .network_late_s = 4};
  const LinkFigures broken{.up_rate = kNan, .up_latency_s = -1, .down_rate = HUGE_VAL};
  const ShardHealthReport health = HealthFromProto(HealthToProto({.links = {link, broken}}));
  ASSERT_EQ(health.links.size(), 2);
  EXPECT_EQ(health.links[0].up_rate, 1e6);
  EXPECT_EQ(health.links[0].up_latency_s, 0.01);
  EXPECT_EQ(health.links[0].down_rate, 2e6);
  EXPECT_EQ(health.links[0].down_latency_s, 0.02);
  EXPECT_EQ(health.links[0].compute_late_s, 3);
  EXPECT_EQ(health.links[0].network_late_s, 4);
  EXPECT_EQ(health.links[1].up_rate, 0);
  EXPECT_EQ(health.links[1].up_latency_s, 0);
  EXPECT_EQ(health.links[1].down_rate, 0);
}

TEST(ConvertTest, ReportsOfLinksTravelBounded) {
  const protocol::LinkReport report{
      .step = 7,
      .round_trip_s = 0.25,
      .down = {{.bytes = 100, .seconds = 0.5}, {.bytes = 10, .seconds = 0.125}},
      .compute_s = 1,
      .encode_s = 2,
      .apply_s = 3,
      .exposed_s = 4,
      .tested = 0.75};
  v1::LinkReport message;
  protocol::LinkReportToProto(report, &message);
  EXPECT_EQ(protocol::LinkReportFromProto(message), report);

  constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();
  message.set_round_trip_ns(kHuge);
  message.set_compute_ns(kHuge);
  message.add_down_bytes(kHuge);  // Without a time.
  for (int i = 0; i < 1000; ++i) {
    message.add_down_ns(i % 2 == 0 ? kHuge : 1);
    message.add_down_bytes(kHuge);
  }
  message.set_tested(1.5);
  const protocol::LinkReport taken = protocol::LinkReportFromProto(message);
  EXPECT_FALSE(taken.tested.has_value());
  message.set_tested(std::nan(""));
  EXPECT_FALSE(protocol::LinkReportFromProto(message).tested.has_value());
  EXPECT_EQ(taken.round_trip_s, 0);
  EXPECT_EQ(taken.compute_s, 0);
  EXPECT_EQ(taken.encode_s, 2);
  ASSERT_EQ(taken.down.size(), 3u) << "of the first four the one of 584 years is none";
  EXPECT_EQ(taken.down[2].seconds, 1e-9);
}

TEST(ConvertTest, CommandsOfCheckpointsTravel) {
  const v1::ShardCommand named = Command(NameCheckpoint{.minimum_step = 2000});
  EXPECT_EQ(named.sequence(), 7);
  EXPECT_EQ(named.name_checkpoint().minimum_step(), 2000);

  const v1::ShardCommand suspended = Command(SuspendShard{.term = 4, .reason = "rank 2 was lost"});
  EXPECT_EQ(suspended.suspend().term(), 4);
  EXPECT_EQ(suspended.suspend().reason(), "rank 2 was lost");

  const v1::ShardCommand ended =
      Command(EndShard{.phase = JobPhase::kFailed, .reason = "rank 1 gave up"});
  EXPECT_EQ(PhaseFromProto(ended.end().phase()), JobPhase::kFailed);
  EXPECT_EQ(ended.end().reason(), "rank 1 gave up");
}

TEST(ConvertTest, AStartTellsWhatToRestore) {
  StartShard start{.job_uid = 9,
                   .term = 2,
                   .first_step = 1001,
                   .table = {{.name = "w", .shape = {4}, .strides = {1}}},
                   .layout = {},
                   .generation = 3,
                   .incarnations = {11, 12},
                   .window_bytes = 1 << 20,
                   .coordinator_incarnation = 5,
                   .parameters_agree = true,
                   .restore_step = 1000};
  const absl::StatusOr<StartShard> back = StartFromProto(Command(start).start());
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->term, 2);
  EXPECT_EQ(back->first_step, 1001);
  EXPECT_EQ(back->restore_step, 1000);
  EXPECT_EQ(back->incarnations, start.incarnations);
  EXPECT_EQ(back->coordinator_incarnation, 5);

  start.first_step = 1002;
  EXPECT_EQ(StartFromProto(Command(start).start()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ConvertTest, AStatusCarriesWarnings) {
  v1::GetStatusReply reply;
  StatusToProto(JobStatus{}, {{JobWarning::Kind::kSlow, "worker 3 waits on its uplink"}}, &reply);
  ASSERT_EQ(reply.warnings_size(), 1);
  EXPECT_EQ(reply.warnings(0).kind(), "slow");
  EXPECT_EQ(reply.warnings(0).text(), "worker 3 waits on its uplink");
}

// protobuf refuses to read a message with a text that is no UTF-8.
template <typename Message>
bool CanBeRead(const Message& message) {
  return Message().ParseFromString(message.SerializeAsString());
}

TEST(ConvertTest, TextsFromElsewhereAreUtf8InMessages) {
  const std::string broken = "\xff caf\xc3";
  EXPECT_TRUE(CanBeRead(Command(EndShard{.phase = JobPhase::kFailed, .reason = broken})));
  EXPECT_TRUE(CanBeRead(Command(SuspendShard{.term = 2, .reason = broken})));
  protocol::ExchangeAnswer answer;
  answer.message = broken;
  EXPECT_TRUE(CanBeRead(ReplyToProto(answer, 1)));
  JobStatus status;
  status.job_name = status.failure = status.last_rollback = broken;
  status.members.emplace_back().host = broken;
  status.shards.emplace_back().address = broken;
  v1::GetStatusReply reply;
  StatusToProto(status, {{JobWarning::Kind::kNote, broken}}, &reply);
  EXPECT_TRUE(CanBeRead(reply));
  EXPECT_EQ(reply.failure(), "\xef\xbf\xbd caf\xef\xbf\xbd");
  protocol::CheckpointPart part;
  part.error = broken;
  v1::CheckpointPart message;
  PartToProto(part, &message);
  EXPECT_TRUE(CanBeRead(message));
}

TEST(ConvertTest, AReasonIsCutBetweenCharacters) {
  v1::LeaveRequest request;
  request.set_reason(absl::StrCat(std::string(4095, 'x'), "\xc3\xa9"));
  const absl::StatusOr<WorkerLeave> leave = LeaveFromProto(request);
  ASSERT_TRUE(leave.ok()) << leave.status();
  EXPECT_EQ(leave->reason, std::string(4095, 'x'));
}

TEST(ConvertTest, ExchangesCarryCheckpointsAndTerms) {
  v1::ExchangeRequest request;
  request.set_step(5);
  request.set_checkpoint_step(8);
  const absl::StatusOr<protocol::Exchange> exchange = protocol::ExchangeFromProto({}, &request);
  ASSERT_TRUE(exchange.ok()) << exchange.status();
  EXPECT_EQ(exchange->checkpoint_step, 8);

  protocol::ExchangeAnswer answer;
  answer.outcome = protocol::Outcome::kFenced;
  answer.checkpoint_step = 12;
  answer.term = 3;
  const v1::ExchangeReply reply = ReplyToProto(answer, 1);
  EXPECT_EQ(reply.checkpoint_step(), 12);
  EXPECT_EQ(reply.term(), 3);
}

}  // namespace
}  // namespace sluice::server
