// SPDX-License-Identifier: Apache-2.0
#include "protocol/wire/common_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>

#include "tests/protocol/wire/unset_fields.h"
#include "tests/protocol/wire/wire_samples.h"

namespace sluice::protocol {
namespace {

using ::testing::IsEmpty;

TEST(CommonMessagesTest, SendersTravel) {
  v1::Sender message;
  SenderToProto(SampleSender(), &message);
  EXPECT_THAT(UnsetFields(message), IsEmpty());
  EXPECT_EQ(SenderFromProto(message), SampleSender());
}

TEST(CommonMessagesTest, PartsTravel) {
  v1::CheckpointPart message;
  PartToProto(SamplePart(), &message);
  EXPECT_THAT(UnsetFields(message), IsEmpty());
  EXPECT_EQ(PartFromProto(message), SamplePart());
  EXPECT_EQ(CheckedPartFromProto(message), SamplePart());
}

TEST(CommonMessagesTest, APartWhoseNameIsNoFileNameIsAnErrorToAServer) {
  for (const char* name : {"", "../run.json", "/etc/passwd", ".hidden", "a b", "a\\b", "a\nb"}) {
    v1::CheckpointPart message;
    message.set_name(name);
    const CheckpointPart part = CheckedPartFromProto(message);
    EXPECT_NE(part.error, "") << name;
    EXPECT_EQ(part.name.find('\n'), std::string::npos);
    EXPECT_EQ(PartFromProto(message).name, name) << "a worker takes the name unchanged";
  }
  v1::CheckpointPart message;
  message.set_name(std::string(1 << 20, 'a'));
  message.set_error(std::string(1 << 20, 'b'));
  EXPECT_LE(CheckedPartFromProto(message).name.size(), 200);
  EXPECT_LE(CheckedPartFromProto(message).error.size(), 4096);
}

// docs/checkpoints.md allows names of 200 characters.
TEST(CommonMessagesTest, TheLongestNameOfAPartTravelsWholeAndALongerOneIsAnError) {
  v1::CheckpointPart message;
  message.set_name(std::string(200, 'a'));
  EXPECT_EQ(CheckedPartFromProto(message).error, "");
  EXPECT_EQ(CheckedPartFromProto(message).name, message.name());
  message.set_name(std::string(201, 'a'));
  EXPECT_NE(CheckedPartFromProto(message).error, "");
}

TEST(CommonMessagesTest, LayoutsTravel) {
  v1::LayoutParameters message;
  LayoutToProto(SampleLayout(), &message);
  EXPECT_THAT(UnsetFields(message), IsEmpty());
  EXPECT_EQ(LayoutFromProto(message), SampleLayout());
  message.clear_fragments();
  EXPECT_EQ(LayoutFromProto(message).fragments, 1u) << "version 0.1 sends none";
}

TEST(CommonMessagesTest, WaitsForDisksTravel) {
  v1::DiskWait message;
  WaitToProto(SampleWait(), &message);
  EXPECT_THAT(UnsetFields(message), IsEmpty());
  EXPECT_EQ(WaitFromProto(message), SampleWait());
  message.set_seconds(-1);
  message.set_trouble(std::string(5000, 'x'));
  EXPECT_EQ(WaitFromProto(message).lasts, absl::ZeroDuration());
  EXPECT_EQ(WaitFromProto(message).trouble.size(), 4096u);
}

TEST(CommonMessagesTest, PhasesTravel) {
  int known = 0;
  for (const JobPhase phase : {JobPhase::kWaiting, JobPhase::kRunning, JobPhase::kFinished,
                               JobPhase::kFailed, JobPhase::kRecovering}) {
    for (const JobPhase otherwise : {JobPhase::kFailed, JobPhase::kRunning}) {
      EXPECT_EQ(PhaseFromProto(PhaseToProto(phase), otherwise), phase) << ToString(phase);
    }
    ++known;
  }
  EXPECT_EQ(v1::JobPhase_descriptor()->value_count(), known + 1)
      << "all phases but JOB_PHASE_UNSPECIFIED must be tested";
  EXPECT_EQ(PhaseFromProto(v1::JOB_PHASE_UNSPECIFIED, JobPhase::kFailed), JobPhase::kFailed);
  EXPECT_EQ(PhaseFromProto(static_cast<v1::JobPhase>(99), JobPhase::kRunning), JobPhase::kRunning);
}

TEST(CommonMessagesTest, LevelsTravel) {
  EXPECT_EQ(LevelToProto(std::nullopt), v1::LOG_LEVEL_UNSPECIFIED);
  for (const auto& [level, name] : NamesOf(LogLevel{})) {
    EXPECT_EQ(LevelFromProto(LevelToProto(level)), level) << name;
  }
  EXPECT_EQ(LevelFromProto(v1::LOG_LEVEL_UNSPECIFIED), std::nullopt);
  EXPECT_EQ(LevelFromProto(static_cast<v1::LogLevel>(99)), std::nullopt);
}

TEST(CommonMessagesTest, WhatIsNoAmountIsZero) {
  for (const double amount : {-1.0, HUGE_VAL, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_EQ(AmountFromProto(amount), 0) << amount;
  }
  EXPECT_EQ(AmountFromProto(2.5), 2.5);
}

TEST(CommonMessagesTest, AnErrorOfAPartIsUtf8InItsMessage) {
  CheckpointPart part = SamplePart();
  part.error = "\xff caf\xc3";
  v1::CheckpointPart message;
  PartToProto(part, &message);
  EXPECT_TRUE(CanBeRead(message));
  EXPECT_EQ(message.error(), "\xef\xbf\xbd caf\xef\xbf\xbd");
}

}  // namespace
}  // namespace sluice::protocol
