// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/part_examinations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tests/server/coordinator/job_run_fixture.h"

namespace sluice::server {
namespace {

using ::testing::HasSubstr;

class PartExaminationsTest : public JobRunTest {
 protected:
  explicit PartExaminationsTest(CoordinatorOptions options = RepairOptions())
      : JobRunTest(std::move(options)) {
    Start();
    CompleteCheckpoint(10);
  }
  static CoordinatorOptions PartsAtShards() {
    CoordinatorOptions options = RepairOptions();
    options.checkpoint.store = protocol::CheckpointStore::kShards;
    return options;
  }
  static std::string StateOf(uint32_t rank) { return protocol::WorkerPartName(rank, 0); }
  absl::Status Report(const std::string& name) {
    protocol::CheckpointPart part = PartOf(10, name);
    part.unreadable = true;
    part.error = "a bad checksum";
    return examinations_.Reported(part, "rank 1", now_, &effects_);
  }
  std::string Answer(ControlStreamId stream, const std::string& name, std::string error = "") {
    protocol::CheckpointPart part = PartOf(10, name);
    part.error = std::move(error);
    return examinations_.Examined(stream, part, now_, &effects_);
  }
  // Returns the streams that got the command to examine the part.
  std::vector<ControlStreamId> ExaminersOf(const std::string& name) const {
    std::vector<ControlStreamId> streams;
    for (const CommandShard& command : EffectsOf<CommandShard>()) {
      const auto* const examine = std::get_if<protocol::ExaminePart>(&command.command);
      if (examine != nullptr && examine->part.name == name) streams.push_back(command.stream);
    }
    return streams;
  }

  using Streams = std::vector<ControlStreamId>;
  PartExaminations examinations_{&run_};
};

TEST_F(PartExaminationsTest, ACompleteManifestHasNoGap) {
  EXPECT_EQ(examinations_.Gap(10), "");
  EXPECT_EQ(examinations_.Gap(9), "") << "there is no such checkpoint";
}

// The coordinator starts with this checkpoint, which it has not written itself.
class GapTest : public ::testing::Test {
 protected:
  GapTest() {
    manifest_.step = 10;
    manifest_.world_size = 2;
    manifest_.at_shards = true;
    for (const uint32_t rank : {0u, 1u}) {
      manifest_.parts.emplace_back().name = protocol::WorkerPartName(rank, 0);
    }
    options_.world_size = 2;
    options_.shards = 2;
    options_.checkpoint = {.dir = "checkpoints", .interval = 10};
  }
  std::string Gap() {
    options_.checkpoints = {manifest_};
    JobRun run(options_, absl::UnixEpoch());
    return PartExaminations(&run).Gap(10);
  }

  CoordinatorOptions options_;
  protocol::CheckpointManifest manifest_;
};

TEST_F(GapTest, AStateThatTheManifestLacksIsOne) {
  EXPECT_EQ(Gap(), "");
  manifest_.parts.pop_back();
  EXPECT_EQ(Gap(), "its manifest lists 1 states of 2 ranks");
}

TEST_F(GapTest, AnElasticJobNeedsTheStateOfOneRank) {
  options_.elastic = ElasticMembership{.start = 2, .least = 1};
  manifest_.parts.pop_back();
  EXPECT_EQ(Gap(), "");
  manifest_.parts.pop_back();
  EXPECT_THAT(Gap(), HasSubstr("lists 0 states"));
}

TEST_F(GapTest, APartOfAServerThatTheJobNoLongerHasIsNone) {
  manifest_.shards = 3;
  manifest_.parts[1].server = 2;
  EXPECT_EQ(Gap(), "");
}

TEST_F(PartExaminationsTest, OnlyPartsOfTheManifestAreExamined) {
  for (const std::string name : {"anything", "", "worker-1-term-7.state", "parameters.pt"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Report(name))) << name;
  }
  EXPECT_TRUE(effects_.empty());
}

TEST_F(PartExaminationsTest, SeveralReportsStartOneExamination) {
  for (int times = 0; times < 3; ++times) {
    EXPECT_TRUE(absl::IsUnavailable(Report(StateOf(1))));
    EXPECT_TRUE(absl::IsUnavailable(Report(StateOf(0)))) << "one at a time";
  }
  EXPECT_EQ(ExaminersOf(StateOf(1)), Streams({11}));
  EXPECT_EQ(ExaminersOf(StateOf(0)), Streams());
  EXPECT_EQ(Events(), Texts{"part_reported"});
  EXPECT_EQ(Answer(11, StateOf(1)), "");
  EXPECT_TRUE(absl::IsUnavailable(Report(StateOf(0)))) << "now it is its turn";
  EXPECT_EQ(ExaminersOf(StateOf(0)), Streams({11}));
}

TEST_F(PartExaminationsTest, TheReportOfAnIntactPartIsRefusedAndSaysWhatToDo) {
  EXPECT_TRUE(absl::IsUnavailable(Report(StateOf(1))));
  EXPECT_EQ(Answer(11, StateOf(1)), "");
  EXPECT_EQ(Events(), (Texts{"part_reported", "part_intact"}));
  EXPECT_THAT(LastNotice(), HasSubstr("Check how rank 1 reaches checkpoint.dir"));
  const absl::Status refused = Report(StateOf(1));
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("Check how this worker reaches"));
  EXPECT_EQ(ExaminersOf(StateOf(1)), Streams({11}));
}

TEST_F(PartExaminationsTest, AnIntactPartIsReadAgainAfterAMinute) {
  EXPECT_TRUE(absl::IsUnavailable(Report(StateOf(1))));
  EXPECT_EQ(Answer(11, StateOf(1)), "");
  now_ += PartExaminations::kVerdictHolds - absl::Seconds(1);
  EXPECT_TRUE(absl::IsFailedPrecondition(Report(StateOf(1))));
  now_ += absl::Seconds(1);
  EXPECT_TRUE(absl::IsUnavailable(Report(StateOf(1))));
  EXPECT_EQ(ExaminersOf(StateOf(1)), Streams({11, 11}));
}

TEST_F(PartExaminationsTest, ADamagedPartIsTheReasonNotToUseTheCheckpoint) {
  EXPECT_TRUE(absl::IsUnavailable(Report(StateOf(1))));
  EXPECT_EQ(Answer(12, StateOf(1), "gone"), "") << "shard 1 was not asked";
  EXPECT_EQ(Answer(11, StateOf(0), "gone"), "") << "the coordinator did not ask for it";
  EXPECT_EQ(Answer(11, StateOf(1), "the checksum differs"),
            "rank 1 reported worker-1-term-0.state, and shard 0 found: the checksum differs");
  EXPECT_EQ(Answer(11, StateOf(1), "the checksum differs"), "") << "the examination is over";
}

TEST_F(PartExaminationsTest, TheManifestIsExaminedAsAPart) {
  EXPECT_TRUE(absl::IsUnavailable(Report("manifest.json")));
  EXPECT_EQ(ExaminersOf("manifest.json"), Streams({11}));
}

TEST_F(PartExaminationsTest, AShardThatAttachesAgainGetsTheCommandAgain) {
  EXPECT_TRUE(absl::IsUnavailable(Report(StateOf(1))));
  run_.fleet().Detach(11);
  EXPECT_TRUE(absl::IsUnavailable(Report(StateOf(1))));
  EXPECT_EQ(ExaminersOf(StateOf(1)), Streams({11}));
  run_.fleet().Attach(21, ArrivalOf(0, 50), now_, &effects_);
  EXPECT_TRUE(absl::IsUnavailable(Report(StateOf(1))));
  EXPECT_TRUE(absl::IsUnavailable(Report(StateOf(1))));
  EXPECT_EQ(ExaminersOf(StateOf(1)), Streams({11, 21}));
  EXPECT_NE(Answer(21, StateOf(1), "gone"), "");
}

TEST_F(PartExaminationsTest, ARollbackToTheCheckpointDoesNotEndTheExamination) {
  EXPECT_TRUE(absl::IsUnavailable(Report(StateOf(1))));
  run_.RollBack("a loss", now_, &effects_);
  EXPECT_TRUE(absl::IsUnavailable(Report(StateOf(1))));
  EXPECT_EQ(ExaminersOf(StateOf(1)), Streams({11}));
  EXPECT_EQ(Answer(11, StateOf(1)), "");
  EXPECT_TRUE(absl::IsFailedPrecondition(Report(StateOf(1))));
}

TEST_F(PartExaminationsTest, ANewerCheckpointEndsTheExamination) {
  EXPECT_TRUE(absl::IsUnavailable(Report(StateOf(1))));
  CompleteCheckpoint(20);
  protocol::CheckpointPart part = PartOf(20, StateOf(1));
  EXPECT_TRUE(absl::IsUnavailable(examinations_.Reported(part, "rank 1", now_, &effects_)));
  EXPECT_EQ(Answer(11, StateOf(1), "gone"), "");
  EXPECT_EQ(ExaminersOf(StateOf(1)), Streams({11}));
}

class ExaminationsAtShardsTest : public PartExaminationsTest {
 protected:
  ExaminationsAtShardsTest() : PartExaminationsTest(PartsAtShards()) {}
};

TEST_F(ExaminationsAtShardsTest, TheShardThatHoldsThePartExaminesIt) {
  EXPECT_TRUE(absl::IsUnavailable(Report(StateOf(1))));
  EXPECT_EQ(ExaminersOf(StateOf(1)), Streams({12}));
  EXPECT_EQ(Answer(11, StateOf(1), "gone"), "") << "shard 0 does not hold it";
  EXPECT_NE(Answer(12, StateOf(1), "gone"), "");
}

TEST_F(ExaminationsAtShardsTest, WorkersDoNotReadTheManifest) {
  EXPECT_TRUE(absl::IsInvalidArgument(Report("manifest.json")));
}

}  // namespace
}  // namespace sluice::server
