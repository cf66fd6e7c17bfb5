// SPDX-License-Identifier: Apache-2.0
// Tests when a shard's published parameters are those of one step, so that followers may read them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "server/shard/shard_parameters.h"
#include "tests/server/shard/shard_fixture.h"

namespace sluice::server {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

class FollowedShardTest : public testing::Test {
 protected:
  static ShardOptions Options(job::Mode mode) {
    ShardOptions options = SmallShard(2);
    options.exchange.mode = mode;
    options.rule = job::OptimizerSpec{.name = "sgd", .lr = 1};
    options.parameters_agree = false;
    return options;
  }
  // Runs step 0: all parameters are 100.
  static void BeginWith100(ShardUnderTest* shard) {
    for (uint32_t bundle = 0; bundle < 2; ++bundle) {
      shard->Send(Contribution(0, 0, bundle, 100));
      shard->Send(SkipOf(1, 0, bundle));
    }
  }
  static protocol::ExchangeRequest WithRate(protocol::ExchangeRequest exchange) {
    exchange.rate = 1;
    return exchange;
  }
};

TEST_F(FollowedShardTest, AStepCountsOnceAllBundlesAreClosed) {
  ShardUnderTest shard(Options(job::Mode::kSync));
  EXPECT_EQ(shard->settled_step(), std::nullopt);
  BeginWith100(&shard);
  EXPECT_EQ(shard->settled_step(), 0U);
  EXPECT_THAT(shard->parameters()->published(0), Each(100));
  for (uint32_t rank = 0; rank < 2; ++rank) shard.Send(WithRate(Contribution(rank, 1, 1, 4)));
  EXPECT_EQ(shard->settled_step(), std::nullopt);  // One bundle of two is closed.
  for (uint32_t rank = 0; rank < 2; ++rank) shard.Send(WithRate(Contribution(rank, 1, 0, 4)));
  EXPECT_EQ(shard->settled_step(), 1U);
  EXPECT_THAT(shard->parameters()->published(0), ElementsAre(96, 96));
  EXPECT_THAT(shard->parameters()->published(1), ElementsAre(96, 96, 96));
}

TEST_F(FollowedShardTest, InAsyncAStepCountsOnceAllRanksHaveContributed) {
  ShardUnderTest shard(Options(job::Mode::kAsync));
  EXPECT_EQ(shard->settled_step(), std::nullopt);
  BeginWith100(&shard);
  EXPECT_EQ(shard->settled_step(), 0U);
  for (uint32_t bundle = 0; bundle < 2; ++bundle) shard.Send(Push(0, 1, bundle, 4, 1));
  EXPECT_EQ(shard->settled_step(), 0U);
  for (uint32_t bundle = 0; bundle < 2; ++bundle) shard.Send(Push(1, 1, bundle, 4, 1));
  EXPECT_EQ(shard->settled_step(), 1U);
}

TEST_F(FollowedShardTest, AShardWithoutARuleHasNoParameters) {
  ShardUnderTest shard(SmallShard(2));
  EXPECT_EQ(shard->parameters(), nullptr);
  shard.RunStep(1, 4);
  EXPECT_EQ(shard->settled_step(), std::nullopt);
}

}  // namespace
}  // namespace sluice::server
