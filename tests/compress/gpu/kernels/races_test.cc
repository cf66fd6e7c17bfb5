// SPDX-License-Identifier: Apache-2.0
// Runs the kernels of compress/gpu/kernels with threads that wait for each other only at the points
// that the kernel defines. A missing Sync changes the results in one of the two orders. A build
// with the thread sanitizer reports it even if the results do not change, and also reports blocks
// that write to their neighbours' memory.
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "tests/compress/gpu/device/kernel_cases.h"
#include "tests/compress/gpu/kernels/fiber_block.h"

namespace sluice::compress::gpu {
namespace {

struct FiberLauncher {
  ThreadOrder order;
  FiberTeams* teams;

  template <class Kernel>
  void operator()(const Kernel& kernel, uint32_t blocks) const {
    RunAsFibers(kernel, blocks, order, *teams);
  }
};

class CudaRaces : public testing::Test {
 protected:
  FiberTeams teams_;
};

TEST_F(CudaRaces, ThreadsOfTheirOwnLeaveWhatLockstepLeaves) {
  const StepLayout layout({1, 31, 256, 1025, 4096, 4097, 9999, 3});
  ForEachCase([&](const char* name, double, auto before, auto run) {
    SCOPED_TRACE(name);
    const std::vector<uint8_t> start = MemoryAfter(layout, HostLauncher{}, layout.Fill(), before);
    const std::vector<uint8_t> lockstep = MemoryAfter(layout, HostLauncher{}, start, run);
    for (const ThreadOrder order : {ThreadOrder::kForward, ThreadOrder::kBackward}) {
      EXPECT_TRUE(MemoryAfter(layout, FiberLauncher{order, &teams_}, start, run) == lockstep);
    }
  });
}

// A kernel that passes a number to the next thread, with or without the necessary Sync.
template <bool kSyncs>
struct PassOn {
  static constexpr int kThreads = 2 * kWarp;
  struct Shared {
    uint32_t at[kThreads];
  };

  uint32_t* out;

  template <class Block>
  constexpr void operator()(Block& block, Shared& shared, uint32_t index) const {
    block.ForEach([&](int thread) { shared.at[thread] = thread; });
    if (kSyncs) block.Sync();
    block.ForEach([&](int thread) {
      out[index * kThreads + thread] = shared.at[(thread + kWarp + 1) % kThreads];
    });
  }
};

std::vector<uint32_t> PassedOn(bool syncs, ThreadOrder order, FiberTeams& teams) {
  std::vector<uint32_t> out(4 * 2 * kWarp);
  if (syncs) {
    RunAsFibers(PassOn<true>{out.data()}, 4, order, teams);
  } else {
    RunAsFibers(PassOn<false>{out.data()}, 4, order, teams);
  }
  return out;
}

TEST_F(CudaRaces, AMissingSyncShows) {
  std::vector<uint32_t> want(4 * 2 * kWarp);
  RunOnHost(PassOn<false>{want.data()}, 4);
  for (const ThreadOrder order : {ThreadOrder::kForward, ThreadOrder::kBackward}) {
    EXPECT_EQ(PassedOn(true, order, teams_), want);
#ifdef SLUICE_THREAD_SANITIZED
    EXPECT_DEATH((PassedOn(false, order, teams_), std::exit(0)), "data race");
#else
    EXPECT_NE(PassedOn(false, order, teams_), want);
#endif
  }
}

// A kernel with a race: each block writes a number that its neighbour also writes.
struct Overlap {
  static constexpr int kThreads = kWarp;
  struct Shared {};

  uint32_t* out;

  template <class Block>
  constexpr void operator()(Block& block, Shared&, uint32_t index) const {
    block.ForEach([&](int thread) {
      if (thread == 0) out[index / 2] = 1;
    });
  }
};

// An invalid kernel: only some threads reach a ballot.
struct Diverge {
  static constexpr int kThreads = kWarp;
  struct Shared {};

  template <class Block>
  constexpr void operator()(Block& block, Shared&, uint32_t) const {
    typename Block::template Each<uint32_t> x;
    bool has = false;
    block.ForEach([&](int thread) {
      x[thread] = 1;
      has = thread < 7;
    });
    if (has) block.Ballot(x);
  }
};

TEST_F(CudaRaces, ThreadsThatOthersWaitForInVainAreNamed) {
  EXPECT_DEATH(RunAsFibers(Diverge{}, 1, ThreadOrder::kForward, teams_), "come to one meeting");
}

TEST_F(CudaRaces, BlocksThatWriteTheSamePlaceAreReportedByTheSanitizer) {
  std::vector<uint32_t> out(1);
#ifdef SLUICE_THREAD_SANITIZED
  EXPECT_DEATH((RunAsFibers(Overlap{out.data()}, 2, ThreadOrder::kForward, teams_), std::exit(0)),
               "data race");
#else
  RunAsFibers(Overlap{out.data()}, 2, ThreadOrder::kForward, teams_);
  EXPECT_EQ(out[0], 1u);
#endif
}

}  // namespace
}  // namespace sluice::compress::gpu
