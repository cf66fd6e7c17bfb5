// SPDX-License-Identifier: Apache-2.0
#include "cli/resume_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "job/job_spec.h"
#include "protocol/checkpoint/checkpoint_folder.h"

namespace sluice::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class RunStartTest : public ::testing::Test {
 protected:
  RunStartTest() {
    std::string folder = ::testing::TempDir() + "/folder-XXXXXX";
    spec_.checkpoint.dir = ::mkdtemp(folder.data());
    spec_.name = "mnist";
  }
  ~RunStartTest() override { std::filesystem::remove_all(spec_.checkpoint.dir); }

  void Record(uint32_t term, bool finished = false, const std::string& name = "mnist") {
    const protocol::RunRecord record{
        .job_name = name, .job_uid = 7, .term = term, .finished = finished};
    const absl::Status status = protocol::WriteRunRecord(spec_.checkpoint.dir, record);
    ASSERT_TRUE(status.ok()) << status;
  }
  void Checkpoint(uint64_t step) {
    const absl::StatusOr<protocol::CheckpointPart> part =
        protocol::WritePart(spec_.checkpoint.dir, 0, step, protocol::ShardPartName(0, 0), "bytes");
    ASSERT_TRUE(part.ok()) << part.status();
    protocol::CheckpointManifest manifest;
    manifest.job_name = "mnist";
    manifest.step = step;
    manifest.parts = {*part};
    const absl::Status status = protocol::WriteManifest(spec_.checkpoint.dir, manifest);
    ASSERT_TRUE(status.ok()) << status;
  }
  std::string Refusal(bool resume) const {
    const absl::Status status = FindRunStart(spec_, resume).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  }

  job::JobSpec spec_;
};

TEST_F(RunStartTest, WithoutCheckpointsThereIsNothingToResume) {
  spec_.checkpoint.dir.clear();
  const absl::StatusOr<RunStart> start = FindRunStart(spec_, false);
  ASSERT_TRUE(start.ok()) << start.status();
  EXPECT_FALSE(start->continues);
  EXPECT_THAT(Refusal(true), HasSubstr("`checkpoint` section"));
  spec_.checkpoint.dir = "/nowhere";
  EXPECT_EQ(RollbacksSince(spec_, 0), 0u);
}

TEST_F(RunStartTest, AnEmptyFolderIsForANewRun) {
  const absl::StatusOr<RunStart> start = FindRunStart(spec_, false);
  ASSERT_TRUE(start.ok()) << start.status();
  EXPECT_FALSE(start->continues);
  EXPECT_EQ(start->term, 0u);
  EXPECT_THAT(Refusal(true), AllOf(HasSubstr("no run was in"), HasSubstr(spec_.checkpoint.dir)));
}

TEST_F(RunStartTest, AnUnfinishedRunIsContinuedOnlyIfAskedTo) {
  Record(3);
  Checkpoint(20);
  Checkpoint(40);
  ASSERT_TRUE(
      protocol::WritePart(spec_.checkpoint.dir, 3, 60, protocol::ShardPartName(0, 3), "incomplete")
          .ok());
  EXPECT_THAT(Refusal(false), AllOf(HasSubstr("unfinished run of job mnist"),
                                    HasSubstr("after step 40"), HasSubstr("--resume")));
  const absl::StatusOr<RunStart> start = FindRunStart(spec_, true);
  ASSERT_TRUE(start.ok()) << start.status();
  EXPECT_TRUE(start->continues);
  EXPECT_EQ(start->term, 4u);
  EXPECT_EQ(start->checkpoint_step, 40u);
}

TEST_F(RunStartTest, ARunWithoutCheckpointsYetCanBeContinued) {
  Record(0);
  const absl::StatusOr<RunStart> start = FindRunStart(spec_, true);
  ASSERT_TRUE(start.ok()) << start.status();
  EXPECT_EQ(start->checkpoint_step, 0u);
  EXPECT_THAT(Refusal(false), HasSubstr("no complete checkpoint yet"));
}

TEST_F(RunStartTest, AFinishedOrForeignRunIsRefused) {
  Record(2, /*finished=*/true);
  for (const bool resume : {false, true}) {
    EXPECT_THAT(Refusal(resume),
                AllOf(HasSubstr("holds a finished run"), HasSubstr("give another checkpoint.dir")));
  }
  Record(2, /*finished=*/false, "cifar");
  EXPECT_THAT(Refusal(true), AllOf(HasSubstr("cifar"), HasSubstr("mnist")));
}

TEST_F(RunStartTest, ADamagedRecordIsNamed) {
  Record(2);
  std::ofstream(spec_.checkpoint.dir + "/run.json") << "{\"job";
  const absl::Status status = FindRunStart(spec_, true).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("run.json"));
}

TEST_F(RunStartTest, KnowsWhenTheJobHasFinished) {
  EXPECT_FALSE(HasFinished(spec_));
  Record(1);
  EXPECT_FALSE(HasFinished(spec_));
  Record(1, /*finished=*/true);
  EXPECT_TRUE(HasFinished(spec_));
}

TEST_F(RunStartTest, CountsRollbacksByTheTerm) {
  EXPECT_EQ(RollbacksSince(spec_, 0), 0u);
  Record(5);
  EXPECT_EQ(RollbacksSince(spec_, 0), 5u);
  EXPECT_EQ(RollbacksSince(spec_, 5), 0u);
  EXPECT_EQ(RollbacksSince(spec_, 6), 0u);
}

}  // namespace
}  // namespace sluice::cli
