// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/recovery_log.h"

#include <gtest/gtest.h>

#include <utility>

namespace sluice::server {
namespace {

class RecoveryLogTest : public ::testing::Test {
 protected:
  // Returns the text of the only effect, and forgets it. Empty if there is none.
  std::string Text() {
    const CoordinatorEffects effects = std::exchange(effects_, {});
    EXPECT_LE(effects.size(), 1u);
    return effects.empty() ? "" : std::get<Notice>(effects[0]).text;
  }
  JobStatus Status() const {
    JobStatus status;
    log_.AddTo(&status);
    return status;
  }

  RecoveryLog log_;
  CoordinatorEffects effects_;
};

TEST_F(RecoveryLogTest, RepairsAndRollbacksAreCounted) {
  log_.RolledBack("rank 1 was lost", 2, 10, &effects_);
  EXPECT_EQ(Text(), "rank 1 was lost (term 2)");
  log_.Repaired("rank 0 was replaced", &effects_);
  EXPECT_EQ(Text(), "rank 0 was replaced (repair 1); nothing is lost");
  log_.Repaired("rank 1 was replaced", &effects_);
  EXPECT_EQ(Text(), "rank 1 was replaced (repair 2); nothing is lost");
  EXPECT_EQ(Status().rollbacks, 1u);
  EXPECT_EQ(Status().last_rollback, "rank 1 was lost");
  EXPECT_EQ(Status().repairs, 2u);
  EXPECT_EQ(Status().last_repair, "rank 1 was replaced (repair 2); nothing is lost");
}

TEST_F(RecoveryLogTest, ARollbackOfAnEarlierCoordinatorIsNotCounted) {
  log_.Continue("the coordinator was restarted", 3, 0, &effects_);
  EXPECT_EQ(Text(), "the coordinator was restarted (term 3)");
  EXPECT_EQ(Status().rollbacks, 0u);
  EXPECT_EQ(Status().last_rollback, "the coordinator was restarted");
}

TEST_F(RecoveryLogTest, EachChangeOfTheConsequenceIsAnnouncedOnce) {
  log_.ExpectRepairs();
  log_.Watch(RecoveryClass::kReplay, "", 0, &effects_);
  EXPECT_EQ(Text(), "");
  log_.Watch(RecoveryClass::kRollback, "shard 1 keeps too little", 0, &effects_);
  EXPECT_EQ(
      Text(),
      "a loss would now roll the whole job back to its start (recovery class rollback): shard "
      "1 keeps too little");
  log_.Watch(RecoveryClass::kRollback, "shard 0 keeps too little", 20, &effects_);
  EXPECT_EQ(Text(), "");
  log_.Watch(RecoveryClass::kReplay, "", 30, &effects_);
  EXPECT_EQ(Text(), "a loss would be repaired in place again (recovery class replay)");
}

}  // namespace
}  // namespace sluice::server
