// SPDX-License-Identifier: Apache-2.0
#include "tests/compress/gpu/kernels/fiber_team.h"

#include <ucontext.h>

#include <algorithm>

#include "base/check.h"
#ifdef SLUICE_THREAD_SANITIZED
#include <sanitizer/tsan_interface.h>
#endif

// This file is not instrumented, because the thread sanitizer must not treat switches between
// fibers as synchronization.

namespace sluice::compress::gpu {
namespace {

constexpr size_t kStackBytes = size_t{128} << 10;
constexpr uint8_t kNobodysByte = 0xA5;

// Events before a Release of an object happen before events after an Acquire of the same object.
#ifdef SLUICE_THREAD_SANITIZED
void Acquire(void* object) { __tsan_acquire(object); }
void Release(void* object) { __tsan_release(object); }
void* NewFiber() { return __tsan_create_fiber(0); }
void DeleteFiber(void* fiber) { __tsan_destroy_fiber(fiber); }
void* ThisFiber() { return __tsan_get_current_fiber(); }
void SwitchTo(void* fiber) { __tsan_switch_to_fiber(fiber, __tsan_switch_to_fiber_no_sync); }
#else
void Acquire(void*) {}
void Release(void*) {}
void* NewFiber() { return nullptr; }
void DeleteFiber(void*) {}
void* ThisFiber() { return nullptr; }
void SwitchTo(void*) {}
#endif

char launch_began, launch_ended;  // Objects for Acquire and Release.

bool IsOfWarp(Meeting meeting) {
  return meeting == Meeting::kMaxOfWarp || meeting == Meeting::kBallot;
}

}  // namespace

struct FiberTeam::Fiber {
  ucontext_t context{};
  void* sanitized = nullptr;
  std::unique_ptr<std::byte[]> stack;
  Meeting at = Meeting::kEnd;
  uint32_t value = 0;
};

FiberTeam::FiberTeam()
    : shared_(new std::byte[kMostSharedBytes]), runner_(std::make_unique<Fiber>()) {
  const auto address = reinterpret_cast<uintptr_t>(this);
  for (unsigned i = 0; i < kMostThreads; ++i) {
    fibers_.push_back(std::make_unique<Fiber>());
    Start(address, i, fibers_.back().get());
  }
}

void FiberTeam::Start(uintptr_t team, unsigned thread, Fiber* fiber) {
  fiber->sanitized = NewFiber();
  fiber->stack.reset(new std::byte[kStackBytes]);
  Check(getcontext(&fiber->context) == 0, "a context is available");
  fiber->context.uc_stack.ss_sp = fiber->stack.get();
  fiber->context.uc_stack.ss_size = kStackBytes;
  // makecontext can only pass integers.
  makecontext(&fiber->context, reinterpret_cast<void (*)()>(&FiberTeam::Entry), 3,
              static_cast<unsigned>(team >> 32), static_cast<unsigned>(team), thread);
}

// The fibers wait between two blocks, and their stacks contain no objects that need destruction.
FiberTeam::~FiberTeam() {
  for (const std::unique_ptr<Fiber>& fiber : fibers_) DeleteFiber(fiber->sanitized);
}

void FiberTeam::Entry(unsigned team_high, unsigned team_low, unsigned thread) {
  const uintptr_t address = uintptr_t{team_high} << 32 | team_low;
  FiberTeam& team = *reinterpret_cast<FiberTeam*>(address);
  while (true) {
    Acquire(&launch_began);
    team.body_->Run(team, static_cast<int>(thread), team.index_);
    Release(&launch_ended);
    team.Meet(static_cast<int>(thread), Meeting::kEnd, 0);
  }
}

void FiberTeam::BeginLaunch() { Release(&launch_began); }
void FiberTeam::EndLaunch() { Acquire(&launch_ended); }

uint32_t FiberTeam::total() const { return total_; }

uint32_t FiberTeam::Meet(int thread, Meeting meeting, uint32_t value) {
  Fiber& fiber = *fibers_[thread];
  fiber.at = meeting;
  fiber.value = value;
  // The two addresses alternate, because a fiber may reach the next meeting before other fibers
  // have left this one.
  char* const met = &met_[meetings_ % 2];
  if (!IsOfWarp(meeting)) Release(met);
  SwitchTo(runner_->sanitized);
  swapcontext(&fiber.context, &runner_->context);
  if (!IsOfWarp(meeting)) Acquire(met);
  return fiber.value;
}

void FiberTeam::Resume(int thread) {
  SwitchTo(fibers_[thread]->sanitized);
  swapcontext(&runner_->context, &fibers_[thread]->context);
}

void FiberTeam::FinishWarp(int warp) {
  const auto begin = fibers_.begin() + warp * kWarp;
  uint32_t result = 0;
  for (int i = 0; i < kWarp; ++i) {
    const Fiber& fiber = *begin[i];
    if (fiber.at == Meeting::kBallot) result |= uint32_t{fiber.value != 0} << i;
    if (fiber.at == Meeting::kMaxOfWarp) result = std::max(result, fiber.value);
  }
  for (int i = 0; i < kWarp; ++i) begin[i]->value = result;
}

// Runs the warp until all its threads wait for other warps.
void FiberTeam::RunWarp(int warp, ThreadOrder order) {
  const int first = warp * kWarp;
  while (true) {
    for (int i = 0; i < kWarp; ++i) {
      Resume(first + (order == ThreadOrder::kForward ? i : kWarp - 1 - i));
    }
    for (int i = 1; i < kWarp; ++i) {
      Check(fibers_[first]->at == fibers_[first + i]->at, "threads of a warp come to one meeting");
    }
    if (!IsOfWarp(fibers_[first]->at)) return;
    FinishWarp(warp);
  }
}

void FiberTeam::FinishBlock() {
  ++meetings_;
  uint32_t sum = 0, largest = 0;
  const Meeting meeting = fibers_[0]->at;
  for (int i = 0; i < threads_; ++i) {
    Fiber& fiber = *fibers_[i];
    largest = std::max(largest, fiber.value);
    const uint32_t before = sum;
    sum += fiber.value;
    if (meeting == Meeting::kExclusiveSum) fiber.value = before;
  }
  total_ = sum;
  for (int i = 0; i < threads_ && meeting == Meeting::kMax; ++i) fibers_[i]->value = largest;
}

void FiberTeam::RunBlock(const Body& body, int threads, uint32_t index, ThreadOrder order) {
  Check(threads % kWarp == 0 && threads <= kMostThreads, "a team has threads for the block");
  threads_ = threads;
  runner_->sanitized = ThisFiber();
  body_ = &body;
  index_ = index;
  // The loop writes byte by byte, because the sanitizer would record a memset as a write by the
  // caller.
  volatile auto* const bytes = reinterpret_cast<volatile uint8_t*>(shared_.get());
  for (size_t i = 0; i < kMostSharedBytes; ++i) bytes[i] = kNobodysByte;
  const int warps = threads_ / kWarp;
  do {
    for (int i = 0; i < warps; ++i) {
      RunWarp(order == ThreadOrder::kForward ? i : warps - 1 - i, order);
    }
    for (int i = 1; i < threads; ++i) {
      Check(fibers_[i]->at == fibers_[0]->at, "threads of a block come to one meeting");
    }
    FinishBlock();
  } while (fibers_[0]->at != Meeting::kEnd);
}

}  // namespace sluice::compress::gpu
