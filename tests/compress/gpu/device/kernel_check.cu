// Runs every kernel on the GPU and on the processor, and compares all writable memory byte by byte.
// The program cuda_kernel_tests compares the kernels on the processor with the processor's codecs.
//
// usage: kernel_check exits 1 if a kernel differs, 77 if there is no GPU
#include <cstdio>

#include "tests/compress/gpu/device/device.cuh"
#include "tests/compress/gpu/device/kernel_cases.h"

namespace {

using namespace sluice::compress::gpu;

size_t FirstDifference(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
  size_t i = 0;
  while (i < a.size() && a[i] == b[i]) ++i;
  return i;
}

template <class Before, class Case>
bool IsSame(const char* name, const StepLayout& layout, Before before, Case run) {
  std::vector<uint8_t> host = layout.Fill();
  DeviceCopy<uint8_t> device(host);
  const StepInputs inputs = layout.Inputs(host.data());
  const DeviceInputs device_inputs(layout.Inputs(device.data()));
  Step<HostLauncher> on_host{inputs.Lists(), layout, host.data(), {}};
  Step<DeviceLauncher> on_device{device_inputs.Lists(), layout, device.data(), {}};
  before(on_host);
  before(on_device);
  run(on_host);
  run(on_device);
  OrDie(cudaDeviceSynchronize(), name);
  const size_t at = FirstDifference(host, device.Get());
  if (at == host.size()) {
    std::printf("%-16s same\n", name);
    return true;
  }
  std::printf("%-16s DIFFERS, first at byte %zu of %zu\n", name, at, host.size());
  return false;
}

}  // namespace

int main() {
  if (!HasGpu()) return kNoGpu;
  const StepLayout layout({1,    2,    31,   255,   256,   257,   1023,  1024, 1025, 4095,
                           4096, 4097, 9999, 65536, 12289, 70001, 40000, 3,    5000, 100000});
  int wrong = 0, cases = 0;
  ForEachCase([&](const char* name, double, auto before, auto run) {
    wrong += IsSame(name, layout, before, run) ? 0 : 1;
    ++cases;
  });
  std::printf("%d of %d cases differ\n", wrong, cases);
  return wrong == 0 ? 0 : 1;
}
