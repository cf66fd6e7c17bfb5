// SPDX-License-Identifier: Apache-2.0
#include "protocol/wire/shard_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "tests/protocol/wire/unset_fields.h"
#include "tests/protocol/wire/wire_samples.h"

namespace sluice::protocol {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

StartShard SampleStart() {
  return {.job_uid = 9,
          .term = 2,
          .first_step = 1001,
          .table = SampleTable(),
          .layout = SampleLayout(),
          .generation = 3,
          .incarnations = {11, 12},
          .window_bytes = 1 << 20,
          .coordinator_incarnation = 5,
          .parameters_agree = true,
          .restore_step = 1000,
          .replay = true,
          .restore_world_size = 6,
          .restore_part = SamplePart(),
          .former_states = {{SamplePart(), "a:1"}, {SamplePart(), "b:2"}}};
}

TEST(ShardMessagesTest, HellosTravel) {
  const ShardArrival arrival{.job_name = "mnist",
                             .job_hash = 1,
                             .shard = 2,
                             .address = "shard:7000",
                             .server_incarnation = 3,
                             .software_version = "1.2.3",
                             .job_uid = 4,
                             .term = 5,
                             .running = true,
                             .nonce = 6};
  const v1::ShardHello message = HelloToProto(arrival);
  EXPECT_THAT(UnsetFields(message), IsEmpty());
  const ShardArrival back = HelloFromProto(message);
  EXPECT_EQ(back.job_name, arrival.job_name);
  EXPECT_EQ(back.job_hash, arrival.job_hash);
  EXPECT_EQ(back.shard, arrival.shard);
  EXPECT_EQ(back.address, arrival.address);
  EXPECT_EQ(back.server_incarnation, arrival.server_incarnation);
  EXPECT_EQ(back.software_version, arrival.software_version);
  EXPECT_EQ(back.job_uid, arrival.job_uid);
  EXPECT_EQ(back.term, arrival.term);
  EXPECT_TRUE(back.running);
  EXPECT_EQ(back.nonce, arrival.nonce);
  EXPECT_EQ(back, arrival);
  EXPECT_EQ(HelloToProto(back).DebugString(), message.DebugString());
}

TEST(ShardMessagesTest, HealthTravels) {
  const ShardHealthReport health{.highest_closed_step = 1,
                                 .highest_open_step = 2,
                                 .elements = 3,
                                 .in_flight_bytes = 4,
                                 .results_from = 5,
                                 .waited_seconds = {6.5, 7.5},
                                 .links = {{.up_rate = 1e6,
                                            .up_latency_s = 0.01,
                                            .down_rate = 2e6,
                                            .down_latency_s = 0.02,
                                            .compute_late_s = 3,
                                            .network_late_s = 4}},
                                 .disk_wait = SampleWait(),
                                 .suspects = {{.rank = 2, .opposes = true, .counts = true}}};
  const v1::ShardHealth message = HealthToProto(health);
  EXPECT_THAT(UnsetFields(message), IsEmpty());
  const ShardHealthReport back = HealthFromProto(message);
  EXPECT_EQ(back.highest_closed_step, health.highest_closed_step);
  EXPECT_EQ(back.highest_open_step, health.highest_open_step);
  EXPECT_EQ(back.elements, health.elements);
  EXPECT_EQ(back.in_flight_bytes, health.in_flight_bytes);
  EXPECT_EQ(back.results_from, health.results_from);
  EXPECT_EQ(back.waited_seconds, health.waited_seconds);
  EXPECT_EQ(back.links, health.links);
  EXPECT_EQ(back.disk_wait, health.disk_wait);
  EXPECT_EQ(back, health);
  EXPECT_EQ(HealthToProto(back).DebugString(), message.DebugString());
}

TEST(ShardMessagesTest, WhatIsNoFigureIsZero) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const LinkFigures broken{.up_rate = kNan,
                           .up_latency_s = -1,
                           .down_rate = HUGE_VAL,
                           .down_latency_s = kNan,
                           .compute_late_s = -2,
                           .network_late_s = HUGE_VAL};
  const ShardHealthReport health =
      HealthFromProto(HealthToProto({.waited_seconds = {2, -1, 0.5}, .links = {broken}}));
  EXPECT_EQ(health.waited_seconds, (std::vector<double>{2, 0, 0.5}));
  ASSERT_EQ(health.links.size(), 1u);
  EXPECT_EQ(health.links[0], LinkFigures{});
  EXPECT_FALSE(HealthToProto({}).has_disk_wait());
}

TEST(ShardMessagesTest, CommandsTravel) {
  const std::vector<ShardCommand> commands = {
      SampleStart(),
      EndShard{.phase = JobPhase::kFailed, .reason = "rank 1 gave up"},
      NameCheckpoint{.minimum_step = 2000},
      SuspendShard{.term = 4, .reason = "rank 2 was lost"},
      SetMembers{.generation = 5, .incarnations = {21, 22}},
      ReleaseResults{.durable_step = 6},
      KeepCheckpoints{.steps = {7, 8}, .before = 9},
      ExaminePart{.part = SampleStart().restore_part},
      SetLogLevel{.lowest = LogLevel::kError}};
  std::set<size_t> kinds;
  std::vector<v1::ShardCommand> messages;
  for (const ShardCommand& command : commands) {
    messages.push_back(CommandToProto(77, command));
    EXPECT_EQ(messages.back().sequence(), 77u);
    const absl::StatusOr<ShardCommand> back = CommandFromProto(messages.back());
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, command) << messages.back().DebugString();
    EXPECT_EQ(CommandToProto(77, *back).DebugString(), messages.back().DebugString());
    kinds.insert(command.index());
  }
  EXPECT_EQ(kinds.size(), std::variant_size_v<ShardCommand>);
  std::vector<const google::protobuf::Message*> all;
  for (const v1::ShardCommand& message : messages) all.push_back(&message);
  EXPECT_THAT(UnsetFields(all), UnorderedElementsAre(
                                    // Shard 0 makes the plans and sends them with its results, so
                                    // the coordinator sends none.
                                    "plan", "start.plan",
                                    // Members in a message to a shard are never late joiners, and
                                    // StartJob itself contains the step.
                                    "start.membership.members.learner",
                                    "membership.members.learner", "membership.from_step"));
}

TEST(ShardMessagesTest, AStartTravels) {
  StartShard start = SampleStart();
  const v1::ShardCommand message = CommandToProto(1, start);
  EXPECT_EQ(message.start().membership().from_step(), 1001u);
  const absl::StatusOr<ShardCommand> command = CommandFromProto(message);
  ASSERT_TRUE(command.ok()) << command.status();
  const auto& back = std::get<StartShard>(*command);
  EXPECT_EQ(back.job_uid, start.job_uid);
  EXPECT_EQ(back.term, start.term);
  EXPECT_EQ(back.first_step, start.first_step);
  EXPECT_EQ(back.table, start.table);
  EXPECT_EQ(back.layout, start.layout);
  EXPECT_EQ(back.generation, start.generation);
  EXPECT_EQ(back.incarnations, start.incarnations);
  EXPECT_EQ(back.window_bytes, start.window_bytes);
  EXPECT_EQ(back.coordinator_incarnation, start.coordinator_incarnation);
  EXPECT_TRUE(back.parameters_agree);
  EXPECT_EQ(back.restore_step, start.restore_step);
  EXPECT_TRUE(back.replay);
  EXPECT_EQ(back.restore_world_size, start.restore_world_size);
  EXPECT_EQ(back.restore_part, start.restore_part);
  EXPECT_EQ(back.former_states, start.former_states);

  start.parameters_agree = false;
  start.restore_part = {};
  const v1::ShardCommand other = CommandToProto(1, start);
  EXPECT_FALSE(other.start().has_restore_part());
  EXPECT_EQ(std::get<StartShard>(CommandFromProto(other).value()), start);
}

TEST(ShardMessagesTest, AStartThatContradictsItselfIsRefused) {
  StartShard start = SampleStart();
  start.first_step = 1002;
  EXPECT_EQ(CommandFromProto(CommandToProto(1, start)).status().code(),
            absl::StatusCode::kInvalidArgument);
  start = SampleStart();
  start.former_states.resize(kMaxShards + 1);
  EXPECT_EQ(CommandFromProto(CommandToProto(1, start)).status().code(),
            absl::StatusCode::kInvalidArgument);
  v1::ShardCommand message = CommandToProto(1, SampleStart());
  message.mutable_start()->mutable_table()->set_hash(1);
  EXPECT_EQ(CommandFromProto(message).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ShardMessagesTest, RanksComeInOrder) {
  v1::ShardCommand message = CommandToProto(1, SetMembers{3, {200}});
  message.mutable_membership()->mutable_members(0)->set_rank(1);
  EXPECT_THAT(std::string(CommandFromProto(message).status().message()),
              HasSubstr("found rank 1 where rank 0 belongs"));
  message = CommandToProto(1, SetMembers{3, {200}});
  message.mutable_membership()->mutable_members(0)->set_learner(true);
  EXPECT_EQ(CommandFromProto(message).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(CommandFromProto(message).status().message()),
              HasSubstr("found rank 0 (late joiner)"));
}

TEST(ShardMessagesTest, ACommandThatThisVersionHasNotIsUnimplemented) {
  v1::ShardCommand message;
  EXPECT_EQ(CommandFromProto(message).status().code(), absl::StatusCode::kUnimplemented);
  message.mutable_plan()->set_id(1);
  EXPECT_EQ(CommandFromProto(message).status().code(), absl::StatusCode::kUnimplemented);
}

TEST(ShardMessagesTest, AnUnknownPhaseEndsAShardAsAFailure) {
  v1::ShardCommand message = CommandToProto(1, EndShard{});
  message.mutable_end()->set_phase(v1::JOB_PHASE_UNSPECIFIED);
  EXPECT_EQ(std::get<EndShard>(CommandFromProto(message).value()).phase, JobPhase::kFailed);
}

TEST(ShardMessagesTest, TextsFromElsewhereAreUtf8InMessages) {
  const std::string broken = "\xff caf\xc3";
  EXPECT_TRUE(CanBeRead(CommandToProto(1, EndShard{.phase = JobPhase::kFailed, .reason = broken})));
  EXPECT_TRUE(CanBeRead(CommandToProto(1, SuspendShard{.term = 2, .reason = broken})));
  ShardArrival arrival;
  arrival.job_name = arrival.address = arrival.software_version = broken;
  EXPECT_TRUE(CanBeRead(HelloToProto(arrival)));
}

}  // namespace
}  // namespace sluice::protocol
