// SPDX-License-Identifier: Apache-2.0
// FiberTeam: the threads of a block as fibers with their own stacks. Like a thread of a GPU, a
// fiber runs until it waits for other fibers. One thread of the processor runs all fibers, always
// in the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "compress/gpu/kernels/block.h"

namespace sluice::compress::gpu {

// A point at which threads wait for each other. The first two are meetings of a warp; the others
// are meetings of a block.
enum class Meeting { kMaxOfWarp, kBallot, kSync, kExclusiveSum, kMax, kEnd };

// The thread sanitizer treats each fiber as a thread. Events before a meeting of the block happen
// before other threads' events after the meeting. A meeting of a warp orders nothing, as in CUDA.
// Two teams that run alternately represent two blocks, whose events are not ordered.
class FiberTeam {
 public:
  // The part of a kernel that one thread runs.
  class Body {
   public:
    virtual ~Body() = default;
    virtual void Run(FiberTeam& team, int thread, uint32_t index) const = 0;
  };

  static constexpr int kMostThreads = 256;
  static constexpr size_t kMostSharedBytes = size_t{48} << 10;

  FiberTeam();
  ~FiberTeam();
  FiberTeam(const FiberTeam&) = delete;
  FiberTeam& operator=(const FiberTeam&) = delete;

  // Runs block `index`. Call this between BeginLaunch and EndLaunch. Events before BeginLaunch
  // happen before the threads' work, and that work happens before events after EndLaunch. The
  // process ends if not all threads reach the same meetings, because on a GPU some of them would
  // wait forever. `threads` must be a multiple of 32.
  void RunBlock(const Body& body, int threads, uint32_t index, ThreadOrder order);
  static void BeginLaunch();
  static void EndLaunch();

  // Returns the running block's shared memory, which has kMostSharedBytes. Its initial contents are
  // undefined.
  void* shared() const { return shared_.get(); }

  // Threads call this. Waits for the other threads and returns the combined value. For
  // kExclusiveSum, total() is the sum of all values.
  uint32_t Meet(int thread, Meeting meeting, uint32_t value);
  uint32_t total() const;

 private:
  struct Fiber;

  static void Start(uintptr_t team, unsigned thread, Fiber* fiber);
  static void Entry(unsigned team_high, unsigned team_low, unsigned thread);
  void Resume(int thread);
  void RunWarp(int warp, ThreadOrder order);
  void FinishWarp(int warp);
  void FinishBlock();

  const std::unique_ptr<std::byte[]> shared_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  const std::unique_ptr<Fiber> runner_;  // The context of the caller of RunBlock.
  // Number of threads of the running block, which are the first fibers.
  int threads_ = 0;
  const Body* body_ = nullptr;
  uint32_t index_ = 0;
  uint32_t total_ = 0;
  uint32_t meetings_ = 0;  // Number of meetings of the team's blocks so far.
  // The addresses identify even and odd meetings for the sanitizer.
  char met_[2] = {};
};

}  // namespace sluice::compress::gpu
