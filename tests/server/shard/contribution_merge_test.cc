// SPDX-License-Identifier: Apache-2.0
// Tests what contributions become, with made contributions and with a shard.
#include "server/shard/contribution_merge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "compress/codec_table.h"
#include "compress/frame.h"
#include "tests/server/shard/shard_fixture.h"

namespace sluice::server {
namespace {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

constexpr uint64_t kStep = 9;

// Contributions of one chunk each.
struct Merged {
  std::vector<std::vector<std::string>> frames;
  std::vector<HeldContribution> contributions;

  Merged& With(const std::vector<float>& values, protocol::Work work = {}, float factor = 1,
               const char* spec = "none") {
    std::vector<std::byte> frame;
    EXPECT_TRUE(compress::EncodeFrame(*compress::MakeCodec(*compress::ParseCodecSpec(spec)),
                                      {.gradient = values}, &frame)
                    .ok());
    frames.push_back({std::string(reinterpret_cast<const char*>(frame.data()), frame.size())});
    contributions.push_back({.rank = static_cast<uint32_t>(contributions.size()),
                             .origin_step = kStep,
                             .work = work,
                             .factor = factor,
                             .frames = {}});
    return *this;
  }
  std::vector<float> By(const job::MergeSpec& spec) {
    for (size_t i = 0; i < frames.size(); ++i) contributions[i].frames = frames[i];
    ContributionMerge merge(spec, /*fragments=*/2);
    const uint32_t count = compress::ReadFrameHeader(protocol::FrameBytes(frames[0][0]))->count;
    const absl::Span<const float> result = merge.MeanOf(kStep, contributions, 0, count);
    return {result.begin(), result.end()};
  }
};

constexpr job::MergeSpec kWeighted = {.weights = job::MergeWeights::kTokens};
constexpr job::MergeSpec kSenders = {.over = job::MergeOver::kSenders};
constexpr job::MergeSpec kWeightedSenders = {.weights = job::MergeWeights::kTokens,
                                             .over = job::MergeOver::kSenders};
constexpr job::MergeSpec kRda = {.method = job::MergeMethod::kRda};

TEST(ContributionMerge, DampsALateContributionByItsAge) {
  // The bundle is exchanged every two steps. The second contribution missed one exchange.
  Merged merged;
  merged.With({4, 8}).With({8, 0});
  merged.contributions[1].origin_step = kStep - 2;
  const double decay = std::log(2.0);  // Halves a contribution for each exchange of age.
  EXPECT_THAT(merged.By({.late_decay = decay}), ElementsAre(FloatEq(4), FloatEq(4)));
  EXPECT_THAT(merged.By({.over = job::MergeOver::kSenders, .late_decay = decay}),
              ElementsAre(FloatEq(4), FloatEq(8)));
  merged.contributions[1].origin_step = kStep - 4;
  EXPECT_THAT(merged.By({.late_decay = decay}), ElementsAre(FloatEq(3), FloatEq(4)));
  merged.contributions[1].factor = 0.5f;
  EXPECT_THAT(merged.By({.late_decay = decay}), ElementsAre(FloatEq(2.5f), FloatEq(4)))
      << "a guard's factor applies too";
}

TEST(ContributionMerge, TellsTheShareOfEachRank) {
  Merged merged;
  merged.With({1}, {.samples = 64, .steps = 1})
      .With({1}, {.samples = 128, .steps = 2}, /*factor=*/0.5)
      .With({1}, {.samples = 64, .steps = 1});
  merged.contributions[2].rank = 4;
  merged.contributions[2].origin_step = kStep - 4;  // Missed two exchanges.
  for (size_t i = 0; i < 3; ++i) merged.contributions[i].frames = merged.frames[i];
  ContributionMerge merge({.weights = job::MergeWeights::kTokens, .late_decay = std::log(2.0)}, 2);
  EXPECT_THAT(merge.shares(), ElementsAre());
  merge.MeanOf(kStep, merged.contributions, 0, 1);
  EXPECT_THAT(merge.shares(), Pointwise(DoubleNear(1e-6), {0.25, 0.25, 0.0, 0.0, 0.0625}));
  merge.MeanOf(kStep, absl::MakeConstSpan(merged.contributions).first(1), 0, 1);
  EXPECT_THAT(merge.shares(), ElementsAre(1, 0, 0, 0, 0));
}

TEST(ContributionMerge, WeighsBySamplesTimesSamplesPerStep) {
  // The weights are 100, 100 and 400 in the first case, and 100, 100 and 1,600 in the second one.
  const protocol::Work one = {.samples = 100, .steps = 100};
  Merged more_steps;
  more_steps.With({1, 0}, one).With({1, 3}, one).With({4, 0}, {.samples = 400, .steps = 400});
  EXPECT_THAT(more_steps.By(kWeighted), ElementsAre(FloatEq(3), FloatEq(0.5)));
  Merged more_samples;
  more_samples.With({1, 0}, one).With({1, 3}, one).With({4, 0}, {.samples = 400, .steps = 100});
  EXPECT_THAT(more_samples.By(kWeighted),
              ElementsAre(FloatEq(6600.0f / 1800), FloatEq(300.0f / 1800)));
}

TEST(ContributionMerge, NoNumberGivesOneRankTheWholeResult) {
  Merged merged;
  const protocol::Work one = {.samples = 10, .steps = 10};
  merged.With({1}, one).With({1}, one).With({0}, {.samples = uint64_t{1} << 60, .steps = 1});
  EXPECT_THAT(merged.By(kWeighted),
              ElementsAre(FloatEq(2 / (2 + static_cast<float>(ContributionMerge::kWeightMax)))));
}

TEST(ContributionMerge, TheMeanOverSendersIgnoresContributionsWithoutTheElement) {
  Merged merged;
  merged.With({8, 0, 0, 0}, {}, 1, "topk_exact:25%").With({4, 0, 0, 2}).With({0, 3, 0, 2});
  EXPECT_THAT(merged.By(kSenders), ElementsAre(FloatEq(6), FloatEq(3), FloatEq(0), FloatEq(2)));
  EXPECT_THAT(merged.By({}), ElementsAre(FloatEq(4), FloatEq(1), FloatEq(0), FloatEq(4.0f / 3)));
}

TEST(ContributionMerge, SendersAreWeighedToo) {
  Merged merged;
  merged.With({8, 1}, {.samples = 1, .steps = 1}).With({2, 0}, {.samples = 3, .steps = 3});
  EXPECT_THAT(merged.By(kWeightedSenders), ElementsAre(FloatEq(3.5), FloatEq(1)));
}

// A contribution that a guard has clipped counts as one sender all the same.
TEST(ContributionMerge, AFactorScalesTheValuesAndNotTheWeight) {
  Merged merged;
  merged.With({8, 0}, {}, 0.5).With({2, 2});
  EXPECT_THAT(merged.By(kSenders), ElementsAre(FloatEq(3), FloatEq(2)));
  EXPECT_THAT(merged.By({}), ElementsAre(FloatEq(3), FloatEq(1)));
}

TEST(ContributionMerge, RdaHasTheMeanLengthAndTheMeanDirection) {
  Merged merged;
  merged.With({6, 0}).With({0, 2}).With({0, 0});
  // The direction is (1, 1) / sqrt(2), and the length is (6 + 2 + 0) / 3.
  const float expected = 8.0f / 3 / std::sqrt(2.0f);
  EXPECT_THAT(merged.By(kRda), ElementsAre(FloatNear(expected, 1e-5f), FloatNear(expected, 1e-5f)));
  Merged opposed;
  opposed.With({5, 0}).With({-1, 0});
  EXPECT_THAT(opposed.By(kRda), Each(0));
}

// With equal contributions, all means are the same.
TEST(ContributionMerge, EqualContributionsAreTheirOwnMean) {
  const std::vector<float> values = {1, -2, 0, 0.5};
  for (const job::MergeSpec& spec : {kWeighted, kSenders, kWeightedSenders, kRda}) {
    Merged merged;
    for (int i = 0; i < 3; ++i) merged.With(values, {.samples = 7, .steps = 2});
    EXPECT_THAT(merged.By(spec), Pointwise(FloatNear(1e-6f), values));
  }
}

ShardOptions MergingShard(uint32_t ranks, const job::MergeSpec& merge) {
  ShardOptions options = SmallShard(ranks);
  options.exchange.merge = merge;
  return options;
}

protocol::ExchangeRequest WorkOf(uint32_t rank, uint64_t step, uint32_t bundle, float value,
                                 uint64_t steps) {
  protocol::ExchangeRequest exchange = Contribution(rank, step, bundle, value);
  exchange.work = {.samples = 10 * steps, .steps = steps};
  return exchange;
}

TEST(MergingShard, PublishesTheWeightedMean) {
  ShardUnderTest shard(MergingShard(3, kWeighted));
  std::vector<ShardEffect> last;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    last = shard.Send(WorkOf(rank, 1, 0, rank == 2 ? 4 : 1, rank == 2 ? 4 : 1));
  }
  const protocol::ExchangeReply result = ResultsByStream(last).at(1);
  EXPECT_EQ(result.record.n, 3u);
  EXPECT_THAT(DecodedFrame(result.results.at(0), 2), Each(FloatEq(3)));
}

TEST(MergingShard, ARankThatSkipsHasNoWeight) {
  ShardUnderTest shard(MergingShard(3, kWeighted));
  shard.Send(WorkOf(0, 1, 0, 1, 2));
  shard.Send(WorkOf(1, 1, 0, 4, 4));
  const std::vector<ShardEffect> last = shard.Send(SkipOf(2, 1, 0));
  const protocol::ExchangeReply result = ResultsByStream(last).at(1);
  EXPECT_EQ(result.record.n, 2u);
  EXPECT_THAT(DecodedFrame(result.results.at(0), 2), Each(FloatEq(3)));
}

TEST(MergingShard, RefusesAContributionWithoutTheNumbers) {
  ShardUnderTest shard(MergingShard(3, kWeighted));
  protocol::ExchangeRequest exchange = Contribution(0, 1, 0, 1);
  exchange.work.samples = 5;
  const protocol::ExchangeReply answer = shard.Ask(std::move(exchange));
  EXPECT_EQ(answer.outcome, protocol::Outcome::kInvalid);
  EXPECT_THAT(answer.message, HasSubstr("5 samples in 0 steps"));
}

TEST(MergingShard, AContributionThatTheGuardLeavesOutHasNoWeight) {
  ShardOptions options = MergingShard(4, kWeightedSenders);
  options.exchange.guard = {.policy = job::GuardPolicy::kSkip, .limit = 4};
  ShardUnderTest shard(std::move(options));
  std::vector<ShardEffect> last;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    last = shard.Send(WorkOf(rank, 1, 0, rank == 0 ? 100 : 1, rank == 0 ? 9 : 1));
  }
  const protocol::ExchangeReply result = ResultsByStream(last).at(1);
  EXPECT_EQ(result.record.n, 3u);
  EXPECT_THAT(DecodedFrame(result.results.at(0), 2), Each(FloatEq(1)));
}

}  // namespace
}  // namespace sluice::server
