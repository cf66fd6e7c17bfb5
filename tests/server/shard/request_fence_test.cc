// Tests whom a shard serves, and on which stream.
#include "server/shard/request_fence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/shard/shard_fixture.h"

namespace sluice::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

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
  EXPECT_THAT(ReplacedIn(shard.SendOn(10, Contribution(0, 1, 1, 2))), IsEmpty())
      << "a request of the old stream may have waited";
  shard->StreamClosed(12);
  EXPECT_THAT(ReplacedIn(shard.SendOn(13, Contribution(0, 1, 1, 2))), IsEmpty())
      << "a stream that has ended is not replaced";
}

TEST(RequestFence, ARefusedSenderTakesOverNothing) {
  ShardUnderTest shard(SmallShard(2));
  shard.SendOn(10, Contribution(0, 1, 0, 2));
  protocol::ExchangeRequest foreign = Contribution(0, 1, 0, 2);
  foreign.sender.incarnation = 999;
  EXPECT_THAT(ReplacedIn(shard.SendOn(12, foreign)), IsEmpty());
  EXPECT_THAT(ReplacedIn(shard.SendOn(13, Contribution(0, 1, 0, 2))), ElementsAre(10));
}

}  // namespace
}  // namespace sluice::server
