// SPDX-License-Identifier: Apache-2.0
// Tests a shard of an elastic job with a quorum, with scripted schedules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/server/shard/shard_fixture.h"

namespace sluice::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Returns a shard for ranks 0 to 2, of which the first `begin` are present at the start. Two ranks
// are a quorum, and a step waits for no others.
ShardOptions ElasticQuorumShard(uint32_t begin, uint32_t quorum = 2) {
  ShardOptions options = SmallShard(3);
  options.exchange.membership = job::Membership::kElastic;
  options.exchange.quorum = quorum;
  options.exchange.straggler_timeout = absl::ZeroDuration();
  options.replay_bytes = 1 << 20;
  for (uint32_t rank = begin; rank < 3; ++rank) options.incarnations[rank] = 0;
  return options;
}

// Returns each contribution as text: "0@7" is the work of rank 0 for step 7.
std::vector<std::string> WorkIn(const protocol::ClosingRecord& record) {
  std::vector<std::string> works;
  for (const protocol::Included& included : record.included) {
    works.push_back(
        absl::StrCat(included.rank, "@", included.origin_step, included.skipped ? " skipped" : ""));
  }
  return works;
}

protocol::ExchangeRequest OfNewcomer(protocol::ExchangeRequest exchange) {
  exchange.sender.incarnation += 100;
  exchange.sender.generation = 2;
  return exchange;
}

// Ranks 0 and 1 contribute `value` to both bundles of the step.
void RunStepByTwo(ShardUnderTest* shard, uint64_t step, float value) {
  for (uint32_t bundle = 0; bundle < 2; ++bundle) {
    for (uint32_t rank = 0; rank < 2; ++rank) {
      shard->Send(Contribution(rank, step, bundle, value));
    }
  }
}

TEST(ElasticQuorum, AMemberThatIsLateIsStillAMember) {
  ShardUnderTest shard(ElasticQuorumShard(3));
  RunStepByTwo(&shard, 1, 1);
  ASSERT_EQ(shard->open_step(), 2u);
  const protocol::ExchangeReply late = shard.Ask(Contribution(2, 1, 0, 7));
  EXPECT_EQ(late.outcome, protocol::Outcome::kResult);
  EXPECT_THAT(WorkIn(late.record), ElementsAre("0@1", "1@1"));
  EXPECT_THAT(late.members, ElementsAre(0, 1, 2));
  EXPECT_THAT(shard.Ask(Contribution(2, 1, 1, 7)).members, IsEmpty()) << "only bundle 0 lists them";
  RunStepByTwo(&shard, 2, 1);
  EXPECT_THAT(WorkIn(shard.Ask(Contribution(0, 2, 0, 1)).record), ElementsAre("0@2", "1@2", "2@1"));
}

TEST(ElasticQuorum, FewerMembersThanTheQuorumAreAllAwaited) {
  ShardUnderTest shard(ElasticQuorumShard(2, /*quorum=*/3));
  shard.Send(Contribution(0, 1, 0, 3));
  EXPECT_THAT(ResultsByStream(shard->Tick(shard.now())), IsEmpty());
  EXPECT_EQ(ResultsByStream(shard.Send(Contribution(1, 1, 0, 6))).at(1).record.n, 2u);
}

TEST(ElasticQuorum, LateWorkOfARankThatLeavesCounts) {
  ShardUnderTest shard(ElasticQuorumShard(3));
  RunStepByTwo(&shard, 1, 1);
  shard.Send(Contribution(2, 1, 0, 7));
  ASSERT_TRUE(shard->SetMembership(2, {100, 101, 0}).ok());
  RunStepByTwo(&shard, 2, 1);
  const protocol::ExchangeReply result = shard.Ask(Contribution(0, 2, 0, 1));
  EXPECT_THAT(WorkIn(result.record), ElementsAre("0@2", "1@2", "2@1"));
  EXPECT_THAT(result.members, ElementsAre(0, 1));
}

TEST(ElasticQuorum, ANewcomerReplaysWhatAQuorumDecided) {
  ShardUnderTest shard(ElasticQuorumShard(3));
  RunStepByTwo(&shard, 1, 1);
  for (uint32_t bundle = 0; bundle < 2; ++bundle) shard.Send(Contribution(2, 1, bundle, 7));
  ASSERT_TRUE(shard->SetMembership(2, {100, 101, 202}).ok());
  RunStepByTwo(&shard, 2, 1);
  for (uint64_t step = 1; step <= 2; ++step) {
    for (uint32_t bundle = 0; bundle < 2; ++bundle) {
      const protocol::ExchangeReply answer = shard.Ask(OfNewcomer(SkipOf(2, step, bundle)));
      EXPECT_EQ(answer.outcome, protocol::Outcome::kResult);
      EXPECT_EQ(answer.open_step, 3u);
    }
  }
  EXPECT_THAT(shard.Ask(OfNewcomer(SkipOf(2, 2, 0))).members, ElementsAre(0, 1));
  // The newcomer is in time for step 3. Step 4 closes without it, but its work is accepted.
  for (uint32_t bundle = 0; bundle < 2; ++bundle) shard.Send(OfNewcomer(SkipOf(2, 3, bundle)));
  RunStepByTwo(&shard, 3, 1);
  EXPECT_THAT(shard.Ask(OfNewcomer(SkipOf(2, 3, 0))).members, ElementsAre(0, 1, 2));
  RunStepByTwo(&shard, 4, 1);
  for (uint32_t bundle = 0; bundle < 2; ++bundle) {
    EXPECT_EQ(shard.Ask(OfNewcomer(Contribution(2, 4, bundle, 7))).outcome,
              protocol::Outcome::kResult);
  }
  RunStepByTwo(&shard, 5, 1);
  EXPECT_THAT(WorkIn(shard.Ask(Contribution(0, 5, 1, 1)).record), ElementsAre("0@5", "1@5", "2@4"));
  EXPECT_EQ(shard->Stats().refused_invalid, 0u);
}

TEST(ElasticQuorum, WorkOfAnotherVersionIsRefused) {
  ShardUnderTest shard(ElasticQuorumShard(3));
  RunStepByTwo(&shard, 1, 1);
  RunStepByTwo(&shard, 2, 1);
  for (const auto& [step, version] : {std::pair{2, 1}, std::pair{3, 2}}) {
    for (const uint64_t wrong : {version - 1, version + 1}) {
      if (wrong == 0) continue;  // Unknown.
      protocol::ExchangeRequest stale = Contribution(2, step, 0, 7);
      stale.base_version = wrong;
      const protocol::ExchangeReply refused = shard.Ask(stale);
      EXPECT_EQ(refused.outcome, protocol::Outcome::kInvalid) << step;
      EXPECT_THAT(refused.message, HasSubstr(absl::StrCat("is based on version ", wrong)));
    }
    protocol::ExchangeRequest right = Contribution(2, step, 0, 7);
    right.base_version = version;
    EXPECT_NE(shard.Ask(right).outcome, protocol::Outcome::kInvalid);
  }
}

TEST(ElasticQuorum, AShardDoesNotReplay) {
  ShardOptions replay = ElasticQuorumShard(2);
  replay.replay = true;
  EXPECT_EQ(Shard::Create(replay).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice::server
