// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/elastic_members.h"

#include <gtest/gtest.h>

#include "tests/server/coordinator/job_run_fixture.h"

namespace sluice::server {
namespace {

class ElasticMembersTest : public JobRunTest {
 protected:
  ElasticMembersTest() : JobRunTest(ElasticOptions()) { Start(); }
  // The lease of rank 1 expires.
  void LoseRank1() {
    now_ += run_.options().server.lease_timeout;
    Report(0);
    effects_.clear();
  }

  ElasticMembers members_{&run_};
};

TEST_F(ElasticMembersTest, AMemberWhoseLeaseExpiredIsRemovedIfEnoughOthersAreLeft) {
  LoseRank1();
  members_.EvictLost(now_, &effects_);
  EXPECT_EQ(run_.roster().PresentRanks(), Roster::Ranks{0});
  EXPECT_EQ(run_.term().generation, 2u);
  EXPECT_EQ(Events(), Texts{"members_removed"});
  now_ += run_.options().server.lease_timeout;
  members_.EvictLost(now_, &effects_);
  EXPECT_EQ(run_.roster().Present(), 1u);
  EXPECT_TRUE(run_.is_running());
}

TEST_F(ElasticMembersTest, AMemberThatGivesUpIsRemovedOrItsRankWaits) {
  members_.GiveUp(1, "a full disk", now_, &effects_);
  EXPECT_FALSE(run_.roster()[1].is_present());
  EXPECT_TRUE(LastNotice().starts_with("rank 1 (host a, pid 121) left: a full disk"))
      << LastNotice();
  members_.GiveUp(0, "a full disk", now_, &effects_);
  EXPECT_EQ(run_.roster()[0].state, MemberState::kLeaving);
  EXPECT_TRUE(run_.is_running());
}

TEST_F(ElasticMembersTest, ARemovedMemberNeedsNoPartOfTheCheckpointInProgress) {
  run_.checkpoints().Named(10);
  AddPart(10, protocol::WorkerPartName(0, 0));
  for (const uint32_t shard : {0u, 1u}) AddPart(10, protocol::ShardPartName(shard, 0));
  EXPECT_FALSE(run_.book().being_written());
  LoseRank1();
  members_.EvictLost(now_, &effects_);
  EXPECT_EQ(EffectsOf<WriteCheckpoint>().size(), 1u);
}

TEST_F(ElasticMembersTest, TheJobFinishesIfAllOthersHaveFinished) {
  run_.roster().Leave(0);
  LoseRank1();
  members_.EvictLost(now_, &effects_);
  EXPECT_EQ(run_.phase(), protocol::JobPhase::kFinished);
}

TEST_F(ElasticMembersTest, ANewcomerWaitsForACheckpointAndJoinsWithIt) {
  members_.GiveUp(1, "it was preempted", now_, &effects_);
  AwaitRank(1, 3);
  effects_.clear();
  members_.AdmitLearners(now_, &effects_);
  EXPECT_FALSE(run_.roster()[1].is_present());
  ASSERT_EQ(EffectsOf<CommandShard>().size(), 1u);
  EXPECT_TRUE(
      std::holds_alternative<protocol::NameCheckpoint>(EffectsOf<CommandShard>()[0].command));
  CompleteCheckpoint(10);
  members_.AdmitLearners(now_, &effects_);
  EXPECT_TRUE(run_.roster()[1].is_present());
  EXPECT_TRUE(run_.roster()[1].late_joiner);
  EXPECT_EQ(Events(), Texts{"members_added"});
}

TEST_F(ElasticMembersTest, WithTooFewMembersAndNoCheckpointTheJobRollsBack) {
  members_.GiveUp(1, "it was preempted", now_, &effects_);
  now_ += run_.options().server.lease_timeout;
  LossReport loss(run_.options().server.lease_timeout);
  ASSERT_TRUE(run_.roster().MarkLost(now_, &loss));
  AwaitRank(1, 3);
  members_.AdmitLearners(now_, &effects_);
  EXPECT_TRUE(run_.is_recovering());
}

}  // namespace
}  // namespace sluice::server
