// SPDX-License-Identifier: Apache-2.0
#include "compress/gpu/kernels/host_device.h"
#include "tests/compress/gpu/device_under_test.h"
#include "tests/compress/gpu/lazy_device.h"

namespace sluice::compress::gpu {

std::unique_ptr<Device> MakeDeviceUnderTest(size_t bytes) {
  return std::make_unique<LazyDevice>(MakeHostDevice(bytes));
}
bool HasLimitedMemory() { return true; }

}  // namespace sluice::compress::gpu
