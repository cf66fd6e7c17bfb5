// SPDX-License-Identifier: Apache-2.0
#include "server/shard/bundle_work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/server/shard/shard_fixture.h"

namespace sluice::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr float kHuge = std::numeric_limits<float>::max();

// The coder of a small shard, and one bundle at a time for it.
struct CoderUnderTest {
  explicit CoderUnderTest(ShardOptions of)
      : options(std::move(of)), layout(*PlanShard(options)), pool(layout.elements) {
    coder.emplace(&options, layout.downlink, std::move(layout.aggregators),
                  std::move(layout.replica));
  }

  // Opens a bundle of `step` to which rank r contributes `values[r]`.
  BundleWork Open(uint64_t step, uint32_t bundle, const std::vector<float>& values) {
    const BundleLayout& plan = layout.bundles[bundle];
    open.emplace(plan.counts, plan.aggregators, static_cast<uint32_t>(values.size()), 0, &pool);
    for (uint32_t rank = 0; rank < values.size(); ++rank) {
      std::vector<std::string> frames;
      if (step > 0 || rank == 0) frames = Contribution(rank, step, bundle, values[rank]).frames;
      open->Admit(rank, 10 + rank, /*rate=*/0.5f, std::move(frames), absl::UnixEpoch());
    }
    return {.step = step, .bundle = bundle, .layout = &plan, .open = &*open};
  }

  const ShardOptions options;
  ShardLayout layout;
  SumPool pool;
  std::optional<BundleCoder> coder;
  std::optional<OpenBundle> open;
};

TEST(BundleCoder, EncodesTheMeanOfTheContributions) {
  CoderUnderTest shard(SmallShard(2));
  const BundleResult result = shard.coder->Run(shard.Open(1, 1, {2, 4}));
  EXPECT_EQ(result.n, 2u);
  EXPECT_FALSE(result.left_out);
  EXPECT_THAT(result.effects, IsEmpty());
  ASSERT_EQ(result.included.size(), 2u);
  EXPECT_EQ(result.included[1].checksum, 11u);
  ASSERT_EQ(result.frames.size(), 2u);
  EXPECT_THAT(DecodedFrame(result.frames[0], 3), ElementsAre(3, 3, 3));
  EXPECT_THAT(DecodedFrame(result.frames[1], 1), ElementsAre(3));
}

TEST(BundleCoder, PassesTheParametersOnAsTheyCame) {
  CoderUnderTest shard(SmallShard(2));
  const BundleResult result = shard.coder->Run(shard.Open(0, 0, {-0.0f, 0}));
  EXPECT_EQ(result.n, 1u);
  EXPECT_THAT(result.frames, ElementsAre(EncodedFrame({-0.0f, -0.0f})));
}

TEST(BundleCoder, UpdatesTheParametersWhereThereIsARule) {
  ShardOptions options = SmallShard(2);
  options.rule = job::OptimizerSpec{.name = "sgd", .lr = 1};
  CoderUnderTest shard(options);
  shard.coder->Run(shard.Open(0, 0, {8, 0}));
  const BundleResult result = shard.coder->Run(shard.Open(1, 0, {2, 4}));
  EXPECT_EQ(result.rate, 0.5f);
  EXPECT_THAT(DecodedFrame(result.frames.at(0), 2), ElementsAre(-1.5f, -1.5f));
  const std::optional<ShardParameters>& replica = *shard.coder->replica();
  EXPECT_THAT(replica->parameters(shard.layout.bundles[0].locals[0]), ElementsAre(6.5f, 6.5f));
}

TEST(BundleCoder, MeasuresTheGainOfAnOuterOptimizerAndChangesNoResult) {
  std::vector<std::vector<float>> seen;
  for (const job::Mode mode : {job::Mode::kSync, job::Mode::kLocalSgd}) {
    ShardOptions options = SmallShard(2);
    options.exchange.mode = mode;
    options.rule = job::OptimizerSpec{.name = "sgd", .momentum = 0.9, .nesterov = true};
    CoderUnderTest shard(options);
    shard.coder->Run(shard.Open(0, 0, {8, 0}));
    shard.coder->Run(shard.Open(1, 0, {2, 4}));
    shard.coder->Run(shard.Open(2, 0, {kHuge, kHuge}));  // Is left out.
    const BundleResult result = shard.coder->Run(shard.Open(3, 0, {-3, -5}));
    seen.push_back(DecodedFrame(result.frames.at(0), 2));
    ShardStats stats;
    shard.coder->AddFigures(&stats);
    ASSERT_EQ(stats.outer_gain.has_value(), mode == job::Mode::kLocalSgd);
    if (!stats.outer_gain.has_value()) continue;
    EXPECT_NEAR(*stats.outer_correlation, -1, 1e-9);
    EXPECT_NEAR(*stats.outer_gain, 0.5 * (1 + 0.9 / 1.9), 1e-6);
  }
  EXPECT_EQ(seen[0], seen[1]);
}

TEST(BundleCoder, LeavesOutAMeanThatOverflows) {
  for (const bool has_rule : {false, true}) {
    ShardOptions options = SmallShard(2);
    if (has_rule) options.rule = job::OptimizerSpec{.name = "sgd", .lr = 1};
    CoderUnderTest shard(options);
    shard.coder->Run(shard.Open(0, 0, {8, 0}));
    const BundleResult result = shard.coder->Run(shard.Open(1, 0, {kHuge, kHuge}));
    EXPECT_EQ(result.n, 0u);
    EXPECT_TRUE(result.left_out);
    EXPECT_THAT(result.frames, IsEmpty());
    for (const protocol::Included& included : result.included) EXPECT_TRUE(included.skipped);
    ASSERT_EQ(result.effects.size(), 1u);
    EXPECT_THAT(std::get<Notice>(result.effects[0]).text,
                HasSubstr("step 1, bundle 0: the mean overflowed and was left out"));
  }
}

TEST(BundleCoder, EncodesTheParentsMeanInsteadOfItsOwn) {
  CoderUnderTest shard(SmallShard(2));
  const Publication given = {.step = 1, .bundle = 0, .n = 6, .mean = {5, 7}};
  BundleWork work = shard.Open(1, 0, {2, 4});
  work.given = &given;
  const BundleResult result = shard.coder->Run(work);
  EXPECT_EQ(result.n, 6u);
  EXPECT_EQ(result.included.size(), 2u);
  EXPECT_THAT(DecodedFrame(result.frames.at(0), 2), ElementsAre(5, 7));
  const Publication empty = {.step = 2, .bundle = 0};
  work = shard.Open(2, 0, {2, 4});
  work.given = &empty;
  EXPECT_THAT(shard.coder->Run(work).frames, IsEmpty());
}

TEST(BundleCoder, SumsUpForTheParent) {
  CoderUnderTest shard(SmallShard(2));
  const auto parameters = shard.coder->SumUp(shard.Open(0, 1, {3, 0}));
  EXPECT_THAT(parameters->sum, ElementsAre(3, 3, 3, 3));
  const auto sum = shard.coder->SumUp(shard.Open(1, 1, {2, 4}));
  EXPECT_EQ(sum->step, 1u);
  EXPECT_EQ(sum->bundle, 1u);
  EXPECT_EQ(sum->n, 2u);
  EXPECT_THAT(sum->sum, ElementsAre(6, 6, 6, 6));
  EXPECT_TRUE(shard.open->arrived(1));
}

}  // namespace
}  // namespace sluice::server
