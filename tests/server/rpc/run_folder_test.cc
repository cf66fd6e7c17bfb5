// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "job/job_spec.h"
#include "protocol/checkpoint/checkpoint_folder.h"

namespace sluice::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RunFolderTest : public ::testing::Test {
 protected:
  RunFolderTest() {
    job_.name = "demo";
    job_.hash = 9;
    job_.checkpoint.dir =
        absl::StrCat(::testing::TempDir(), "/run_folder/",
                     ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(job_.checkpoint.dir);
  }
  const std::string& dir() const { return job_.checkpoint.dir; }

  absl::StatusOr<std::unique_ptr<RunFolder>> Open() {
    return RunFolder::Open(job_, Logger("test"));
  }
  std::string WhyNot() {
    const auto folder = Open();
    return folder.ok() ? "opened" : std::string(folder.status().message());
  }
  void WriteRun(bool finished = false) {
    ASSERT_TRUE(
        protocol::WriteRunRecord(dir(), {.job_name = "demo", .job_uid = 7, .finished = finished})
            .ok());
  }
  void WriteComplete(uint64_t step) {
    protocol::CheckpointManifest manifest;
    manifest.job_name = "demo";
    manifest.job_hash = 9;
    manifest.job_uid = 7;
    manifest.step = step;
    manifest.world_size = 1;
    manifest.shards = 1;
    manifest.layout = job_.exchange.compression.layout;
    for (const std::string& name :
         {protocol::ShardPartName(0, 0), protocol::WorkerPartName(0, 0)}) {
      const auto part = protocol::WritePart(dir(), 0, step, name, "state of " + name);
      ASSERT_TRUE(part.ok()) << part.status();
      manifest.parts.push_back(*part);
    }
    const absl::Status written = protocol::WriteManifest(dir(), manifest);
    ASSERT_TRUE(written.ok()) << written;
  }
  void Damage(uint64_t step, const std::string& name) {
    std::ofstream(protocol::StepFolder(dir(), step) + "/" + name, std::ios::app) << "x";
  }
  std::vector<uint64_t> StepsOf(const RunFolder& folder) {
    std::vector<uint64_t> steps;
    for (const auto& manifest : folder.checkpoints()) steps.push_back(manifest.step);
    return steps;
  }

  job::JobSpec job_;
};

TEST_F(RunFolderTest, AnEmptyFolderBeginsARun) {
  const auto folder = Open();
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_FALSE((*folder)->run().has_value());
  EXPECT_THAT((*folder)->checkpoints(), IsEmpty());
}

TEST_F(RunFolderTest, BelongsToOneCoordinatorAtATime) {
  auto first = Open();
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(Open().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(WhyNot(), HasSubstr("another coordinator uses checkpoint.dir " + dir()));
  first->reset();
  EXPECT_EQ(WhyNot(), "opened");
}

TEST_F(RunFolderTest, AnUnfinishedRunGoesOnFromTheNewestThatIsWhole) {
  WriteRun();
  for (const uint64_t step : {10, 20, 30}) WriteComplete(step);
  Damage(30, protocol::ShardPartName(0, 0));
  ASSERT_TRUE(protocol::WritePart(dir(), 0, 40, protocol::ShardPartName(0, 0), "only a part").ok());
  const auto folder = Open();
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ((*folder)->run()->job_uid, 7u);
  EXPECT_THAT(StepsOf(**folder), ElementsAre(10, 20));
  EXPECT_THAT((*folder)->damaged(), ElementsAre(30));
  EXPECT_FALSE(std::filesystem::exists(protocol::StepFolder(dir(), 40)))
      << "the checkpoint never became complete";
  EXPECT_TRUE(std::filesystem::exists(protocol::StepFolder(dir(), 30)))
      << "an operator may want to inspect the damaged files";
}

// A disk that does not answer says nothing about the checkpoint. An older one would lose steps.
TEST_F(RunFolderTest, ACheckpointThatCannotBeReadNowIsNotTakenForDamaged) {
  WriteRun();
  for (const uint64_t step : {10, 20}) WriteComplete(step);
  const std::string part = protocol::StepFolder(dir(), 20) + "/" + protocol::WorkerPartName(0, 0);
  for (const std::string& file : {protocol::StepFolder(dir(), 20) + "/manifest.json", part}) {
    std::filesystem::rename(file, file + ".away");
    std::filesystem::create_symlink(file, file);  // open() fails with ELOOP.
    const auto folder = Open();
    EXPECT_EQ(folder.status().code(), absl::StatusCode::kUnavailable) << folder.status();
    EXPECT_THAT(folder.status().message(), HasSubstr(file));
    std::filesystem::remove(file);
    std::filesystem::rename(file + ".away", file);
  }
  const auto folder = Open();
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_THAT(StepsOf(**folder), ElementsAre(10, 20));
}

// When a term continues, parts are reported again, possibly after they were removed. A manifest
// with missing parts must be refused.
TEST_F(RunFolderTest, RefusesAManifestWhosePartsAreGone) {
  WriteRun();
  WriteComplete(10);
  const auto folder = Open();
  ASSERT_TRUE(folder.ok()) << folder.status();
  protocol::CheckpointManifest manifest = (*folder)->checkpoints()[0];
  manifest.step = 20;
  for (protocol::CheckpointPart& part : manifest.parts) {
    part.step = 20;
    ASSERT_TRUE(protocol::WritePart(dir(), 0, 20, part.name, "state of " + part.name).ok());
  }
  EXPECT_TRUE((*folder)->Drop(20).ok());
  const absl::Status written = (*folder)->Write(manifest);
  EXPECT_TRUE(absl::IsDataLoss(written)) << written;
  EXPECT_THAT(written.message(), HasSubstr("is gone"));
  EXPECT_FALSE(std::filesystem::exists(protocol::StepFolder(dir(), 20) + "/manifest.json"));
}

// The folder's lock is lost (by a restart of a file server, for example), and another coordinator
// has taken over the run. The replaced coordinator must not change anything.
TEST_F(RunFolderTest, ACoordinatorThatWasReplacedChangesNothing) {
  WriteRun();
  WriteComplete(10);
  const auto folder = Open();
  ASSERT_TRUE(folder.ok()) << folder.status();
  const protocol::RunRecord own = {.job_name = "demo", .job_uid = 7, .term = 1};
  ASSERT_TRUE((*folder)->Persist(own).ok());
  protocol::CheckpointManifest manifest = (*folder)->checkpoints()[0];
  manifest.term = 1;
  manifest.step = 20;
  for (protocol::CheckpointPart& part : manifest.parts) {
    const auto written = protocol::WritePart(dir(), 1, 20, part.name, "state");
    ASSERT_TRUE(written.ok()) << written.status();
    part = *written;
  }
  for (const protocol::RunRecord& other :
       {protocol::RunRecord{.job_name = "demo", .job_uid = 7, .term = 2},
        protocol::RunRecord{.job_name = "demo", .job_uid = 7, .coordinator_incarnation = 1},
        protocol::RunRecord{.job_name = "demo", .job_uid = 8, .term = 0},
        protocol::RunRecord{.job_name = "demo", .job_uid = 7, .term = 1, .finished = true}}) {
    ASSERT_TRUE(protocol::WriteRunRecord(dir(), other).ok());
    for (const absl::Status& status :
         {(*folder)->Persist(own), (*folder)->Write(manifest), (*folder)->Drop(10)}) {
      EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
      EXPECT_THAT(status.message(), HasSubstr("another coordinator"));
    }
    EXPECT_EQ(protocol::ReadRunRecord(dir()).value(), other);
    EXPECT_TRUE(protocol::ReadManifest(dir(), 10).ok());
    EXPECT_TRUE(absl::IsNotFound(protocol::ReadManifest(dir(), 20).status()));
  }
  ASSERT_TRUE(protocol::WriteRunRecord(dir(), own).ok());
  EXPECT_TRUE((*folder)->Write(manifest).ok());
}

// Files for people must have the names that people look for, whichever process wrote the files.
TEST_F(RunFolderTest, PeopleFindFilesUnderTheirNames) {
  WriteRun();
  const auto folder = Open();
  ASSERT_TRUE(folder.ok()) << folder.status();
  protocol::CheckpointManifest manifest;
  manifest.job_name = "demo";
  manifest.job_uid = 7;
  manifest.step = 10;
  const std::string path = protocol::StepFolder(dir(), 10) + "/parameters.pt";
  for (const char* bytes : {"of one that died", "of its successor", "of the next"}) {
    const auto part = protocol::WritePart(dir(), 0, 10, "parameters.pt", bytes);
    ASSERT_TRUE(part.ok()) << part.status();
    manifest.parts = {*part};
    if (part->file.empty()) continue;
    const absl::Status written = (*folder)->Write(manifest);
    ASSERT_TRUE(written.ok()) << written;
    std::ifstream file(path);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), bytes);
    EXPECT_TRUE(protocol::VerifyCheckpoint(dir(), manifest).ok());
  }
}

TEST_F(RunFolderTest, PartsOfAnUnknownRunAreNotRemoved) {
  ASSERT_TRUE(
      protocol::WritePart(dir(), 0, 10, protocol::WorkerPartName(0, 0), "of some run").ok());
  EXPECT_THAT(WhyNot(), HasSubstr("no run.json that names their run"));
  EXPECT_THAT(protocol::ListCheckpoints(dir()).value(), ElementsAre(10));
}

// Late processes created the folder of an abandoned checkpoint again. The next Drop must remove it,
// because on a full disk nothing else would free its space.
TEST_F(RunFolderTest, WhatLateWritersLeaveGoesWithTheNextDrop) {
  WriteRun();
  WriteComplete(10);
  const auto folder = Open();
  ASSERT_TRUE(folder.ok()) << folder.status();
  const auto write_late = [this](uint64_t step) {
    ASSERT_TRUE(protocol::WritePart(dir(), 0, step, protocol::WorkerPartName(0, 0), "late").ok());
  };
  write_late(20);
  write_late(30);
  ASSERT_TRUE((*folder)->Drop(30).ok());
  EXPECT_THAT(protocol::ListCheckpoints(dir()).value(), ElementsAre(10));
  write_late(30);
  write_late(40);
  ASSERT_TRUE((*folder)->Drop(35).ok());
  EXPECT_THAT(protocol::ListCheckpoints(dir()).value(), ElementsAre(10, 40))
      << "checkpoint 40 may be in progress";
  ASSERT_TRUE((*folder)->Persist({.job_name = "demo", .job_uid = 7, .finished = true}).ok());
  EXPECT_THAT(protocol::ListCheckpoints(dir()).value(), ElementsAre(10));
}

TEST_F(RunFolderTest, WhenNoneCanBeUsedAPersonDecides) {
  WriteRun();
  WriteComplete(10);
  Damage(10, "manifest.json");
  EXPECT_THAT(WhyNot(), HasSubstr("none of the checkpoints in " + dir()));
}

TEST_F(RunFolderTest, RunsThatItCannotGoOnWithAreRefused) {
  WriteRun(/*finished=*/true);
  EXPECT_EQ(Open().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(WhyNot(), AllOf(HasSubstr(dir() + " holds a finished run"),
                              HasSubstr("another checkpoint.dir")));
  WriteRun();
  job_.name = "other";
  EXPECT_EQ(Open().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(WhyNot(), AllOf(HasSubstr("run of job demo"), HasSubstr("not of other")));
  job_.name = "demo";
  WriteComplete(10);
  job_.shards = 2;
  EXPECT_EQ(WhyNot(), "opened") << "the shards' states are redistributed";
  job_.shards = 1;
  job_.exchange.compression.layout.chunk_elements /= 2;
  EXPECT_THAT(WhyNot(), AllOf(HasSubstr("has compression.chunk_bytes: 256KiB and "
                                        "compression.bundle_bytes: 4096KiB, and this job has "
                                        "compression.chunk_bytes: 128KiB"),
                              HasSubstr("state them in the job file")));
  job_.exchange.compression.layout = {};
  job_.checkpoint.store = protocol::CheckpointStore::kShards;
  EXPECT_EQ(Open().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(WhyNot(),
              AllOf(HasSubstr("checkpoint.store: path"), HasSubstr("this job has shards")));
  job_.checkpoint.store = protocol::CheckpointStore::kPath;
  job_.workers = 2;
  EXPECT_EQ(WhyNot(), "opened") << "the residuals are redistributed among the workers";
  job_.workers = 1;
  std::filesystem::remove(dir() + "/run.json");
  EXPECT_THAT(WhyNot(), HasSubstr("no run.json"));
  std::ofstream(dir() + "/run.json") << "{";
  EXPECT_THAT(WhyNot(), HasSubstr("run.json"));
}

TEST_F(RunFolderTest, AFolderThatCannotBeMadeIsNamed) {
  std::filesystem::create_directories(std::filesystem::path(dir()).parent_path());
  std::ofstream(dir()) << "a file";
  EXPECT_THAT(WhyNot(), HasSubstr("checkpoint.dir " + dir() + " cannot be created"));
  std::filesystem::remove(dir());
}

}  // namespace
}  // namespace sluice::server
