// SPDX-License-Identifier: Apache-2.0
#include "base/process_usage.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>
#include <vector>

namespace sluice {
namespace {

TEST(ProcessUsageTest, CountsThisProcess) {
  const double before = CpuSecondsOf(::getpid());
  std::vector<char> memory(32 << 20, 'x');
  while (CpuSecondsOfThisProcess() - before < 0.002) memory[1] = static_cast<char>(memory[0] + 1);
  EXPECT_GE(CpuSecondsOf(::getpid()), before + 0.002);
  EXPECT_GE(PeakRssOfThisProcess(), memory.size());
  EXPECT_GE(PeakRssOf(::getpid()), memory.size());
}

TEST(ProcessUsageTest, AThreadIsNotChargedForOthers) {
  std::thread other([] {
    const int64_t before = CpuNanosecondsOfThisThread();
    while (CpuNanosecondsOfThisThread() - before < 20'000'000) {
    }
  });
  const int64_t before = CpuNanosecondsOfThisThread();
  other.join();
  EXPECT_LT(CpuNanosecondsOfThisThread() - before, 10'000'000);
}

}  // namespace
}  // namespace sluice
