// SPDX-License-Identifier: Apache-2.0
#include "server/shard/checkpoint_naming.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

namespace sluice::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ShardOptions ShardAt(uint32_t shard, bool replay = false) {
  ShardOptions options;
  options.shard = shard;
  options.first_step = 5;
  options.replay = replay;
  return options;
}

std::vector<uint64_t> Named(const std::vector<ShardEffect>& effects) {
  std::vector<uint64_t> steps;
  for (const ShardEffect& effect : effects) steps.push_back(std::get<CheckpointNamed>(effect).step);
  return steps;
}

protocol::ExchangeRequest Refers(uint64_t step, uint64_t checkpoint_step) {
  protocol::ExchangeRequest exchange;
  exchange.step = step;
  exchange.checkpoint_step = checkpoint_step;
  return exchange;
}

TEST(CheckpointNaming, AnnouncesARequestedCheckpointAsLateAsPossible) {
  const ShardOptions options = ShardAt(0);
  CheckpointNaming naming(&options);
  EXPECT_EQ(naming.EarliestAfter(0), 6u) << "steps 0 and 5 precede it";
  std::vector<ShardEffect> effects;
  naming.Announce(7, true, &effects);
  EXPECT_EQ(naming.Name(3, 7), 7u) << "the requested step is no longer possible";
  EXPECT_EQ(naming.Name(9, 7), 9u) << "a later request replaces it";
  naming.Announce(8, true, &effects);
  naming.Announce(9, /*is_ready=*/false, &effects);
  EXPECT_THAT(effects, IsEmpty());
  EXPECT_EQ(naming.AnnouncedIn(7), 0u);
  naming.Announce(10, true, &effects);
  EXPECT_THAT(Named(effects), ElementsAre(10));
  EXPECT_EQ(naming.AnnouncedIn(8), 10u);
  EXPECT_EQ(naming.Name(30, 11), 10u) << "one is announced";
  EXPECT_TRUE(naming.IsDue(10));
  EXPECT_EQ(naming.TakeUpTo(9), std::nullopt);
  EXPECT_EQ(naming.TakeUpTo(10), 10u);
  EXPECT_EQ(naming.TakeUpTo(10), std::nullopt);
  EXPECT_FALSE(naming.IsDue(10));
  EXPECT_EQ(naming.AnnouncedIn(10), 0u);
  EXPECT_EQ(naming.AnnouncedIn(9), 10u) << "a rank that lags writes its part later";
  EXPECT_EQ(naming.last_named(), 10u);
}

TEST(CheckpointNaming, OtherShardsLearnOfCheckpointsFromRequests) {
  const ShardOptions options = ShardAt(1);
  CheckpointNaming naming(&options);
  std::vector<ShardEffect> effects;
  for (const uint64_t step : {0u, 9u, 8u, 9u, 6u}) naming.Learn(step, 7, &effects);
  EXPECT_THAT(effects, IsEmpty());
  EXPECT_EQ(naming.TakeUpTo(20), 8u);
  EXPECT_EQ(naming.TakeUpTo(20), 9u);
  EXPECT_EQ(naming.TakeUpTo(20), std::nullopt);
}

TEST(CheckpointNaming, ASuccessorTakesUpTheCheckpointOfItsPredecessor) {
  const ShardOptions options = ShardAt(0, /*replay=*/true);
  CheckpointNaming naming(&options);
  EXPECT_EQ(naming.Name(7, 7), 7u);
  std::vector<ShardEffect> effects;
  naming.Learn(8, 6, &effects);
  EXPECT_THAT(Named(effects), ElementsAre(8));
  effects.clear();
  naming.Announce(8, true, &effects);
  EXPECT_THAT(effects, IsEmpty());
  // A process that asks now may not know of the named checkpoint.
  EXPECT_EQ(naming.Name(7, 7), 8u);
  naming.Announce(8, true, &effects);
  naming.Announce(8, true, &effects);
  EXPECT_THAT(Named(effects), ElementsAre(8));
  EXPECT_EQ(naming.TakeUpTo(8), 8u);
  effects.clear();
  naming.Announce(20, true, &effects);
  EXPECT_THAT(effects, IsEmpty()) << "the request was answered with the predecessor's checkpoint";
}

TEST(CheckpointNaming, ARequestMayReferOnlyToAPlausibleCheckpoint) {
  const ShardOptions options = ShardAt(0);
  CheckpointNaming naming(&options);
  EXPECT_TRUE(naming.Check(Refers(8, 0), 8).ok());
  EXPECT_TRUE(naming.Check(Refers(8, 7), 8).ok()) << "that one is over";
  EXPECT_THAT(naming.Check(Refers(8, 9), 8).message(),
              HasSubstr("after step 9, but none is named"));
  std::vector<ShardEffect> effects;
  naming.Name(10, 10);
  naming.Announce(10, true, &effects);
  EXPECT_TRUE(naming.Check(Refers(8, 10), 8).ok());
  EXPECT_THAT(naming.Check(Refers(8, 9), 8).message(), HasSubstr("the named one is after step 10"));

  const ShardOptions other = ShardAt(1);
  const CheckpointNaming learns(&other);
  EXPECT_TRUE(learns.Check(Refers(8, 10), 8).ok());
  EXPECT_THAT(learns.Check(Refers(8, 11), 8).message(), HasSubstr("more than 2 steps ahead"));
  const ShardOptions replays = ShardAt(0, /*replay=*/true);
  EXPECT_TRUE(CheckpointNaming(&replays).Check(Refers(8, 10), 8).ok());
}

}  // namespace
}  // namespace sluice::server
