// Tests how the coordinator of a job with checkpoints collects parts and answers requests for
// checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/server/coordinator/checkpoint_fixture.h"

namespace sluice::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(RollbackTest, ANewRunIsOnDiskBeforeAnybodyIsTold) {
  ASSERT_EQ(records_.size(), 1u);
  EXPECT_EQ(records_[0],
            (protocol::RunRecord{.job_name = "demo", .job_uid = 77, .coordinator_incarnation = 1}));
  StartJob();
  EXPECT_EQ(answers_.at(1)->term, 0u);
  EXPECT_EQ(answers_.at(1)->restore_step, 0u);
  EXPECT_EQ(LastOf<protocol::NameCheckpoint>(11)->minimum_step, 100u);
  EXPECT_EQ(LastOf<protocol::NameCheckpoint>(12), nullptr) << "only shard 0 names checkpoints";
}

TEST_F(RollbackTest, ACheckpointIsWrittenWhenAllPartsAreThereAndTheNextIsAskedFor) {
  StartJob();
  coordinator_.ShardNamedCheckpoint(11, 100);
  EXPECT_TRUE(WorkerPart(0, PartOf("parameters.pt", 100)).ok());
  GiveAllParts(100);
  ASSERT_EQ(manifests_.size(), 1u);
  const protocol::CheckpointManifest& manifest = manifests_[0];
  EXPECT_EQ(manifest.step, 100u);
  EXPECT_EQ(manifest.job_uid, 77u);
  EXPECT_EQ(manifest.world_size, 2u);
  EXPECT_EQ(manifest.table_hash, protocol::HashTensorTable(JoinOf(0).table));
  std::vector<std::string> names;
  for (const protocol::CheckpointPart& part : manifest.parts) names.push_back(part.name);
  EXPECT_THAT(names, ElementsAre("parameters.pt", "shard-0-term-0.state", "shard-1-term-0.state",
                                 "worker-0-term-0.state", "worker-1-term-0.state"));
  EXPECT_EQ(coordinator_.Status(now_).checkpoint_step, 0u) << "the checkpoint is not durable yet";
  Written(100);
  now_ += absl::Seconds(7);
  EXPECT_EQ(coordinator_.Status(now_).checkpoint_step, 100u);
  EXPECT_EQ(coordinator_.Status(now_).checkpoint_age, absl::Seconds(7));
  EXPECT_EQ(LastOf<protocol::NameCheckpoint>(11)->minimum_step, 200u);
  CompleteCheckpoint(200);
  EXPECT_THAT(dropped_, IsEmpty());
  CompleteCheckpoint(300);
  EXPECT_THAT(dropped_, ElementsAre(100));
}

TEST_F(RollbackTest, APartWithAnErrorGivesUpThatCheckpointAndTheNextOneIsTried) {
  StartJob();
  protocol::CheckpointPart bad = PartOf(protocol::WorkerPartName(1, 0), 100);
  bad.error = "worker-1-term-0.state: no space left on device";
  EXPECT_TRUE(WorkerPart(1, bad).ok());
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning)
      << "a full disk must not end the job";
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], AllOf(HasSubstr("step 100 was abandoned"),
                                  HasSubstr("worker-1-term-0.state: no space left")));
  EXPECT_THAT(dropped_, ElementsAre(100));
  EXPECT_THAT(coordinator_.Status(now_).checkpoint_trouble, HasSubstr("no space left on device"));
  EXPECT_EQ(LastOf<protocol::NameCheckpoint>(11)->minimum_step, 200u);
  GiveAllParts(100);
  EXPECT_THAT(manifests_, IsEmpty()) << "parts of an abandoned checkpoint are ignored";
  GiveAllParts(200);
  Written(200, absl::ResourceExhaustedError("manifest.json: no space left on device"));
  EXPECT_EQ(coordinator_.Status(now_).checkpoint_step, 0u);
  EXPECT_EQ(LastOf<protocol::NameCheckpoint>(11)->minimum_step, 300u);
  EXPECT_THAT(warnings_.back(), HasSubstr("manifest.json"));
  CompleteCheckpoint(300);
  EXPECT_EQ(coordinator_.Status(now_).checkpoint_trouble, "")
      << "a complete checkpoint clears the trouble";
}

TEST_F(RollbackTest, APartThatNeverComesGivesTheCheckpointUpInTheEnd) {
  StartJob();
  ShardPart(11, PartOf(protocol::ShardPartName(0, 0), 100));
  PassWithout(9, absl::Minutes(10) + absl::Seconds(2));
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], HasSubstr("worker-1-term-0.state did not arrive within 10m"));
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning);
}

TEST_F(RollbackTest, PartsOfOthersAreRefused) {
  StartJob();
  EXPECT_EQ(WorkerPart(0, PartOf(protocol::WorkerPartName(1, 0), 100)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WorkerPart(0, PartOf(protocol::ShardPartName(1, 0), 100)).code(),
            absl::StatusCode::kInvalidArgument);
  ShardPart(11, PartOf(protocol::ShardPartName(1, 0), 100));
  EXPECT_THAT(warnings_.back(), HasSubstr("not its own"));
  GiveAllParts(100);
  EXPECT_EQ(manifests_.size(), 1u);
}

TEST_F(RollbackTest, ARequestIsAnsweredWhenTheCheckpointIsDurable) {
  Request(1);
  EXPECT_EQ(checkpoint_answers_.at(1).status().code(), absl::StatusCode::kUnavailable);
  StartJob();
  Request(2);
  EXPECT_EQ(LastOf<protocol::NameCheckpoint>(11)->minimum_step, 1u)
      << "the checkpoint is requested as soon as possible";
  coordinator_.ShardNamedCheckpoint(11, 42);
  Request(3);
  GiveAllParts(42);
  EXPECT_FALSE(checkpoint_answers_.contains(2)) << "the checkpoint is not written yet";
  Written(42);
  EXPECT_EQ(*checkpoint_answers_.at(2), 42u);
  EXPECT_EQ(*checkpoint_answers_.at(3), 42u);
  EXPECT_EQ(LastOf<protocol::NameCheckpoint>(11)->minimum_step, 100u)
      << "the regular checkpoint is still due";
  Request(4);
  EXPECT_TRUE(Leave(0, false, "no memory").ok());
  EXPECT_EQ(checkpoint_answers_.at(4).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(RollbackTest, RequestsThatWaitAreLimited) {
  StartJob();
  Request(1);
  const uint64_t sequence = commands_.at(11).sequence;
  for (CheckpointToken token = 2; token <= 257; ++token) Request(token);
  EXPECT_EQ(commands_.at(11).sequence, sequence) << "shard 0 is asked only once";
  EXPECT_EQ(checkpoint_answers_.at(257).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(checkpoint_answers_.size(), 1u);
  coordinator_.RequestCancelled(3);
  Request(300);
  CompleteCheckpoint(42);
  EXPECT_EQ(*checkpoint_answers_.at(300), 42u);
  EXPECT_FALSE(checkpoint_answers_.contains(3));
}

TEST_F(CoordinatorTest, AJobWithoutCheckpointsHasNoneToAskFor) {
  coordinator_.Begin(&effects_);
  EXPECT_THAT(effects_, IsEmpty());
  StartJob();
  EXPECT_EQ(commands_.at(11).sequence, 1u);
  coordinator_.RequestCheckpoint(1, &effects_);
  Collect();
  EXPECT_EQ(checkpoint_answers_.at(1).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(coordinator_.Status(now_).has_checkpoints);
}

TEST_F(RollbackTest, AFailureThatOnlyHeartbeatsTellCostsThatCheckpoint) {
  StartJob();
  coordinator_.ShardNamedCheckpoint(11, 100);
  for (uint32_t shard = 0; shard < 2; ++shard) {
    ShardPart(11 + shard, PartOf(protocol::ShardPartName(shard, 0), 100));
  }
  protocol::WorkerHeartbeat beat = BeatOf(1);
  beat.parts.push_back(PartOf(protocol::WorkerPartName(1, 0), 100));
  beat.parts[0].error = "no space left on device";
  ForgetCommands();
  for (int times = 0; times < 3; ++times) EXPECT_TRUE(Beat(beat).ok());
  EXPECT_EQ(std::count_if(warnings_.begin(), warnings_.end(),
                          [](const std::string& warning) {
                            return warning.find("step 100 was abandoned") != std::string::npos;
                          }),
            1);
  ASSERT_NE(NewestOf<protocol::NameCheckpoint>(11), nullptr) << "the next checkpoint is requested";
}

class AtTheirOwnPaceTest : public RollbackTest {
 protected:
  AtTheirOwnPaceTest() : RollbackTest(AtTheirOwnPace()) {}

  static CoordinatorOptions AtTheirOwnPace() {
    CoordinatorOptions options = WithCheckpoints(ExampleOptions());
    options.in_lockstep = false;
    return options;
  }
};

TEST_F(AtTheirOwnPaceTest, APartThatNeverComesCostsOneCheckpoint) {
  StartJob();
  coordinator_.ShardNamedCheckpoint(11, 100);
  EXPECT_TRUE(WorkerPart(0, PartOf(protocol::WorkerPartName(0, 0), 100)).ok());
  ForgetCommands();
  // PassWithout reports health for the shards in commands_, so both shards must be there.
  commands_[11];
  commands_[12];
  PassWithout(9, absl::Minutes(20));
  EXPECT_EQ(NewestOf<protocol::NameCheckpoint>(11), nullptr) << "rank 1 may be 20 minutes behind";
  for (uint32_t shard = 0; shard < 2; ++shard) {
    ShardPart(11 + shard, PartOf(protocol::ShardPartName(shard, 0), 100));
  }
  PassWithout(9, absl::Minutes(9));
  EXPECT_EQ(NewestOf<protocol::NameCheckpoint>(11), nullptr);
  PassWithout(9, absl::Minutes(2));
  EXPECT_NE(NewestOf<protocol::NameCheckpoint>(11), nullptr);
  EXPECT_THAT(warnings_.back(),
              ::testing::HasSubstr("worker-1-term-0.state did not arrive within 10m"));
}

}  // namespace
}  // namespace sluice::server
