// SPDX-License-Identifier: Apache-2.0
#include "worker/core/replay_buffer.h"

#include <gtest/gtest.h>

namespace sluice::worker {
namespace {

std::shared_ptr<const protocol::ExchangeRequest> ExchangeOf(uint64_t step, uint32_t bundle,
                                                            size_t bytes = 1000) {
  auto exchange = std::make_shared<protocol::ExchangeRequest>();
  exchange->step = step;
  exchange->bundle = bundle;
  exchange->frames = {std::string(bytes, 'x')};
  return exchange;
}

constexpr uint64_t kReplayBufferPlenty = 1 << 30;

TEST(ReplayBufferTest, KeepsAllFromTheFirstStepOn) {
  ReplayBuffer buffer(2, kReplayBufferPlenty, /*first_step=*/5);
  EXPECT_EQ(buffer.from(), 5u);
  for (uint64_t step = 5; step <= 7; ++step) {
    for (const uint32_t bundle : {0, 1}) buffer.Add(1, ExchangeOf(step, bundle));
    buffer.Add(0, ExchangeOf(step, 0));
  }
  EXPECT_EQ(buffer.from(), 5u);
  for (uint64_t step = 5; step <= 7; ++step) {
    ASSERT_NE(buffer.Find(1, step, 1), nullptr);
    EXPECT_EQ(buffer.Find(1, step, 1)->exchange->step, step);
    EXPECT_EQ(buffer.Find(1, step, 1)->exchange->bundle, 1u);
    EXPECT_NE(buffer.Find(0, step, 0), nullptr);
    EXPECT_EQ(buffer.Find(0, step, 1), nullptr);
  }
  EXPECT_EQ(buffer.Find(1, 4, 0), nullptr);
  EXPECT_EQ(buffer.Find(1, 8, 0), nullptr);
}

TEST(ReplayBufferTest, BundlesOfAStepMayComeInAnyOrder) {
  ReplayBuffer buffer(1, kReplayBufferPlenty, 1);
  for (uint64_t step = 1; step <= 2; ++step) {
    for (const uint32_t bundle : {2, 0, 3, 1}) buffer.Add(0, ExchangeOf(step, bundle));
  }
  for (uint64_t step = 1; step <= 2; ++step) {
    for (const uint32_t bundle : {0, 1, 2, 3}) {
      ASSERT_NE(buffer.Find(0, step, bundle), nullptr) << step << "/" << bundle;
      EXPECT_EQ(buffer.Find(0, step, bundle)->exchange->bundle, bundle);
    }
  }
}

TEST(ReplayBufferTest, SharesWhatItKeeps) {
  ReplayBuffer buffer(1, kReplayBufferPlenty, 1);
  const auto exchange = ExchangeOf(1, 0);
  buffer.Add(0, exchange);
  EXPECT_EQ(buffer.Find(0, 1, 0)->exchange, exchange);
}

TEST(ReplayBufferTest, RemembersResults) {
  ReplayBuffer buffer(1, kReplayBufferPlenty, 1);
  buffer.Add(0, ExchangeOf(1, 0));
  EXPECT_FALSE(buffer.Find(0, 1, 0)->result_checksum.has_value());
  buffer.Find(0, 1, 0)->result_checksum = 7;
  buffer.Add(0, ExchangeOf(2, 0));
  EXPECT_EQ(buffer.Find(0, 1, 0)->result_checksum, 7u);
}

TEST(ReplayBufferTest, ReleaseForgetsUpToAStep) {
  ReplayBuffer buffer(2, kReplayBufferPlenty, 1);
  for (uint64_t step = 1; step <= 4; ++step) {
    for (const uint32_t shard : {0, 1}) buffer.Add(shard, ExchangeOf(step, 0));
  }
  const uint64_t bytes = buffer.bytes();
  buffer.Release(2);
  EXPECT_EQ(buffer.from(), 3u);
  EXPECT_EQ(buffer.bytes(), bytes / 2);
  EXPECT_EQ(buffer.Find(1, 2, 0), nullptr);
  EXPECT_NE(buffer.Find(0, 3, 0), nullptr);
  buffer.Release(1);  // A late Release.
  EXPECT_EQ(buffer.from(), 3u);
}

// A worker re-executes steps while their checkpoint becomes complete. Those steps must not be kept.
TEST(ReplayBufferTest, WhatIsReleasedBeforeItIsSentIsNotKept) {
  ReplayBuffer buffer(1, kReplayBufferPlenty, 3);
  buffer.Release(5);
  EXPECT_EQ(buffer.from(), 6u);
  for (uint64_t step = 3; step <= 7; ++step) buffer.Add(0, ExchangeOf(step, 0));
  EXPECT_EQ(buffer.Find(0, 5, 0), nullptr);
  EXPECT_NE(buffer.Find(0, 6, 0), nullptr);
  EXPECT_EQ(buffer.from(), 6u);
}

TEST(ReplayBufferTest, TheOldestStepGoesFirstInAllShards) {
  ReplayBuffer measure(1, kReplayBufferPlenty, 1);
  measure.Add(0, ExchangeOf(1, 0));
  ReplayBuffer buffer(2, 6 * measure.bytes(), 1);
  for (uint64_t step = 1; step <= 3; ++step) {
    for (const uint32_t shard : {0, 1}) buffer.Add(shard, ExchangeOf(step, 0));
  }
  EXPECT_EQ(buffer.from(), 1u);
  buffer.Add(1, ExchangeOf(4, 0));
  EXPECT_EQ(buffer.from(), 2u);
  EXPECT_EQ(buffer.Find(0, 1, 0), nullptr);
  EXPECT_EQ(buffer.Find(1, 1, 0), nullptr);
  EXPECT_NE(buffer.Find(0, 2, 0), nullptr);
  EXPECT_LE(buffer.bytes(), 6 * measure.bytes());
}

TEST(ReplayBufferTest, TheNewestStepStaysWhateverItsSize) {
  ReplayBuffer buffer(1, 100, 1);
  for (uint64_t step = 1; step <= 3; ++step) {
    for (const uint32_t bundle : {0, 1}) buffer.Add(0, ExchangeOf(step, bundle));
    EXPECT_EQ(buffer.from(), step);
    EXPECT_NE(buffer.Find(0, step, 0), nullptr);
    EXPECT_NE(buffer.Find(0, step, 1), nullptr);
  }
}

TEST(ReplayBufferTest, StepsWithoutFramesCount) {
  ReplayBuffer buffer(1, 10'000, 1);
  for (uint64_t step = 1; step <= 1000; ++step) {
    auto skip = std::make_shared<protocol::ExchangeRequest>();
    skip->step = step;
    skip->skip = true;
    buffer.Add(0, skip);
  }
  EXPECT_GT(buffer.from(), 900u);
}

TEST(ReplayBufferTest, AtNoBytesNothingIsKept) {
  ReplayBuffer buffer(1, 0, 1);
  buffer.Add(0, ExchangeOf(1, 0));
  EXPECT_EQ(buffer.from(), 0u);
  EXPECT_EQ(buffer.bytes(), 0u);
  EXPECT_EQ(buffer.Find(0, 1, 0), nullptr);
}

}  // namespace
}  // namespace sluice::worker
