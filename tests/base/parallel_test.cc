// SPDX-License-Identifier: Apache-2.0
#include "base/parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <thread>
#include <vector>

namespace sluice {
namespace {

using testing::Each;
using testing::ElementsAre;

TEST(Parallel, OneLaneIsTheCaller) {
  Parallel parallel(1);
  const std::thread::id here = std::this_thread::get_id();
  std::vector<size_t> parts;
  parallel.For(3, [&](size_t part, size_t lane) {
    EXPECT_EQ(lane, 0u);
    EXPECT_EQ(std::this_thread::get_id(), here);
    parts.push_back(part);
  });
  EXPECT_THAT(parts, ElementsAre(0, 1, 2));
}

TEST(Parallel, LanesWorkAtTheSameTime) {
  constexpr size_t kLanes = 4;
  Parallel parallel(kLanes);
  ASSERT_EQ(parallel.lanes(), kLanes);
  std::barrier together(kLanes);  // Each part waits for the others.
  std::vector<int> calls(kLanes);
  parallel.For(kLanes, [&](size_t, size_t lane) {
    ++calls[lane];
    together.arrive_and_wait();
  });
  EXPECT_THAT(calls, Each(1));
}

TEST(Parallel, EachPartRunsOnceInEveryCall) {
  Parallel parallel(3);
  for (size_t parts = 0; parts < 200; ++parts) {
    std::vector<int> calls(parts);
    std::vector<std::vector<size_t>> by_lane(parallel.lanes());
    parallel.For(parts, [&](size_t part, size_t lane) {
      ++calls[part];
      by_lane[lane].push_back(part);
    });
    ASSERT_THAT(calls, Each(1));
    for (const std::vector<size_t>& of_lane : by_lane) {
      ASSERT_TRUE(std::is_sorted(of_lane.begin(), of_lane.end()));
    }
  }
}

TEST(Parallel, WorkOfItsThreadsRunsInsideAround) {
  std::atomic<int> inside = 0;
  std::atomic<int> measured = 0;
  const std::thread::id caller = std::this_thread::get_id();
  Parallel parallel(2, [&](absl::FunctionRef<void()> work) {
    ++inside;
    work();
    --inside;
  });
  std::barrier together(2);
  parallel.For(2, [&](size_t, size_t) {
    together.arrive_and_wait();
    if (std::this_thread::get_id() != caller) measured += inside;
  });
  EXPECT_EQ(measured, 1);
}

}  // namespace
}  // namespace sluice
