// SPDX-License-Identifier: Apache-2.0
#include "tests/compress/gpu/device_under_test.h"

namespace sluice::compress::gpu {

std::unique_ptr<Device> MakeDeviceUnderTest(size_t) {
  std::string problem;
  return MakeCudaDevice(0, &problem);
}
bool HasLimitedMemory() { return false; }

}  // namespace sluice::compress::gpu
