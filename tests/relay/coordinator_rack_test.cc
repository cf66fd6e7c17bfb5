// SPDX-License-Identifier: Apache-2.0
// Tests that a rack's coordinator lets the parent job decide the first step of a term and the end
// of the job.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/coordinator/checkpoint_fixture.h"

namespace sluice::relay {
namespace {

using ::testing::HasSubstr;

class CoordinatorRackTest : public server::RollbackTest {
 protected:
  CoordinatorRackTest() : CoordinatorRackTest(InRack(server::TwoCheckpoints())) {}
  explicit CoordinatorRackTest(server::CoordinatorOptions options)
      : RollbackTest(std::move(options)) {}

  static server::CoordinatorOptions InRack(std::vector<protocol::CheckpointManifest> checkpoints) {
    server::CoordinatorOptions options = server::WithCheckpoints(ExampleOptions());
    options.in_rack = true;
    options.checkpoint = {.dir = "checkpoints", .interval = uint64_t{1} << 62, .replay_limit = 0};
    options.checkpoints = std::move(checkpoints);
    protocol::RunRecord run{.job_name = "demo", .job_uid = 77, .term = 4};
    if (!options.checkpoints.empty()) options.run = std::move(run);
    return options;
  }
  void AllCome(uint64_t nonce = 9000) {
    answers_.clear();
    Join(1, server::JoinOf(0, nonce));
    Attach(11, server::ArrivalOf(0));
    Attach(12, server::ArrivalOf(1));
    coordinator_.Join(2, server::JoinOf(1, nonce + 1), now_, &effects_);
    TakeAsked();
  }
  // Records the effects for the parent job, which the fixture ignores.
  void TakeAsked() {
    for (const server::CoordinatorEffect& effect : effects_) {
      if (const auto* ask = std::get_if<server::AskParent>(&effect)) asked_.push_back(ask->term);
      if (const auto* leave = std::get_if<server::LeaveParent>(&effect))
        left_.push_back(leave->term);
    }
    Collect();
  }
  void Begin(uint32_t term, uint64_t step, bool agree = true) {
    coordinator_.StartRackTerm(term, step, agree, now_, &effects_);
    TakeAsked();
  }

  std::vector<uint32_t> asked_;
  std::vector<uint32_t> left_;
};

TEST_F(CoordinatorRackTest, AsksOnceAllAreHereAndBeginsWhereItIsTold) {
  AllCome();
  EXPECT_THAT(asked_, ::testing::ElementsAre(5));
  EXPECT_EQ(LastOf<protocol::StartShard>(11), nullptr);
  Tick(absl::Seconds(1));
  TakeAsked();
  EXPECT_THAT(asked_, ::testing::ElementsAre(5));  // The parent job is asked only once.
  Begin(5, 100);                                   // This is not the rack's newest checkpoint.
  ASSERT_NE(LastOf<protocol::StartShard>(11), nullptr);
  EXPECT_EQ(LastOf<protocol::StartShard>(11)->restore_step, 100u);
  AcknowledgeAll();
  EXPECT_EQ(answers_.at(1)->restore_step, 100u);
  EXPECT_EQ(answers_.at(1)->first_step, 101u);
  EXPECT_TRUE(coordinator_.HasCheckpoint(100));
  // This checkpoint is later than step 100, so it was discarded.
  EXPECT_FALSE(coordinator_.HasCheckpoint(200));
}

TEST_F(CoordinatorRackTest, WhatIsOfAnotherTermChangesNothing) {
  AllCome();
  Begin(4, 100);
  EXPECT_EQ(LastOf<protocol::StartShard>(11), nullptr);
  coordinator_.ParentLost(4, "late", now_, &effects_);
  coordinator_.FinishParent(4, &effects_);
  Collect();
  EXPECT_EQ(coordinator_.term(), 5u);
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRecovering);
}

TEST_F(CoordinatorRackTest, WhereTheJobAboveBeginsAtItsStartParametersAreBrought) {
  AllCome();
  Begin(5, 0, /*agree=*/false);
  AcknowledgeAll();
  EXPECT_EQ(answers_.at(1)->first_step, 1u);
  // The answer must be false even if all parameters within the rack are equal.
  EXPECT_FALSE(answers_.at(1)->parameters_agree);
  EXPECT_FALSE(coordinator_.HasCheckpoint(100));
}

TEST_F(CoordinatorRackTest, AJobAboveThatGoesBackBeginsATermAndIsAskedAgain) {
  AllCome();
  Begin(5, 200);
  AcknowledgeAll();
  ASSERT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning);
  coordinator_.ParentLost(5, "the job went back", now_, &effects_);
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
  EXPECT_EQ(NewestOf<protocol::NameCheckpoint>(11), nullptr);
  Request(3);
  EXPECT_THAT(std::string(checkpoint_answers_.at(3).status().message()), HasSubstr("ask that"));
}

// The parent job keeps two checkpoints and may roll back to either of them. The rack must keep
// both.
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
  // The parent job's checkpoint after step 300 never became complete.
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

// In these tests, the parent job names checkpoints regardless of the rack's progress.
class SlowRackTest : public CoordinatorRackTest {
 protected:
  void Start() {
    AllCome();
    Begin(5, 200);
    AcknowledgeAll();
    ASSERT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning);
  }
  void Name(uint64_t step) { coordinator_.ShardNamedCheckpoint(11, step); }
  void ShardsGive(uint64_t step) {
    for (uint32_t shard = 0; shard < 2; ++shard) {
      ShardPart(11 + shard, PartOf(protocol::ShardPartName(shard, 5), step));
    }
  }
  void RankGives(uint32_t rank, uint64_t step, std::string error = "") {
    protocol::CheckpointPart part = PartOf(protocol::WorkerPartName(rank, 5), step);
    part.error = std::move(error);
    EXPECT_TRUE(WorkerPart(rank, part).ok());
  }
};

TEST_F(SlowRackTest, PartsThatComeWhileAManifestIsBeingWrittenAreTakenAfterwards) {
  Start();
  Name(300);
  GiveAllParts(300);
  ASSERT_EQ(manifests_.back().step, 300u);
  Name(400);
  GiveAllParts(400);
  EXPECT_EQ(manifests_.back().step, 300u);
  Written(300);
  EXPECT_TRUE(coordinator_.HasCheckpoint(300));
  ASSERT_EQ(manifests_.back().step, 400u) << "no shard reports its part again";
  Written(400);
  EXPECT_TRUE(coordinator_.HasCheckpoint(400));
}

TEST_F(SlowRackTest, SoTheyAreIfTheManifestCannotBeWritten) {
  Start();
  Name(300);
  GiveAllParts(300);
  Name(400);
  ShardsGive(400);
  RankGives(0, 400);
  Written(300, absl::ResourceExhaustedError("no space left on device"));
  EXPECT_FALSE(coordinator_.HasCheckpoint(300));
  RankGives(1, 400);
  EXPECT_EQ(manifests_.back().step, 400u);
}

TEST_F(SlowRackTest, OfSeveralThatComeMeanwhileTheLastOneCounts) {
  Start();
  Name(300);
  GiveAllParts(300);
  ShardsGive(400);
  RankGives(0, 400);
  ShardsGive(500);
  RankGives(1, 400, "no space left on device");
  RankGives(0, 500);
  Written(300);
  EXPECT_EQ(manifests_.back().step, 300u);
  RankGives(1, 500);
  ASSERT_EQ(manifests_.back().step, 500u);
  Written(500);
  EXPECT_THAT(dropped_, ::testing::Contains(400))
      << "the remaining parts of checkpoint 400 are removed";
}

TEST_F(SlowRackTest, SaysWhatBecameOfACheckpoint) {
  Start();
  EXPECT_TRUE(coordinator_.CheckpointOutcome(200)->ok());
  EXPECT_EQ(coordinator_.CheckpointOutcome(300), std::nullopt) << "checkpoint 300 is not named yet";
  Name(300);
  GiveAllParts(300);
  ShardsGive(400);
  EXPECT_EQ(coordinator_.CheckpointOutcome(300), std::nullopt)
      << "checkpoint 300 is still being written";
  Written(300);
  EXPECT_TRUE(coordinator_.CheckpointOutcome(300)->ok());
  EXPECT_EQ(coordinator_.CheckpointOutcome(400), std::nullopt);
  RankGives(1, 400, "no space left on device");
  ASSERT_TRUE(coordinator_.CheckpointOutcome(400).has_value());
  EXPECT_THAT(std::string(coordinator_.CheckpointOutcome(400)->message()),
              ::testing::AllOf(HasSubstr("no checkpoint after step 400"),
                               HasSubstr("no space left on device")));
}

// The parent job names the next checkpoint only after it has abandoned the pending one. So the rack
// must abandon the pending one too.
TEST_F(SlowRackTest, ASlowWorkerCostsTheCheckpointsThatItIsLateFor) {
  Start();
  Name(300);
  ShardsGive(300);
  RankGives(0, 300);
  Name(400);
  ShardsGive(400);
  EXPECT_THAT(warnings_.back(), HasSubstr("the checkpoint after step 300 was abandoned"));
  RankGives(0, 400);
  RankGives(1, 400, "the checkpoint before it is still being written");
  RankGives(1, 300);
  EXPECT_FALSE(coordinator_.HasCheckpoint(300));
  Name(500);
  GiveAllParts(500);
  ASSERT_EQ(manifests_.back().step, 500u);
}

TEST_F(CoordinatorRackTest, TheEndWaitsForTheJobAbove) {
  AllCome();
  Begin(5, 200);
  AcknowledgeAll();
  ASSERT_TRUE(Leave(0, true).ok());
  const protocol::WorkerLeave last{.last = BeatOf(1), .finished = true, .reason = ""};
  ASSERT_TRUE(coordinator_.Leave(last, now_, &effects_).ok());
  TakeAsked();
  EXPECT_THAT(left_, ::testing::ElementsAre(5));
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning);
  coordinator_.FinishParent(5, &effects_);
  // The record must contain the members, so that the relay's next process recognizes them.
  protocol::RunRecord record;
  for (const server::CoordinatorEffect& effect : effects_) {
    if (const auto* persist = std::get_if<server::PersistRun>(&effect)) record = persist->record;
  }
  EXPECT_TRUE(record.finished);
  EXPECT_EQ(record.members.size(), 2u);
  Collect();
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kFinished);
}

class NewRackTest : public CoordinatorRackTest {
 protected:
  NewRackTest() : CoordinatorRackTest(NoCheckpoints()) {}
  static server::CoordinatorOptions NoCheckpoints() {
    server::CoordinatorOptions options = ExampleOptions();
    options.in_rack = true;
    return options;
  }
};

TEST_F(NewRackTest, WithoutCheckpointsALossAboveIsTheEnd) {
  AllCome();
  EXPECT_THAT(asked_, ::testing::ElementsAre(0));
  Begin(0, 0);
  AcknowledgeAll();
  coordinator_.ParentLost(0, "relay 1 is gone", now_, &effects_);
  Collect();
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kFailed);
  EXPECT_EQ(coordinator_.failure(), "relay 1 is gone");
}

TEST(CoordinatorOfRelays, NamesThemAndAlwaysBringsParameters) {
  server::Coordinator coordinator({.job_name = "demo",
                                   .job_hash = 9,
                                   .software_version = "1",
                                   .world_size = 1,
                                   .shards = 1,
                                   .relays = true,
                                   .job_uid = 77},
                                  absl::UnixEpoch());
  server::Coordinator::Effects effects;
  coordinator.AttachShard(11, server::ArrivalOf(0), absl::UnixEpoch(), &effects);
  ASSERT_TRUE(std::holds_alternative<server::Notice>(effects.back()));
  EXPECT_THAT(std::get<server::Notice>(effects.back()).text, HasSubstr("waiting for relay 0"));
  coordinator.Join(1, server::JoinOf(0), absl::UnixEpoch(), &effects);
  const auto& command = std::get<server::CommandShard>(effects.back());
  EXPECT_FALSE(std::get<protocol::StartShard>(command.command).parameters_agree);
}

}  // namespace
}  // namespace sluice::relay
