// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/term_messages.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/server/coordinator/checkpoint_fixture.h"

namespace sluice::server {
namespace {

// Generation 2 of term 3, which continues after step 100. The newest checkpoint is that after 200.
class TermMessagesTest : public ::testing::Test {
 protected:
  TermMessagesTest() {
    for (const uint32_t rank : {0u, 1u}) roster_.Seat(rank + 1, JoinOf(rank), now_);
    fleet_.BeginTerm(/*is_first=*/true);
    for (const uint32_t shard : {0u, 1u}) {
      fleet_.Attach(11 + shard, ArrivalOf(shard), now_, &effects_);
    }
  }
  static CoordinatorOptions ExampleOptions() {
    CoordinatorOptions options;
    options.job_name = "demo";
    options.job_uid = 77;
    options.world_size = 2;
    options.shards = 2;
    options.checkpoint = {.dir = "checkpoints", .interval = 100, .replay_limit = 0};
    options.checkpoint.replay_limit = 1000;
    options.checkpoints = TwoCheckpoints();
    return options;
  }

  const absl::Time now_ = absl::UnixEpoch();
  CoordinatorOptions options_ = ExampleOptions();
  Term term_{.number = 3, .restore_step = 100, .announced = true, .generation = 2};
  Roster roster_{options_};
  ShardFleet fleet_{2, 5};
  CheckpointDriver checkpoints_{options_, &fleet_};
  const TermMessages messages_{options_, 5, term_, roster_, fleet_, checkpoints_};
  CoordinatorEffects effects_;
};

TEST_F(TermMessagesTest, AMemberBeginsWithTheCheckpointOfTheTermOrTheNewestOne) {
  const protocol::JoinGrant first = messages_.Grant(roster_[1], /*from_newest=*/false);
  EXPECT_EQ(first.term, 3u);
  EXPECT_EQ(first.generation, 2u);
  EXPECT_EQ(first.rank, 1u);
  EXPECT_EQ(first.incarnation, roster_[1].incarnation);
  EXPECT_EQ(first.server_incarnation, 5u);
  EXPECT_EQ(first.restore_step, 100u);
  EXPECT_EQ(first.restore_world_size, 2u);
  EXPECT_EQ(first.first_step, 101u);
  EXPECT_EQ(first.shards.size(), 2u);
  EXPECT_EQ(messages_.Grant(roster_[1], /*from_newest=*/true).restore_step, 200u);
}

TEST_F(TermMessagesTest, AShardThatReplaysBeginsWithTheNewestCheckpoint) {
  const protocol::StartShard start = messages_.Start(fleet_[1]);
  EXPECT_EQ(start.restore_step, 100u);
  EXPECT_FALSE(start.replay);
  EXPECT_EQ(start.incarnations, messages_.Members().incarnations);
  EXPECT_EQ(start.table, roster_.table());
  fleet_.AwaitReplay(1);
  fleet_.BeginReplay(1, 200);
  const protocol::StartShard replay = messages_.Start(fleet_[1]);
  EXPECT_EQ(replay.restore_step, 200u);
  EXPECT_EQ(replay.first_step, 201u);
  EXPECT_TRUE(replay.replay);
}

TEST_F(TermMessagesTest, ParametersAgreeAfterACheckpoint) {
  term_.parameters_agree = false;
  EXPECT_TRUE(messages_.Start(fleet_[0]).parameters_agree);
  term_.restore_step = 0;
  EXPECT_FALSE(messages_.Start(fleet_[0]).parameters_agree);
  EXPECT_FALSE(messages_.Grant(roster_[0], /*from_newest=*/false).parameters_agree);
}

TEST_F(TermMessagesTest, OnlyTheRecordOfAnAnnouncedTermThatCanBeRepairedHasMembers) {
  const protocol::RunRecord record = messages_.Record(/*finished=*/false);
  EXPECT_EQ(record.term, 3u);
  EXPECT_EQ(record.generation, 2u);
  EXPECT_EQ(record.restore_step, 100u);
  EXPECT_EQ(record.members, roster_.Records());
  EXPECT_EQ(record.coordinator_incarnation, 5u);
  term_.announced = false;
  EXPECT_TRUE(messages_.Record(/*finished=*/false).members.empty());
  term_.announced = true;
  options_.checkpoint.replay_limit = 0;
  EXPECT_TRUE(messages_.Record(/*finished=*/false).members.empty());
  options_.in_rack = true;
  EXPECT_FALSE(messages_.Record(/*finished=*/true).members.empty());
}

TEST_F(TermMessagesTest, AManifestNamesTheTermAndTheTensors) {
  const protocol::CheckpointManifest manifest = messages_.ManifestHead(300);
  EXPECT_EQ(manifest.step, 300u);
  EXPECT_EQ(manifest.term, 3u);
  EXPECT_EQ(manifest.table_hash, protocol::HashTensorTable(roster_.table()));
  EXPECT_TRUE(manifest.parts.empty());
}

}  // namespace
}  // namespace sluice::server
