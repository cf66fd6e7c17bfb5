// Runs every kernel on the GPU and on the processor, and compares all writable memory byte by byte.
// A kernel that crashes makes the GPU unusable for its process, so a new process runs the rest. The
// program cuda_kernel_tests compares the kernels on the processor with the processor's codecs.
//
// usage: kernel_check exits 1 if a kernel differs or crashes, 77 if there is no GPU
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

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

// What the process that runs kernels has done so far.
struct Progress {
  int begun = 0;
  int differing = 0;
};

// Runs all cases but the first `skipped` ones. A crash ends the process.
void RunCases(int skipped, Progress* progress) {
  const StepLayout layout({1,    2,    31,   255,   256,   257,   1023,  1024, 1025, 4095,
                           4096, 4097, 9999, 65536, 12289, 70001, 40000, 3,    5000, 100000});
  int index = 0;
  ForEachCase([&](const char* name, double, auto before, auto run) {
    if (index++ < skipped) return;
    progress->begun = index;
    progress->differing += IsSame(name, layout, before, run) ? 0 : 1;
    std::fflush(stdout);
  });
}

// Runs `fn` in a child process and returns its exit status, which is 1 if the child crashed.
template <class Fn>
int InChild(Fn fn) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) std::exit(fn());
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status)
                                                                               : 1;
}

}  // namespace

int main() {
  void* const shared =
      mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) {
    std::perror("mmap");
    return 1;
  }
  auto* const progress = new (shared) Progress;
  int crashed = 0;
  if (InChild([] { return HasGpu() ? 0 : kNoGpu; }) == kNoGpu) return kNoGpu;
  for (int before = -1; before != progress->begun;) {
    before = progress->begun;
    if (InChild([&] {
          RunCases(before, progress);
          return 0;
        }) == 0) {
      break;
    }
    ++crashed;
  }
  std::printf("%d cases: %d differ, %d crashed\n", progress->begun, progress->differing, crashed);
  return progress->differing + crashed == 0 && progress->begun > 0 ? 0 : 1;
}
