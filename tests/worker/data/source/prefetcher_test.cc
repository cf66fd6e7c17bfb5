// SPDX-License-Identifier: Apache-2.0
#include "worker/data/source/prefetcher.h"

#include <atomic>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::worker {
namespace {

using ::testing::ElementsAre;

// Returns a function that makes 0, 1, … `count` − 1 in turn.
std::function<std::unique_ptr<int>()> Count(int count) {
  return [count, next = 0]() mutable -> std::unique_ptr<int> {
    return next < count ? std::make_unique<int>(next++) : nullptr;
  };
}

TEST(Prefetcher, GivesTheSameWithAndWithoutAThread) {
  for (const uint32_t depth : {0u, 1u, 3u, 100u}) {
    Prefetcher<int> prefetcher(depth, Count(5));
    std::vector<int> taken;
    while (const std::unique_ptr<int> next = prefetcher.Next()) taken.push_back(*next);
    EXPECT_THAT(taken, ElementsAre(0, 1, 2, 3, 4)) << depth;
    EXPECT_EQ(prefetcher.Next(), nullptr);
  }
}

TEST(Prefetcher, HoldsNoMoreThanItsDepth) {
  constexpr uint32_t kDepth = 3;
  std::atomic<int> made = 0;
  Prefetcher<int> prefetcher(kDepth, [&] { return std::make_unique<int>(made++); });
  for (int taken = 1; taken <= 200; ++taken) {
    prefetcher.Next();
    // At most the ready objects and the one in progress have been made.
    EXPECT_LE(made.load(), taken + static_cast<int>(kDepth) + 1);
    EXPECT_GE(made.load(), taken);
  }
}

TEST(Prefetcher, CanBeLeftAtAnyTime) {
  for (const uint32_t depth : {0u, 1u, 4u}) {
    for (int taken = 0; taken < 4; ++taken) {
      Prefetcher<int> prefetcher(depth, [] { return std::make_unique<int>(7); });
      for (int i = 0; i < taken; ++i) EXPECT_EQ(*prefetcher.Next(), 7);
    }
  }
}

}  // namespace
}  // namespace sluice::worker
