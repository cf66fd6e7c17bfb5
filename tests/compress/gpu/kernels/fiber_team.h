// FiberTeam: the threads of a block, each a fiber with a stack of its own, as a GPU has them: a
// thread goes on by itself until it waits for others. One thread of the processor runs all of them,
// in an order that is always the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "compress/gpu/kernels/block.h"

namespace sluice::compress::gpu {

// What threads wait for each other at. The first two are of a warp, the others of a block.
enum class Meeting { kMaxOfWarp, kBallot, kSync, kExclusiveSum, kMax, kEnd };

// The thread sanitizer takes each fiber for a thread. What it does before a meeting of the block
// comes before what others do after it; a meeting of a warp orders nothing, as CUDA has it. Two
// teams that run in turns are two blocks: nothing is ordered between them.
class FiberTeam {
 public:
  // A thread's part of a kernel.
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

  // Block `index`, between BeginLaunch and EndLaunch: what is done before the one comes before what
  // threads do, and that before what is done after the other. Ends the process where threads do not
  // all come to the same meetings: on a GPU some would wait for ever. `threads`: a multiple of 32.
  void RunBlock(const Body& body, int threads, uint32_t index, ThreadOrder order);
  static void BeginLaunch();
  static void EndLaunch();

  // kMostSharedBytes of the block that runs; at its beginning nothing in it is what anybody wrote.
  void* shared() const { return shared_.get(); }

  // By the threads: waits for the others; what comes of their values. Of kExclusiveSum the sum of
  // all is total().
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
  const std::unique_ptr<Fiber> runner_;  // Whoever calls RunBlock.
  int threads_ = 0;                      // Of the block that runs: the first so many fibers.
  const Body* body_ = nullptr;
  uint32_t index_ = 0;
  uint32_t total_ = 0;
  uint32_t meetings_ = 0;  // Of the team's blocks so far.
  char met_[2] = {};       // Addresses that the sanitizer knows even and odd meetings by.
};

}  // namespace sluice::compress::gpu
