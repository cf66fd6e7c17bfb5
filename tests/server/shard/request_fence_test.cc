// SPDX-License-Identifier: Apache-2.0
// Tests whom a shard serves, and on which stream.
#include "server/shard/request_fence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/shard/shard_fixture.h"

namespace sluice::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::UnorderedElementsAre;

// Returns the streams that the effects end.
std::vector<StreamId> ReplacedIn(const std::vector<ShardEffect>& effects) {
  std::vector<StreamId> streams;
  for (const ShardEffect& effect : effects) {
    if (const auto* replaced = std::get_if<StreamReplaced>(&effect)) {
      streams.push_back(replaced->stream);
    }
  }
  return streams;
}

TEST(RequestFence, AStreamThatTakesOverARankEndsThePreviousOne) {
  ShardUnderTest shard(SmallShard(2));
  EXPECT_THAT(ReplacedIn(shard.SendOn(10, Contribution(0, 1, 0, 2))), IsEmpty());
  EXPECT_THAT(ReplacedIn(shard.SendOn(10, Contribution(0, 1, 1, 2))), IsEmpty());
  EXPECT_THAT(ReplacedIn(shard.SendOn(11, Contribution(1, 1, 0, 4))), IsEmpty())
      << "each rank has a stream of its own";
  EXPECT_THAT(ReplacedIn(shard.SendOn(12, Contribution(0, 1, 1, 2))), ElementsAre(10));
  shard->StreamClosed(12);
  EXPECT_THAT(ReplacedIn(shard.SendOn(13, Contribution(0, 1, 1, 2))), IsEmpty())
      << "a stream that has ended is not replaced";
}

TEST(RequestFence, AnOlderStreamEndsAlsoIfItsFirstRequestArrivesLate) {
  ShardUnderTest shard(SmallShard(2));
  shard.SendOn(11, Contribution(1, 1, 0, 4));
  EXPECT_THAT(ReplacedIn(shard.SendOn(10, Contribution(1, 1, 1, 4))), ElementsAre(10))
      << "otherwise its worker would wait for results that go to stream 11";
  const std::vector<ShardEffect> closed = shard.SendOn(12, Contribution(0, 1, 1, 2));
  EXPECT_THAT(ReplacedIn(closed), IsEmpty());
  EXPECT_THAT(ResultsByStream(closed), UnorderedElementsAre(Key(11), Key(12)))
      << "results go to the newest stream of each rank";
}

TEST(RequestFence, ARefusedSenderTakesOverNothing) {
  ShardUnderTest shard(SmallShard(2));
  shard.SendOn(10, Contribution(0, 1, 0, 2));
  protocol::ExchangeRequest foreign = Contribution(0, 1, 0, 2);
  foreign.sender.incarnation = 999;
  EXPECT_THAT(ReplacedIn(shard.SendOn(12, foreign)), IsEmpty());
  EXPECT_THAT(ReplacedIn(shard.SendOn(13, Contribution(0, 1, 0, 2))), ElementsAre(10));
}

TEST(RequestFence, AnElasticJobLosesOnlyTheRankThatIsRefusedThreeTimes) {
  for (const bool elastic : {false, true}) {
    ShardOptions options = SmallShard(2);
    if (elastic) options.exchange.membership = job::Membership::kElastic;
    options.replay_bytes = 1 << 20;
    ShardUnderTest shard(std::move(options));
    protocol::ExchangeRequest bad = Contribution(1, 1, 9, 1);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(shard.Ask(bad).outcome, protocol::Outcome::kInvalid);
    }
    const std::vector<ShardEffect> effects = shard.Send(bad);
    ASSERT_EQ(effects.size(), 2u);
    EXPECT_EQ(std::get<SendReply>(effects[0]).answer->outcome, protocol::Outcome::kFenced);
    ASSERT_EQ(std::holds_alternative<Alarm>(effects[1]), !elastic) << "an alarm ends the job";
    if (!elastic) continue;
    const auto& refused = std::get<RankRefused>(effects[1]);
    EXPECT_EQ(refused.rank, 1u);
    EXPECT_EQ(refused.incarnation, 101u);
    EXPECT_THAT(refused.text, HasSubstr("was refused 3 times in a row"));
  }
}

}  // namespace
}  // namespace sluice::server
