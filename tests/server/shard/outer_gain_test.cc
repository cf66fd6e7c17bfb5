// SPDX-License-Identifier: Apache-2.0
#include "server/shard/outer_gain.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"
#include "server/shard/shard_parameters.h"

namespace sluice::server {
namespace {

constexpr double kOuterRate = 0.7;
constexpr double kOuterMomentum = 0.9;
constexpr uint32_t kLargeChunk = 1 << 16;

job::OptimizerSpec NesterovRule() {
  return {.name = "sgd", .lr = kOuterRate, .momentum = kOuterMomentum, .nesterov = true};
}

OuterGain NesterovGain(size_t chunks = 1) {
  return *MakeOuterGain(job::Mode::kLocalSgd, NesterovRule(), chunks);
}

std::vector<float> RandomChange(uint64_t exchange, size_t count, double scale = 1) {
  CounterRandom random(11, exchange, 0);
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(scale * (static_cast<double>(random.Next() % 2001) / 1000 - 1));
  }
  return values;
}

TEST(OuterGain, IsUnknownBeforeTheSecondExchange) {
  OuterGain gain = NesterovGain();
  EXPECT_EQ(gain.correlation(), std::nullopt);
  EXPECT_EQ(gain.gain(), std::nullopt);
  gain.Add(0, kOuterRate, std::vector<float>{1, 2});
  EXPECT_EQ(gain.correlation(), std::nullopt);
  gain.Add(0, kOuterRate, std::vector<float>{2, 1});
  EXPECT_NEAR(*gain.correlation(), 0.8, 1e-12);
  EXPECT_NEAR(*gain.gain(), kOuterRate * (1 + kOuterMomentum / (1 - 0.72)), 1e-12);
}

TEST(OuterGain, IsUnknownWithoutAnyChange) {
  OuterGain gain = NesterovGain();
  for (int i = 0; i < 3; ++i) gain.Add(0, kOuterRate, std::vector<float>{0, 0});
  EXPECT_EQ(gain.correlation(), std::nullopt);
  EXPECT_EQ(gain.gain(), std::nullopt);
}

// The distance that the rule moves the parameters for each unit of change.
double DistanceWhenTheChangeIs(bool alternating) {
  const uint32_t counts[] = {1};
  ShardParameters parameters(*UpdateRule::Create(NesterovRule()), counts);
  parameters.Set(0, std::vector<float>{0});
  float change = 1;
  float before = 0;
  for (int i = 0; i < 300; ++i) {
    before = parameters.parameters(0)[0];
    parameters.Update(0, kOuterRate, std::vector<float>{change});
    if (alternating) change = -change;
  }
  return (before - parameters.parameters(0)[0]) / (alternating ? -change : change);
}

TEST(OuterGain, IsTheDistanceThatTheRuleMoves) {
  for (const bool alternating : {false, true}) {
    OuterGain gain = NesterovGain();
    for (int i = 0; i < 5; ++i) {
      const float change = alternating && i % 2 == 1 ? -2.0f : 2.0f;
      gain.Add(0, kOuterRate, std::vector<float>{change, change});
    }
    EXPECT_NEAR(*gain.correlation(), alternating ? -1 : 1, 1e-12);
    EXPECT_NEAR(*gain.gain(), DistanceWhenTheChangeIs(alternating), 1e-4) << alternating;
  }
}

TEST(OuterGain, IsTheRateWithoutMomentum) {
  std::optional<OuterGain> gain =
      MakeOuterGain(job::Mode::kLocalSgd, job::OptimizerSpec{.name = "sgd", .lr = 1}, /*chunks=*/1);
  ASSERT_TRUE(gain.has_value());
  gain->Add(0, 0.5, std::vector<float>{1, 0});
  gain->Add(0, 0.5, std::vector<float>{1, 1});
  EXPECT_NEAR(*gain->correlation(), std::sqrt(0.5), 1e-12);
  EXPECT_EQ(gain->gain(), 0.5);
}

TEST(OuterGain, WeighsChunksByEnergy) {
  OuterGain gain = NesterovGain(3);
  const auto add = [&](size_t chunk, float value) {
    gain.Add(chunk, kOuterRate, std::vector<float>(10, value));
  };
  add(0, 3);
  add(1, 1);
  add(0, 3);
  add(1, -1);
  add(2, 100);  // Its first exchange has no predecessor.
  EXPECT_NEAR(*gain.correlation(), 0.8, 1e-12);
}

// The elements of a large chunk that are not in the sample count through those that are.
TEST(OuterGain, WeighsASampleLikeItsChunk) {
  OuterGain gain = NesterovGain(2);
  for (const float small : {1.0f, -1.0f}) {
    gain.Add(0, kOuterRate, std::vector<float>(kLargeChunk, 1));
    gain.Add(1, kOuterRate, std::vector<float>(kLargeChunk / 256, small));
  }
  EXPECT_NEAR(*gain.correlation(), 255.0 / 257, 1e-6);
}

TEST(OuterGain, EstimatesTheCorrelationFromASample) {
  OuterGain gain = NesterovGain();
  std::vector<float> change = RandomChange(0, kLargeChunk);
  for (uint64_t exchange = 1; exchange < 40; ++exchange) {
    gain.Add(0, kOuterRate, change);
    const std::vector<float> noise = RandomChange(exchange, kLargeChunk, std::sqrt(1 - 0.36));
    for (size_t i = 0; i < change.size(); ++i) change[i] = 0.6f * change[i] + noise[i];
  }
  EXPECT_NEAR(*gain.correlation(), 0.6, 0.05);
  EXPECT_LE(gain.bytes(), sizeof(float) * kLargeChunk / 400);
}

TEST(OuterGain, ForgetsOldExchanges) {
  OuterGain gain = NesterovGain();
  float change = 1;
  const auto add = [&](int exchanges, float factor) {
    for (int i = 0; i < exchanges; ++i) {
      gain.Add(0, kOuterRate, std::vector<float>{change});
      change *= factor;
    }
  };
  add(50, 1);
  add(1, -1);
  add(1, -1);
  EXPECT_GT(*gain.correlation(), 0.7);
  add(50, -1);
  EXPECT_LT(*gain.correlation(), -0.95);
}

// The changes are largest at the start of a job and shrink with the rate.
TEST(OuterGain, ALargeOldChangeHasNoMoreWeightThanASmallNewOne) {
  OuterGain gain = NesterovGain();
  for (int i = 0; i < 10; ++i) gain.Add(0, kOuterRate, std::vector<float>{1000});
  for (int i = 0; i < 20; ++i) {
    gain.Add(0, kOuterRate, std::vector<float>{i % 2 == 0 ? -1.0f : 1.0f});
  }
  EXPECT_LT(*gain.correlation(), -0.7);
}

TEST(OuterGain, IsOnlyForOuterOptimizersWhoseGainIsKnown) {
  const auto is_made = [](job::Mode mode, const std::optional<job::OptimizerSpec>& rule) {
    return MakeOuterGain(mode, rule, 1).has_value();
  };
  EXPECT_TRUE(is_made(job::Mode::kLocalSgd, NesterovRule()));
  EXPECT_FALSE(is_made(job::Mode::kLocalSgd, std::nullopt));
  EXPECT_FALSE(is_made(job::Mode::kSync, NesterovRule()));
  EXPECT_FALSE(is_made(job::Mode::kAsync, NesterovRule()));
  EXPECT_FALSE(is_made(job::Mode::kLocalSgd, job::OptimizerSpec{.name = "adam"}));
  EXPECT_FALSE(is_made(job::Mode::kLocalSgd, job::OptimizerSpec{.name = "sgd", .momentum = 0.9}));
}

}  // namespace
}  // namespace sluice::server
