// SPDX-License-Identifier: Apache-2.0
// Runs the cases of the GPU's test on the processor. Both orders of threads and blocks must give
// the same result.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/compress/gpu/device/kernel_cases.h"

namespace sluice::compress::gpu {
namespace {

TEST(CudaCases, OrderNeverMatters) {
  const StepLayout layout(
      {1, 2, 31, 255, 256, 257, 1023, 1024, 1025, 4096, 4097, 9999, 12289, 3, 5000, 40000});
  ForEachCase([&](const char* name, double, auto before, auto run) {
    SCOPED_TRACE(name);
    const HostLauncher forth{ThreadOrder::kForward}, back{ThreadOrder::kBackward};
    const std::vector<uint8_t> start = MemoryAfter(layout, forth, layout.Fill(), before);
    const std::vector<uint8_t> forward = MemoryAfter(layout, forth, start, run);
    const std::vector<uint8_t> backward =
        MemoryAfter(layout, back, MemoryAfter(layout, back, layout.Fill(), before), run);
    EXPECT_TRUE(forward != start) << "the kernel must change the memory";
    EXPECT_TRUE(forward == backward) << "the result must not depend on the thread order";
  });
}

}  // namespace
}  // namespace sluice::compress::gpu
