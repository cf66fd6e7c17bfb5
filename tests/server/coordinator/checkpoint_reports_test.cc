// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/checkpoint_reports.h"

#include <gtest/gtest.h>

#include "tests/server/coordinator/job_run_fixture.h"

namespace sluice::server {
namespace {

class CheckpointReportsTest : public JobRunTest {
 protected:
  explicit CheckpointReportsTest(CoordinatorOptions options = RepairOptions())
      : JobRunTest(std::move(options)) {
    Start();
  }
  absl::Status WorkerPart(uint32_t rank, const protocol::CheckpointPart& part) {
    return reports_.WorkerPart(BeatOf(rank).sender, part, now_, &effects_);
  }
  void ReportAll(uint64_t step) {
    for (const uint32_t each : {0u, 1u}) {
      EXPECT_TRUE(WorkerPart(each, PartOf(step, protocol::WorkerPartName(each, 0))).ok());
      reports_.ShardPart(11 + each, PartOf(step, protocol::ShardPartName(each, 0)), now_,
                         &effects_);
    }
  }

  CheckpointReports reports_{&run_};
};

TEST_F(CheckpointReportsTest, AllPartsMakeACheckpointThatIsCompleteOnceItIsWritten) {
  reports_.ShardNamedCheckpoint(11, 10);
  ReportAll(10);
  ASSERT_EQ(EffectsOf<WriteCheckpoint>().size(), 1u);
  EXPECT_EQ(EffectsOf<WriteCheckpoint>()[0].manifest.parts.size(), 4u);
  EXPECT_FALSE(run_.book().IsComplete(10));
  ReportAll(20);  // These parts arrive early.
  reports_.Written(absl::OkStatus(), now_, &effects_);
  EXPECT_TRUE(run_.book().IsComplete(10));
  EXPECT_EQ(EffectsOf<WriteCheckpoint>().size(), 1u);
  reports_.TakeEarlyParts(now_, &effects_);
  EXPECT_EQ(EffectsOf<WriteCheckpoint>().size(), 2u);
}

TEST_F(CheckpointReportsTest, ACheckpointThatCannotBeWrittenIsAbandoned) {
  reports_.ShardNamedCheckpoint(11, 10);
  ReportAll(10);
  reports_.Written(absl::UnavailableError("the disk is full"), now_, &effects_);
  EXPECT_FALSE(run_.book().IsComplete(10));
  EXPECT_EQ(run_.checkpoints().trouble(),
            "the checkpoint after step 10 was abandoned: the disk is full");
  EXPECT_TRUE(run_.is_running());
}

TEST_F(CheckpointReportsTest, ThePartOfAnotherProcessIsRefused) {
  EXPECT_EQ(WorkerPart(0, PartOf(10, protocol::WorkerPartName(1, 0))).code(),
            absl::StatusCode::kInvalidArgument);
  reports_.ShardPart(11, PartOf(10, protocol::ShardPartName(1, 0)), now_, &effects_);
  EXPECT_EQ(Events(), Texts{"part_ignored"});
  EXPECT_EQ(run_.book().under_way(), 0u);
}

TEST_F(CheckpointReportsTest, AWorkersPartOfAnUnnamedStepBeginsNoCheckpoint) {
  EXPECT_TRUE(WorkerPart(1, PartOf(uint64_t{1} << 62, protocol::WorkerPartName(1, 0))).ok());
  EXPECT_EQ(run_.book().under_way(), 0u);
  reports_.ShardNamedCheckpoint(11, 10);
  EXPECT_TRUE(WorkerPart(1, PartOf(uint64_t{1} << 62, protocol::WorkerPartName(1, 0))).ok());
  EXPECT_EQ(run_.book().under_way(), 10u);
  ReportAll(10);
  EXPECT_EQ(EffectsOf<WriteCheckpoint>().size(), 1u);
  reports_.Written(absl::OkStatus(), now_, &effects_);
  EXPECT_TRUE(run_.book().IsComplete(10));
}

TEST_F(CheckpointReportsTest, AWorkersPartMayComeBeforeTheNameOfItsCheckpoint) {
  for (const uint32_t rank : {0u, 1u}) {
    EXPECT_TRUE(WorkerPart(rank, PartOf(10, protocol::WorkerPartName(rank, 0))).ok());
  }
  EXPECT_TRUE(WorkerPart(0, PartOf(10, "parameters.pt")).ok());
  for (const uint32_t shard : {0u, 1u}) {
    reports_.ShardPart(11 + shard, PartOf(10, protocol::ShardPartName(shard, 0)), now_, &effects_);
  }
  ASSERT_EQ(EffectsOf<WriteCheckpoint>().size(), 1u);
  EXPECT_EQ(EffectsOf<WriteCheckpoint>()[0].manifest.parts.size(), 5u);
}

TEST_F(CheckpointReportsTest, AFileThatComesBeforeTheNameIsPartOfTheCheckpoint) {
  EXPECT_TRUE(WorkerPart(0, PartOf(10, "parameters.pt")).ok());
  reports_.ShardNamedCheckpoint(11, 10);
  for (const uint32_t rank : {0u, 1u}) {
    EXPECT_TRUE(WorkerPart(rank, PartOf(10, protocol::WorkerPartName(rank, 0))).ok());
  }
  for (const uint32_t shard : {0u, 1u}) {
    reports_.ShardPart(11 + shard, PartOf(10, protocol::ShardPartName(shard, 0)), now_, &effects_);
  }
  ASSERT_EQ(EffectsOf<WriteCheckpoint>().size(), 1u);
  EXPECT_EQ(EffectsOf<WriteCheckpoint>()[0].manifest.parts.size(), 5u);
}

TEST_F(CheckpointReportsTest, AFailureIsReportedOnlyOfOnesOwnPart) {
  reports_.ShardNamedCheckpoint(11, 10);
  for (const std::string& name : {protocol::WorkerPartName(0, 0), protocol::ShardPartName(0, 0),
                                  std::string("parameters.pt")}) {
    protocol::CheckpointPart failed = PartOf(10, name);
    failed.error = "the disk is full";
    EXPECT_EQ(WorkerPart(1, failed).code(), absl::StatusCode::kInvalidArgument) << name;
  }
  EXPECT_EQ(run_.book().under_way(), 10u);
}

TEST_F(CheckpointReportsTest, AnUnreadablePartOfTheCheckpointToRestoreIsARollback) {
  CompleteCheckpoint(10);
  CompleteCheckpoint(20);
  protocol::CheckpointPart part = PartOf(10, protocol::ShardPartName(1, 0));
  part.unreadable = true;
  part.error = "a bad checksum";
  reports_.ShardPart(12, part, now_, &effects_);
  EXPECT_TRUE(run_.is_running());  // A newer checkpoint has replaced that one.
  part.step = 20;
  reports_.ShardPart(11, part, now_, &effects_);
  EXPECT_TRUE(run_.is_running());  // Another shard's word does not count.
  reports_.ShardPart(12, part, now_, &effects_);
  EXPECT_TRUE(run_.is_recovering());
  EXPECT_EQ(run_.term().restore_step, 10u);
}

TEST_F(CheckpointReportsTest, AWorkersReportDiscardsACheckpointOnlyAfterAnExamination) {
  CompleteCheckpoint(10);
  CompleteCheckpoint(20);
  protocol::CheckpointPart part = PartOf(10, protocol::WorkerPartName(1, 0));
  part.unreadable = true;
  part.error = "a bad checksum";
  EXPECT_TRUE(WorkerPart(1, part).ok());  // A newer checkpoint has replaced that one.
  EXPECT_TRUE(EffectsOf<CommandShard>().empty());
  part.step = 20;
  EXPECT_TRUE(absl::IsUnavailable(WorkerPart(1, part)));
  EXPECT_TRUE(run_.is_running());
  EXPECT_TRUE(run_.book().IsComplete(20));
  part.error = "the checksum differs";
  reports_.PartExamined(11, part, now_, &effects_);
  EXPECT_TRUE(run_.is_recovering());
  EXPECT_EQ(run_.term().restore_step, 10u);
  EXPECT_FALSE(run_.book().IsComplete(20));
}

class ReportsOfRelaysTest : public CheckpointReportsTest {
 protected:
  ReportsOfRelaysTest() : CheckpointReportsTest(Relays()) {}
  static CoordinatorOptions Relays() {
    CoordinatorOptions options = RepairOptions();
    options.relays = true;
    return options;
  }
};

TEST_F(ReportsOfRelaysTest, ARelayMayLackItsRacksCheckpoint) {
  CompleteCheckpoint(10);
  CompleteCheckpoint(20);
  protocol::CheckpointPart part = PartOf(20, protocol::WorkerPartName(0, 0));
  part.unreadable = true;
  part.error = "the rack has none";
  EXPECT_TRUE(absl::IsUnavailable(WorkerPart(1, part))) << "a part of another relay is examined";
  EXPECT_TRUE(run_.is_running());
  part.name = protocol::WorkerPartName(1, 0);
  EXPECT_TRUE(WorkerPart(1, part).ok());
  EXPECT_TRUE(run_.is_recovering());
  EXPECT_EQ(run_.term().restore_step, 10u);
}

TEST_F(CheckpointReportsTest, APartOfAnEarlierTermIsIgnored) {
  const protocol::Sender sender = BeatOf(0).sender;
  const protocol::CheckpointPart part = PartOf(10, protocol::WorkerPartName(0, 0));
  run_.RollBack("a loss", now_, &effects_);
  EXPECT_TRUE(reports_.WorkerPart(sender, part, now_, &effects_).ok());
  EXPECT_EQ(run_.book().under_way(), 0u);
}

TEST_F(CheckpointReportsTest, ACheckpointWithAnOverduePartIsAbandoned) {
  reports_.ShardNamedCheckpoint(11, 10);
  EXPECT_TRUE(WorkerPart(0, PartOf(10, protocol::WorkerPartName(0, 0))).ok());
  reports_.AbandonOverdue(now_, &effects_);
  EXPECT_EQ(run_.book().under_way(), 10u);
  now_ += run_.options().server.rejoin_timeout + absl::Seconds(1);
  reports_.AbandonOverdue(now_, &effects_);
  EXPECT_EQ(run_.book().under_way(), 0u);
  EXPECT_EQ(Events(), Texts{"checkpoint_given_up"});
}

}  // namespace
}  // namespace sluice::server
