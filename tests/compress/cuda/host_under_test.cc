#include "compress/cuda/host_device.h"
#include "tests/compress/cuda/device_under_test.h"

namespace sluice::gpu {

std::unique_ptr<Device> MakeDeviceUnderTest(size_t bytes) { return MakeHostDevice(bytes); }
bool HasLimitedRoom() { return true; }

}  // namespace sluice::gpu
