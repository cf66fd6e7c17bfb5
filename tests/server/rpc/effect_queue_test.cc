// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/effect_queue.h"

#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <variant>

namespace sluice::server {
namespace {

CoordinatorEffects Effects(CoordinatorEffect effect) {
  CoordinatorEffects effects;
  effects.push_back(std::move(effect));
  return effects;
}

TEST(EffectQueueTest, EffectsWithoutAWriteAreTakenInOrder) {
  EffectQueue queue;
  EXPECT_TRUE(queue.idle());
  queue.Add({LeaveParent{1}, LeaveParent{2}});
  queue.Add({LeaveParent{3}});
  EXPECT_FALSE(queue.idle());
  for (const uint32_t term : {1, 2, 3}) {
    const std::optional<CoordinatorEffect> effect = queue.Take();
    ASSERT_TRUE(effect.has_value());
    EXPECT_EQ(std::get<LeaveParent>(*effect).term, term);
  }
  EXPECT_FALSE(queue.Take().has_value());
  EXPECT_TRUE(queue.idle());
}

TEST(EffectQueueTest, LaterEffectsWaitUntilAWriteHasEnded) {
  for (const CoordinatorEffect& write :
       {CoordinatorEffect(PersistRun{}), CoordinatorEffect(WriteCheckpoint{}),
        CoordinatorEffect(DropCheckpoint{})}) {
    EffectQueue queue;
    queue.Add(Effects(write));
    queue.Add({LeaveParent{1}});
    EXPECT_EQ(queue.Take()->index(), write.index());
    EXPECT_FALSE(queue.Take().has_value()) << "effect " << write.index() << " is being written";
    queue.WriteEnded();
    EXPECT_TRUE(std::holds_alternative<LeaveParent>(*queue.Take()));
  }
}

TEST(EffectQueueTest, AWriteInProgressKeepsTheQueueFromBeingIdle) {
  EffectQueue queue;
  queue.Add({DropCheckpoint{3}});
  (void)queue.Take();
  EXPECT_FALSE(queue.idle());
  queue.WriteEnded();
  EXPECT_TRUE(queue.idle());
}

TEST(EffectQueueTest, TheStateAwaitsItsLastRecord) {
  EffectQueue queue;
  queue.Add({WriteCheckpoint{}, DropCheckpoint{3}});
  EXPECT_FALSE(queue.AwaitsRecord()) << "no worker's answer depends on these writes";
  queue.Add({PersistRun{}, PersistRun{}});
  for (int other = 0; other < 2; ++other) {
    (void)queue.Take();
    queue.WriteEnded();
  }
  (void)queue.Take();
  queue.WriteEnded();
  EXPECT_TRUE(queue.AwaitsRecord()) << "the second record waits";
  (void)queue.Take();
  EXPECT_TRUE(queue.AwaitsRecord()) << "the second record is being written";
  queue.WriteEnded();
  EXPECT_FALSE(queue.AwaitsRecord());
}

TEST(EffectQueueTest, OnlyWhatNeedsNoRecordSurvivesAFailedRecord) {
  EffectQueue queue;
  queue.Add({PersistRun{}, AnswerJoin{.token = 1, .grant = protocol::JoinGrant()}, Notice{},
             CommandShard{.stream = 2, .sequence = 1, .command = protocol::SuspendShard{}},
             RefuseShard{.stream = 3, .why = absl::InternalError("x")}, PersistRun{},
             WriteCheckpoint{}, DropCheckpoint{}, AnswerCheckpoint{.token = 4, .step = 5},
             AskParent{}, LeaveParent{},
             CommandShard{.stream = 6, .sequence = 2, .command = protocol::EndShard{}}});
  (void)queue.Take();
  queue.WriteEnded();
  queue.DropUnannounced();
  EXPECT_FALSE(queue.AwaitsRecord());
  EXPECT_TRUE(std::holds_alternative<Notice>(*queue.Take()));
  EXPECT_EQ(std::get<RefuseShard>(*queue.Take()).stream, 3u);
  EXPECT_EQ(std::get<CommandShard>(*queue.Take()).stream, 6u);
  EXPECT_TRUE(queue.idle());
}

TEST(EffectQueueTest, TheQueueIsFullWhileTooManyEffectsWait) {
  EffectQueue queue;
  queue.Add({PersistRun{}});
  (void)queue.Take();
  for (size_t i = 0; i < EffectQueue::kWaitingMax; ++i) queue.Add({LeaveParent{}});
  EXPECT_FALSE(queue.full());
  queue.Add({LeaveParent{}});
  EXPECT_TRUE(queue.full());
  queue.WriteEnded();
  (void)queue.Take();
  EXPECT_FALSE(queue.full());
}

}  // namespace
}  // namespace sluice::server
