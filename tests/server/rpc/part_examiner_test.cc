// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/part_examiner.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "base/mutex.h"
#include "protocol/checkpoint/checkpoint_folder.h"
#include "tests/rpc/host_fixture.h"

namespace sluice::server {
namespace {

using ::testing::HasSubstr;

// Examines parts that the tests write themselves. The clock stands still unless a test advances it.
class PartExaminerTest : public HostFixture {
 protected:
  static constexpr absl::Duration kPatience = absl::Seconds(60);

  protocol::CheckpointPart WriteState() {
    const auto part = protocol::WritePart(protocol::PartsFolder(job_.checkpoint, 0), 2, 3,
                                          protocol::WorkerPartName(1, 2), "the state of rank 1");
    Check(part.ok(), part.status().message());
    return *part;
  }
  protocol::CheckpointPart Manifest() const {
    protocol::CheckpointPart part;
    part.step = 3;
    part.name = std::string(protocol::kManifestName);
    part.bytes = std::filesystem::file_size(PathOf(part));
    return part;
  }
  // Lets a new examiner examine the part, and returns what it reports.
  protocol::CheckpointPart Examined(const protocol::CheckpointPart& part) {
    PartExaminer examiner(job_.checkpoint, kPatience, Listener(), &simulated_, Logger("test"));
    const size_t before = outcomes();
    examiner.Examine(part);
    return Await(before + 1).back();
  }
  PartExaminer::Listener Listener() {
    return [this](const protocol::PartExamined& examined) {
      MutexLock lock(&outcomes_mutex_);
      outcomes_.push_back(examined.part);
      came_.SignalAll();
    };
  }
  std::vector<protocol::CheckpointPart> Await(size_t count) {
    MutexLock lock(&outcomes_mutex_);
    while (outcomes_.size() < count) came_.Wait(&outcomes_mutex_);
    return outcomes_;
  }

  // Its log tells when the first attempt to read a part has failed.
  Logger RecordingLogger() {
    LogOptions log;
    log.sink = [this](LogLevel, absl::string_view, absl::string_view text) {
      if (!absl::StrContains(text, "retrying")) return;
      MutexLock lock(&outcomes_mutex_);
      ++failed_;
      came_.SignalAll();
    };
    return Logger("test", std::move(log));
  }
  void AwaitFailures(size_t count) {
    MutexLock lock(&outcomes_mutex_);
    while (failed_ < count) came_.Wait(&outcomes_mutex_);
  }

  size_t outcomes() {
    MutexLock lock(&outcomes_mutex_);
    return outcomes_.size();
  }

  SimulatedClock simulated_;
  Mutex outcomes_mutex_;
  CondVar came_;
  std::vector<protocol::CheckpointPart> outcomes_ ABSL_GUARDED_BY(outcomes_mutex_);
  size_t failed_ ABSL_GUARDED_BY(outcomes_mutex_) = 0;
};

TEST_F(PartExaminerTest, AnIntactPartIsReportedWithoutAnError) {
  const protocol::CheckpointPart part = WriteState();
  Complete(part);
  const protocol::CheckpointPart examined = Examined(part);
  EXPECT_EQ(examined, part);
}

TEST_F(PartExaminerTest, ADamagedPartIsReportedWithItsFile) {
  const protocol::CheckpointPart part = WriteState();
  Complete(part);
  Damage(part);
  const protocol::CheckpointPart examined = Examined(part);
  EXPECT_EQ(examined.name, part.name);
  EXPECT_TRUE(examined.unreadable);
  EXPECT_THAT(examined.error, HasSubstr(PathOf(part)));
}

TEST_F(PartExaminerTest, APartThatIsGoneIsDamaged) {
  const protocol::CheckpointPart part = WriteState();
  Complete(part);
  std::filesystem::remove(PathOf(part));
  EXPECT_THAT(Examined(part).error, HasSubstr(part.name));
}

TEST_F(PartExaminerTest, ANameOutsideTheFolderIsNotRead) {
  protocol::CheckpointPart part = WriteState();
  Complete(part);
  part.name = "../run.json";
  EXPECT_THAT(Examined(part).error, HasSubstr("not a valid name"));
}

TEST_F(PartExaminerTest, OnePartIsExaminedAfterTheOther) {
  const protocol::CheckpointPart part = WriteState();
  Complete(part);
  PartExaminer examiner(job_.checkpoint, kPatience, Listener(), &simulated_, Logger("test"));
  for (size_t times = 1; times <= 3; ++times) {
    examiner.Examine(part);
    EXPECT_EQ(Await(times).back().error, "");
  }
}

TEST_F(PartExaminerTest, TheManifestIsExaminedAsAPart) {
  Complete(WriteState());
  EXPECT_EQ(Examined(Manifest()).error, "");
  Damage(Manifest());
  EXPECT_THAT(Examined(Manifest()).error, HasSubstr("manifest.json"));
}

// A worker finds its part only through the manifest.
TEST_F(PartExaminerTest, ADamagedManifestSpoilsAllParts) {
  const protocol::CheckpointPart part = WriteState();
  Complete(part);
  Damage(Manifest());
  EXPECT_THAT(Examined(part).error, HasSubstr("manifest.json"));
}

TEST_F(PartExaminerTest, WithStoreShardsAServerHasNoManifest) {
  job_.checkpoint.store = protocol::CheckpointStore::kShards;
  EXPECT_EQ(Examined(WriteState()).error, "");
}

// A folder that is gone may come back.
TEST_F(PartExaminerTest, WhatCannotBeReadNowIsReadAgainUntilThePatienceIsOver) {
  const protocol::CheckpointPart part = WriteState();
  PartExaminer examiner(job_.checkpoint, kPatience, Listener(), &simulated_, RecordingLogger());
  examiner.Examine(part);  // There is no manifest yet.
  AwaitFailures(1);
  Complete(part);
  EXPECT_EQ(Await(1).front().error, "");
  std::filesystem::remove(PathOf(Manifest()));
  examiner.Examine(part);
  AwaitFailures(2);
  EXPECT_EQ(outcomes(), 1u);
  simulated_.Advance(kPatience);
  EXPECT_THAT(Await(2).back().error, HasSubstr("manifest.json"));
}

TEST_F(PartExaminerTest, AnExaminerThatEndsReportsNothingOfAPartThatItCannotRead) {
  const protocol::CheckpointPart part = WriteState();
  {
    PartExaminer examiner(job_.checkpoint, kPatience, Listener(), &simulated_, RecordingLogger());
    examiner.Examine(part);
    AwaitFailures(1);
  }
  EXPECT_EQ(outcomes(), 0u);
}

}  // namespace
}  // namespace sluice::server
