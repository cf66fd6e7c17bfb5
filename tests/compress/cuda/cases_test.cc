// The cases that a GPU's test runs, run here: threads and blocks in either order leave the same.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cuda/kernel_cases.h"

namespace sluice::gpu {
namespace {

// Memory after a case; `memory_before`: before it.
template <class Before, class Case>
std::vector<uint8_t> MemoryAfter(const StepLayout& layout, ThreadOrder order, Before before,
                                 Case run, std::vector<uint8_t>* memory_before) {
  std::vector<uint8_t> memory = layout.Fill();
  const StepInputs inputs = layout.Inputs(memory.data());
  Step<HostLauncher> step{inputs.Lists(), layout, memory.data(), {order}};
  before(step);
  *memory_before = memory;
  run(step);
  return memory;
}

TEST(CudaCases, OrderNeverMatters) {
  const StepLayout layout(
      {1, 2, 31, 255, 256, 257, 1023, 1024, 1025, 4096, 4097, 9999, 12289, 3, 5000, 40000});
  ForEachCase([&](const char* name, double, auto before, auto run) {
    SCOPED_TRACE(name);
    std::vector<uint8_t> start, end_start;
    const std::vector<uint8_t> forward =
        MemoryAfter(layout, ThreadOrder::kForward, before, run, &start);
    const std::vector<uint8_t> backward =
        MemoryAfter(layout, ThreadOrder::kBackward, before, run, &end_start);
    EXPECT_TRUE(forward != start) << "it does nothing";
    EXPECT_TRUE(forward == backward) << "it depends on the order";
  });
}

}  // namespace
}  // namespace sluice::gpu
