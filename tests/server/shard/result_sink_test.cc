// SPDX-License-Identifier: Apache-2.0
#include "server/shard/result_sink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::server {
namespace {

using ::testing::ElementsAre;

BundleResult ResultOf(uint32_t n) {
  BundleResult result;
  result.included = {{.rank = 0, .origin_step = 1, .checksum = 7, .skipped = n == 0}};
  result.n = n;
  if (n > 0) result.frames = {"frame"};
  return result;
}

TEST(ResultSink, PublishesAResultWithItsRecordAndKeepsIt) {
  ShardOptions options;
  options.term = 3;
  ResultSink sink(&options, 2);
  const auto answer = sink.Publish({.step = 1, .bundle = 1}, ResultOf(1),
                                   {.generation = 2, .plan_id = 4, .checkpoint_step = 5});
  EXPECT_EQ(answer->outcome, protocol::Outcome::kResult);
  EXPECT_EQ(answer->step, 1u);
  EXPECT_EQ(answer->bundle, 1u);
  EXPECT_EQ(answer->open_step, 1u);
  EXPECT_EQ(answer->checkpoint_step, 5u);
  EXPECT_EQ(answer->record.term, 3u);
  EXPECT_EQ(answer->record.generation, 2u);
  EXPECT_EQ(answer->record.plan_id, 4u);
  EXPECT_EQ(answer->record.n, 1u);
  EXPECT_EQ(answer->record.result_checksum, protocol::BundleChecksum(answer->results));
  EXPECT_THAT(answer->results, ElementsAre("frame"));
  EXPECT_EQ(sink.log().Find(1, 1), answer);
  EXPECT_EQ(sink.log().Find(1, 0), nullptr);
}

TEST(ResultSink, CountsOnlyTheVersionsThatChangeSomething) {
  const ShardOptions options;
  ResultSink sink(&options, 2);
  sink.SetVersions({0, 8});
  uint64_t step = 0;
  for (const uint32_t n : {1u, 0u, 2u}) {
    const uint64_t base = sink.versions()[1];
    const auto answer = sink.Publish({.step = ++step, .bundle = 1}, ResultOf(n), {});
    EXPECT_EQ(answer->base_version, base);
    EXPECT_EQ(answer->version, n == 0 ? base : base + 1);
  }
  EXPECT_THAT(sink.versions(), ElementsAre(0, 10));
}

TEST(ResultSink, ForwardsTheSumsOfARelay) {
  ShardOptions options;
  EXPECT_FALSE(ResultSink(&options, 1).forwards());
  options.forwards_sums = true;
  const ResultSink sink(&options, 1);
  EXPECT_TRUE(sink.forwards());
  std::vector<ShardEffect> effects;
  const auto sum = std::make_shared<const BundleSum>(BundleSum{.step = 2, .n = 3});
  sink.Forward(sum, &effects);
  ASSERT_EQ(effects.size(), 1u);
  EXPECT_EQ(std::get<BundleSummed>(effects[0]).sum, sum);
}

}  // namespace
}  // namespace sluice::server
