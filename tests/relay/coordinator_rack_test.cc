// A rack's coordinator leaves to the job above with which step a term begins, and when all is over.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/checkpoint_fixture.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

class CoordinatorRackTest : public RollbackTest {
 protected:
  CoordinatorRackTest() : CoordinatorRackTest(InRack(TwoCheckpoints())) {}
  explicit CoordinatorRackTest(CoordinatorOptions options) : RollbackTest(std::move(options)) {}

  static CoordinatorOptions InRack(std::vector<CheckpointManifest> checkpoints) {
    CoordinatorOptions options = WithCheckpoints(ExampleOptions());
    options.in_rack = true;
    options.checkpoint_every = uint64_t{1} << 62;
    options.checkpoints = std::move(checkpoints);
    RunRecord run{.job_name = "demo", .job_uid = 77, .term = 4};
    if (!options.checkpoints.empty()) options.run = std::move(run);
    return options;
  }
  void AllCome(uint64_t nonce = 9000) {
    answers_.clear();
    Join(1, JoinOf(0, nonce));
    Attach(11, ArrivalOf(0));
    Attach(12, ArrivalOf(1));
    coordinator_.Join(2, JoinOf(1, nonce + 1), now_, &effects_);
    TakeAsked();
  }
  // Effects of this kind are not the fixture's to know.
  void TakeAsked() {
    for (const CoordinatorEffect& effect : effects_) {
      if (const auto* ask = std::get_if<AskAbove>(&effect)) asked_.push_back(ask->term);
      if (const auto* leave = std::get_if<LeaveAbove>(&effect)) left_.push_back(leave->term);
    }
    Collect();
  }
  void Begin(uint32_t term, uint64_t step, bool agree = true) {
    coordinator_.BeginTerm(term, step, agree, now_, &effects_);
    TakeAsked();
  }

  std::vector<uint32_t> asked_;
  std::vector<uint32_t> left_;
};

TEST_F(CoordinatorRackTest, AsksOnceAllAreHereAndBeginsWhereItIsTold) {
  AllCome();
  EXPECT_THAT(asked_, ::testing::ElementsAre(5));
  EXPECT_EQ(LastOf<StartShard>(11), nullptr);
  Tick(absl::Seconds(1));
  TakeAsked();
  EXPECT_THAT(asked_, ::testing::ElementsAre(5));  // Once.
  Begin(5, 100);                                   // Not the newest that is here.
  ASSERT_NE(LastOf<StartShard>(11), nullptr);
  EXPECT_EQ(LastOf<StartShard>(11)->restore_step, 100u);
  AcknowledgeAll();
  EXPECT_EQ(answers_.at(1)->restore_step, 100u);
  EXPECT_EQ(answers_.at(1)->first_step, 101u);
  EXPECT_TRUE(coordinator_.HasCheckpoint(100));
  EXPECT_FALSE(coordinator_.HasCheckpoint(200));  // Not of its past.
}

TEST_F(CoordinatorRackTest, WhatIsOfAnotherTermChangesNothing) {
  AllCome();
  Begin(4, 100);
  EXPECT_EQ(LastOf<StartShard>(11), nullptr);
  coordinator_.AboveLost(4, "late", now_, &effects_);
  coordinator_.FinishAbove(4, &effects_);
  Collect();
  EXPECT_EQ(coordinator_.term(), 5u);
  EXPECT_EQ(coordinator_.phase(), JobPhase::kRecovering);
}

TEST_F(CoordinatorRackTest, WhereTheJobAboveBeginsAtItsStartParametersAreBrought) {
  AllCome();
  Begin(5, 0, /*agree=*/false);
  AcknowledgeAll();
  EXPECT_EQ(answers_.at(1)->first_step, 1u);
  EXPECT_FALSE(answers_.at(1)->parameters_agree);  // Though those in the rack are equal.
  EXPECT_FALSE(coordinator_.HasCheckpoint(100));
}

TEST_F(CoordinatorRackTest, AJobAboveThatGoesBackBeginsATermAndIsAskedAgain) {
  AllCome();
  Begin(5, 200);
  AcknowledgeAll();
  ASSERT_EQ(coordinator_.phase(), JobPhase::kRunning);
  coordinator_.AboveLost(5, "the job went back", now_, &effects_);
  TakeAsked();
  EXPECT_EQ(coordinator_.term(), 6u);
  EXPECT_THAT(warnings_.back(), HasSubstr("the job went back"));
  AllCome(9500);
  EXPECT_THAT(asked_, ::testing::ElementsAre(5, 6));
}

TEST_F(CoordinatorRackTest, ItNamesNoCheckpoints) {
  AllCome();
  Begin(5, 200);
  AcknowledgeAll();
  EXPECT_EQ(NewestOf<NameCheckpoint>(11), nullptr);
  Request(3);
  EXPECT_THAT(std::string(checkpoint_answers_.at(3).status().message()), HasSubstr("ask that"));
}

// The job above, which keeps two, may go back to either of them.
TEST_F(CoordinatorRackTest, CheckpointsAreKeptThatTheJobAboveMayGoBackTo) {
  AllCome();
  Begin(5, 200);
  AcknowledgeAll();
  for (const uint64_t step : {300, 400, 500}) {
    coordinator_.ShardNamedCheckpoint(11, step);
    CompleteCheckpoint(step);
  }
  EXPECT_THAT(dropped_, ::testing::IsEmpty());
  EXPECT_TRUE(coordinator_.HasCheckpoint(100));
  // That after step 300 never was complete above.
  coordinator_.ReleaseCheckpoints(400);
  coordinator_.ShardNamedCheckpoint(11, 600);
  CompleteCheckpoint(600);
  EXPECT_FALSE(coordinator_.HasCheckpoint(100));
  for (const uint64_t step : {200, 300, 400, 500, 600}) {
    EXPECT_TRUE(coordinator_.HasCheckpoint(step)) << step;
  }
  coordinator_.ReleaseCheckpoints(600);
  coordinator_.ShardNamedCheckpoint(11, 700);
  CompleteCheckpoint(700);
  EXPECT_FALSE(coordinator_.HasCheckpoint(300));
  for (const uint64_t step : {400, 500, 600, 700}) {
    EXPECT_TRUE(coordinator_.HasCheckpoint(step)) << step;
  }
}

TEST_F(CoordinatorRackTest, TheEndWaitsForTheJobAbove) {
  AllCome();
  Begin(5, 200);
  AcknowledgeAll();
  ASSERT_TRUE(Leave(0, true).ok());
  const WorkerLeave last{.last = BeatOf(1), .finished = true, .reason = ""};
  ASSERT_TRUE(coordinator_.Leave(last, now_, &effects_).ok());
  TakeAsked();
  EXPECT_THAT(left_, ::testing::ElementsAre(5));
  EXPECT_EQ(coordinator_.phase(), JobPhase::kRunning);
  coordinator_.FinishAbove(5, &effects_);
  // With its members, so that the relay's next process can tell them.
  RunRecord record;
  for (const CoordinatorEffect& effect : effects_) {
    if (const auto* persist = std::get_if<PersistRun>(&effect)) record = persist->record;
  }
  EXPECT_TRUE(record.finished);
  EXPECT_EQ(record.members.size(), 2u);
  Collect();
  EXPECT_EQ(coordinator_.phase(), JobPhase::kFinished);
}

class NewRackTest : public CoordinatorRackTest {
 protected:
  NewRackTest() : CoordinatorRackTest(NoCheckpoints()) {}
  static CoordinatorOptions NoCheckpoints() {
    CoordinatorOptions options = ExampleOptions();
    options.in_rack = true;
    return options;
  }
};

TEST_F(NewRackTest, WithoutCheckpointsALossAboveIsTheEnd) {
  AllCome();
  EXPECT_THAT(asked_, ::testing::ElementsAre(0));
  Begin(0, 0);
  AcknowledgeAll();
  coordinator_.AboveLost(0, "relay 1 is gone", now_, &effects_);
  Collect();
  EXPECT_EQ(coordinator_.phase(), JobPhase::kFailed);
  EXPECT_EQ(coordinator_.failure(), "relay 1 is gone");
}

TEST(CoordinatorOfRelays, NamesThemAndAlwaysBringsParameters) {
  Coordinator coordinator({.job_name = "demo",
                           .job_hash = 9,
                           .software_version = "1",
                           .world_size = 1,
                           .shards = 1,
                           .layout = {},
                           .relays = true,
                           .job_uid = 77},
                          absl::UnixEpoch());
  Coordinator::Effects effects;
  coordinator.AttachShard(11, ArrivalOf(0), absl::UnixEpoch(), &effects);
  ASSERT_TRUE(std::holds_alternative<Notice>(effects.back()));
  EXPECT_THAT(std::get<Notice>(effects.back()).text, HasSubstr("waiting for relay 0"));
  coordinator.Join(1, JoinOf(0), absl::UnixEpoch(), &effects);
  const auto& command = std::get<CommandShard>(effects.back());
  EXPECT_FALSE(std::get<StartShard>(command.command).parameters_agree);
}

}  // namespace
}  // namespace sluice
