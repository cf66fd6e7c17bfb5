// SPDX-License-Identifier: Apache-2.0
// FiberBlock: a block for the kernels of compress/gpu/kernels/block.h. Each thread runs the whole
// kernel with its own variables, as with a DeviceBlock. Therefore a missing Sync has an effect.
// With a HostBlock it has none, because all threads run phase by phase.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "tests/compress/gpu/kernels/fiber_team.h"

namespace sluice::compress::gpu {

template <int kThreads>
class FiberBlock {
 public:
  static constexpr int kWarps = kThreads / kWarp;
  // A variable of one thread.
  template <class T>
  class Each {
   public:
    T& operator[](int) { return value_; }
    const T& operator[](int) const { return value_; }

   private:
    T value_{};  // Compilers cannot see that each thread writes it first.
  };

  FiberBlock(FiberTeam& team, int thread) : team_(team), thread_(thread) {}

  template <class Fn>
  void ForEach(Fn fn) const {
    fn(thread_);
  }
  void Sync() const { team_.Meet(thread_, Meeting::kSync, 0); }
  void MaxOfWarp(Each<uint32_t>& x) const { x[0] = team_.Meet(thread_, Meeting::kMaxOfWarp, x[0]); }
  void Ballot(Each<uint32_t>& x) const { x[0] = team_.Meet(thread_, Meeting::kBallot, x[0]); }
  uint32_t ExclusiveSum(Each<uint32_t>& x) const {
    x[0] = team_.Meet(thread_, Meeting::kExclusiveSum, x[0]);
    return team_.total();
  }
  uint32_t Max(const Each<uint32_t>& x) const { return team_.Meet(thread_, Meeting::kMax, x[0]); }

  static void AtomicMax(uint32_t* at, uint32_t value) {
    std::atomic_ref<uint32_t> there(*at);
    uint32_t seen = there.load(std::memory_order_relaxed);
    while (seen < value && !there.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
    }
  }
  static void AtomicAdd(uint32_t* at, uint32_t value) {
    std::atomic_ref<uint32_t>(*at).fetch_add(value, std::memory_order_relaxed);
  }

 private:
  FiberTeam& team_;
  const int thread_;
};

// Two teams that run blocks alternately.
using FiberTeams = std::array<FiberTeam, 2>;

template <class Kernel>
void RunAsFibers(const Kernel& kernel, uint32_t blocks, ThreadOrder order, FiberTeams& teams) {
  static_assert(sizeof(typename Kernel::Shared) <= FiberTeam::kMostSharedBytes);
  class Body final : public FiberTeam::Body {
   public:
    explicit Body(const Kernel& kernel) : kernel_(kernel) {}
    void Run(FiberTeam& team, int thread, uint32_t index) const override {
      FiberBlock<Kernel::kThreads> block(team, thread);
      kernel_(block, *static_cast<typename Kernel::Shared*>(team.shared()), index);
    }

   private:
    const Kernel kernel_;
  };
  const Body body(kernel);
  FiberTeam::BeginLaunch();
  for (uint32_t i = 0; i < blocks; ++i) {
    const uint32_t index = order == ThreadOrder::kForward ? i : blocks - 1 - i;
    teams[i % 2].RunBlock(body, Kernel::kThreads, index, order);
  }
  FiberTeam::EndLaunch();
}

}  // namespace sluice::compress::gpu
