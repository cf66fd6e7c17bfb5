// SPDX-License-Identifier: Apache-2.0
#include "protocol/wire/membership_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/protocol/wire/unset_fields.h"
#include "tests/protocol/wire/wire_samples.h"

namespace sluice::protocol {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

MemberProgress SampleProgress() {
  return {.step = 1,
          .total_steps = 2,
          .epoch = 3,
          .loss = 4.5,
          .samples_per_second = 5.5,
          .bytes_up = 6,
          .bytes_down = 7,
          .dense_bytes_up = 8,
          .dense_bytes_down = 9,
          .step_ms_p50 = 10.5,
          .validation_metric = 0.5,
          .skipped_bundles = 11,
          .seconds_left = 12.5,
          .residual_energy = 13.5};
}

MemberTimings SampleTimings() {
  return {.steps = 21,
          .compute_seconds = 22.5,
          .encode_seconds = 23.5,
          .decode_seconds = 24.5,
          .exchange_seconds = 25.5};
}

WorkerJoin SampleJoin() {
  return {.job_name = "mnist",
          .job_hash = 1,
          .nonce = 2,
          .rank = 3,
          .table = SampleTable(),
          .parameters_sha256 = std::string(32, 'p'),
          .software_version = "1.2.3",
          .host = "node-4",
          .pid = 5};
}

JoinGrant SampleGrant() {
  return {.job_uid = 1,
          .term = 2,
          .rank = 3,
          .incarnation = 4,
          .generation = 5,
          .world_size = 6,
          .first_step = 7,
          .layout = SampleLayout(),
          .shards = {SamplePlace(0), SamplePlace(1)},
          .window_bytes = 8,
          .parameters_agree = true,
          .restore_step = 9,
          .restore_world_size = 10,
          .restore_parts = {SamplePart()},
          .lease = absl::Milliseconds(11),
          .heartbeat = absl::Milliseconds(12),
          .server_incarnation = 13,
          .late_joiner = true,
          .members = {14, 15},
          .plan = std::make_shared<const CompressionPlan>(SamplePlan())};
}

WorkerHeartbeat SampleHeartbeat() {
  return {.sender = SampleSender(),
          .progress = SampleProgress(),
          .timings = SampleTimings(),
          .since_progress = absl::Seconds(31.5),
          .parameters_hash_step = 32,
          .parameters_sha256 = std::string(32, 'h'),
          .replay_from = 33,
          .parts = {SamplePart()},
          .known_shards = {34, 35},
          .restoring_step = 36,
          .disk_wait = SampleWait()};
}

// Returns a job's state with the fields that every answer has.
JobState SampleState() {
  JobState state;
  state.phase = JobPhase::kRecovering;
  state.failure = "rank 2 was lost";
  state.term = 42;
  return state;
}

TEST(MembershipMessagesTest, JoinTravels) {
  const WorkerJoin join = SampleJoin();
  v1::JoinRequest message;
  JoinToProto(join, &message);
  EXPECT_THAT(UnsetFields(message), UnorderedElementsAre("resume_step"))
      << "no worker can resume in this version";
  const absl::StatusOr<WorkerJoin> back = JoinFromProto(message);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->job_name, join.job_name);
  EXPECT_EQ(back->job_hash, join.job_hash);
  EXPECT_EQ(back->nonce, join.nonce);
  EXPECT_EQ(back->rank, join.rank);
  EXPECT_EQ(back->table, join.table);
  EXPECT_EQ(back->parameters_sha256, join.parameters_sha256);
  EXPECT_EQ(back->software_version, join.software_version);
  EXPECT_EQ(back->host, join.host);
  EXPECT_EQ(back->pid, join.pid);
  EXPECT_EQ(*back, join);
  v1::JoinRequest again;
  JoinToProto(*back, &again);
  EXPECT_EQ(again.DebugString(), message.DebugString());
}

TEST(MembershipMessagesTest, AJoinThatCannotBeIsRefused) {
  v1::JoinRequest valid;
  JoinToProto(SampleJoin(), &valid);
  v1::JoinRequest message = valid;
  message.set_parameters_sha256("short");
  EXPECT_THAT(std::string(JoinFromProto(message).status().message()),
              HasSubstr("parameters_sha256 has 5 bytes instead of 32"));
  message = valid;
  message.set_resume_step(1);
  EXPECT_THAT(std::string(JoinFromProto(message).status().message()), HasSubstr("resume_step"));
  message = valid;
  message.mutable_table()->set_hash(1);
  EXPECT_THAT(std::string(JoinFromProto(message).status().message()), HasSubstr("hash"));
}

TEST(MembershipMessagesTest, TheAnswerToJoinTravels) {
  const JoinGrant grant = SampleGrant();
  v1::JoinReply message;
  GrantToProto(grant, &message);
  EXPECT_THAT(UnsetFields(message), UnorderedElementsAre("plan.rate", "plan.worker_budget_bytes"))
      << "plans of this version never set these fields";
  const absl::StatusOr<JoinGrant> back = GrantFromProto(message);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->job_uid, grant.job_uid);
  EXPECT_EQ(back->term, grant.term);
  EXPECT_EQ(back->rank, grant.rank);
  EXPECT_EQ(back->incarnation, grant.incarnation);
  EXPECT_EQ(back->generation, grant.generation);
  EXPECT_EQ(back->world_size, grant.world_size);
  EXPECT_EQ(back->first_step, grant.first_step);
  EXPECT_EQ(back->layout, grant.layout);
  EXPECT_EQ(back->shards, grant.shards);
  EXPECT_EQ(back->window_bytes, grant.window_bytes);
  EXPECT_TRUE(back->parameters_agree);
  EXPECT_EQ(back->restore_step, grant.restore_step);
  EXPECT_EQ(back->restore_world_size, grant.restore_world_size);
  EXPECT_EQ(back->restore_parts, grant.restore_parts);
  EXPECT_EQ(back->lease, grant.lease);
  EXPECT_EQ(back->heartbeat, grant.heartbeat);
  EXPECT_EQ(back->server_incarnation, grant.server_incarnation);
  EXPECT_TRUE(back->late_joiner);
  EXPECT_EQ(back->members, grant.members);
  ASSERT_NE(back->plan, nullptr);
  EXPECT_EQ(*back->plan, *grant.plan);
  v1::JoinReply again;
  GrantToProto(*back, &again);
  EXPECT_EQ(again.DebugString(), message.DebugString());

  message.set_parameters_agree(false);
  EXPECT_FALSE(GrantFromProto(message)->parameters_agree);
  message.mutable_plan()->mutable_entries(0)->set_downlink("int8");
  EXPECT_EQ(GrantFromProto(message).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(MembershipMessagesTest, HeartbeatsTravel) {
  const WorkerHeartbeat heartbeat = SampleHeartbeat();
  v1::HeartbeatRequest message;
  HeartbeatToProto(heartbeat, &message);
  EXPECT_THAT(UnsetFields(message), IsEmpty());
  const absl::StatusOr<WorkerHeartbeat> back = HeartbeatFromProto(message);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->sender, heartbeat.sender);
  EXPECT_EQ(back->progress, heartbeat.progress);
  EXPECT_EQ(back->timings, heartbeat.timings);
  EXPECT_EQ(back->since_progress, heartbeat.since_progress);
  EXPECT_EQ(back->parameters_hash_step, heartbeat.parameters_hash_step);
  EXPECT_EQ(back->parameters_sha256, heartbeat.parameters_sha256);
  EXPECT_EQ(back->replay_from, heartbeat.replay_from);
  EXPECT_EQ(back->parts, heartbeat.parts);
  EXPECT_EQ(back->known_shards, heartbeat.known_shards);
  EXPECT_EQ(back->restoring_step, heartbeat.restoring_step);
  EXPECT_EQ(back->disk_wait, heartbeat.disk_wait);
  EXPECT_EQ(*back, heartbeat);
  v1::HeartbeatRequest again;
  HeartbeatToProto(*back, &again);
  EXPECT_EQ(again.DebugString(), message.DebugString());
}

TEST(MembershipMessagesTest, AHeartbeatThatWaitsForNoDiskSaysNothingOfOne) {
  WorkerHeartbeat heartbeat = SampleHeartbeat();
  heartbeat.disk_wait = {};
  heartbeat.progress.seconds_left.reset();
  v1::HeartbeatRequest message;
  HeartbeatToProto(heartbeat, &message);
  EXPECT_FALSE(message.has_disk_wait());
  const absl::StatusOr<WorkerHeartbeat> back = HeartbeatFromProto(message);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, heartbeat);
}

TEST(MembershipMessagesTest, WhatIsNoTimeOrEnergyIsNone) {
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
  request.set_seconds_since_progress(-1);
  const absl::StatusOr<WorkerHeartbeat> heartbeat = HeartbeatFromProto(request);
  ASSERT_TRUE(heartbeat.ok());
  EXPECT_EQ(heartbeat->timings.steps, 3u);
  EXPECT_EQ(heartbeat->timings.compute_seconds, 1.5);
  EXPECT_EQ(heartbeat->timings.decode_seconds, 0);
  EXPECT_EQ(heartbeat->timings.encode_seconds, 0);
  EXPECT_EQ(heartbeat->timings.exchange_seconds, 0);
  EXPECT_EQ(heartbeat->since_progress, absl::ZeroDuration());
}

TEST(MembershipMessagesTest, AHeartbeatOfTooManyPartsKeepsTheFirst) {
  v1::HeartbeatRequest request;
  for (uint32_t part = 0; part < 20; ++part) request.add_parts()->set_term(part);
  const absl::StatusOr<WorkerHeartbeat> heartbeat = HeartbeatFromProto(request);
  ASSERT_TRUE(heartbeat.ok());
  ASSERT_EQ(heartbeat->parts.size(), 16u);
  EXPECT_EQ(heartbeat->parts.back().term, 15u);
  EXPECT_NE(heartbeat->parts.back().error, "") << "an empty name is not a file name";
}

TEST(MembershipMessagesTest, AHashOfAnotherSizeIsRefused) {
  v1::HeartbeatRequest heartbeat;
  heartbeat.set_parameters_hash_step(1);
  EXPECT_EQ(HeartbeatFromProto(heartbeat).status().code(), absl::StatusCode::kInvalidArgument);
  v1::LeaveRequest leave;
  leave.set_parameters_hash_step(1);
  EXPECT_EQ(LeaveFromProto(leave).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(MembershipMessagesTest, TheAnswerToAHeartbeatTravels) {
  HeartbeatReply answer{.job = SampleState(), .server_incarnation = 51};
  answer.job.generation = 52;
  answer.job.durable_step = 53;
  answer.job.shards = {SamplePlace(0), SamplePlace(1)};
  answer.job.log_level = LogLevel::kWarning;
  v1::HeartbeatReply message;
  HeartbeatReplyToProto(answer, &message);
  EXPECT_THAT(UnsetFields(message), IsEmpty());
  const HeartbeatReply back = HeartbeatReplyFromProto(message);
  EXPECT_EQ(back.job.phase, answer.job.phase);
  EXPECT_EQ(back.job.failure, answer.job.failure);
  EXPECT_EQ(back.job.generation, answer.job.generation);
  EXPECT_EQ(back.job.term, answer.job.term);
  EXPECT_EQ(back.job.durable_step, answer.job.durable_step);
  EXPECT_EQ(back.job.shards, answer.job.shards);
  EXPECT_EQ(back.server_incarnation, answer.server_incarnation);
  EXPECT_EQ(back, answer);
  v1::HeartbeatReply again;
  HeartbeatReplyToProto(back, &again);
  EXPECT_EQ(again.DebugString(), message.DebugString());

  message.set_phase(v1::JOB_PHASE_UNSPECIFIED);
  EXPECT_EQ(HeartbeatReplyFromProto(message).job.phase, JobPhase::kRunning)
      << "an unknown phase must not end a worker";
}

TEST(MembershipMessagesTest, LeaveTravels) {
  // Leave carries only these fields of a heartbeat.
  const WorkerLeave leave{.last = {.sender = SampleSender(),
                                   .progress = SampleProgress(),
                                   .timings = SampleTimings(),
                                   .parameters_hash_step = 61,
                                   .parameters_sha256 = std::string(32, 'l')},
                          .finished = true,
                          .reason = "out of memory"};
  v1::LeaveRequest message;
  LeaveToProto(leave, &message);
  EXPECT_THAT(UnsetFields(message), IsEmpty());
  const absl::StatusOr<WorkerLeave> back = LeaveFromProto(message);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->last, leave.last);
  EXPECT_TRUE(back->finished);
  EXPECT_EQ(back->reason, leave.reason);
  v1::LeaveRequest again;
  LeaveToProto(*back, &again);
  EXPECT_EQ(again.DebugString(), message.DebugString());
}

TEST(MembershipMessagesTest, AReasonIsCutBetweenCharacters) {
  v1::LeaveRequest request;
  request.set_reason(absl::StrCat(std::string(4095, 'x'), "\xc3\xa9"));
  const absl::StatusOr<WorkerLeave> leave = LeaveFromProto(request);
  ASSERT_TRUE(leave.ok()) << leave.status();
  EXPECT_EQ(leave->reason, std::string(4095, 'x'));
}

TEST(MembershipMessagesTest, TheAnswerToLeaveTravels) {
  v1::LeaveReply message;
  LeaveAnswerToProto(SampleState(), &message);
  EXPECT_THAT(UnsetFields(message), IsEmpty());
  const JobState back = LeaveAnswerFromProto(message);
  EXPECT_EQ(back.phase, SampleState().phase);
  EXPECT_EQ(back.failure, SampleState().failure);
  EXPECT_EQ(back.term, SampleState().term);
  EXPECT_EQ(back, SampleState());
}

TEST(MembershipMessagesTest, TextsFromElsewhereAreUtf8InMessages) {
  const std::string broken = "\xff caf\xc3";
  WorkerJoin join = SampleJoin();
  join.job_name = join.host = join.software_version = broken;
  v1::JoinRequest request;
  JoinToProto(join, &request);
  EXPECT_TRUE(CanBeRead(request));
  v1::LeaveRequest leave;
  LeaveToProto({.last = {}, .finished = false, .reason = broken}, &leave);
  EXPECT_TRUE(CanBeRead(leave));
  JobState state;
  state.failure = broken;
  v1::HeartbeatReply reply;
  HeartbeatReplyToProto({.job = state}, &reply);
  EXPECT_TRUE(CanBeRead(reply));
}

}  // namespace
}  // namespace sluice::protocol
