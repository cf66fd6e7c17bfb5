// SPDX-License-Identifier: Apache-2.0
// Runs every kernel on the GPU and on the processor, and compares all writable memory byte by byte.
// A kernel that crashes makes the GPU unusable for its process, so another process runs the rest.
// The program cuda_kernel_tests compares the kernels on the processor with the processor's codecs.
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

// Processes that run kernels at the same time, because the processor's results take most of the
// time.
constexpr int kShares = 8;

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

// What a share of the cases has come to.
struct Progress {
  int next = 0;  // The case after the one that was begun last.
  int differing = 0;
  int crashed = 0;
};

// Runs fn() in a child process, and returns the process.
template <class Fn>
pid_t Fork(Fn fn) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    std::exit(fn());
  }
  return child;
}

// Returns the exit status of a child process, and 1 if it crashed.
int StatusOf(pid_t child) {
  int status = 0;
  const bool exited = child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status);
  return exited ? WEXITSTATUS(status) : 1;
}

// Runs the cases of a share from progress->next on: those whose number modulo `shares` is `share`.
// A crash ends the process.
void RunCases(int share, int shares, Progress* progress) {
  const StepLayout layout({1,    2,    31,   255,   256,   257,   1023,  1024, 1025, 4095,
                           4096, 4097, 9999, 65536, 12289, 70001, 40000, 3,    5000, 100000});
  const int first = progress->next;
  int index = 0;
  ForEachCase([&](const char* name, double, auto before, auto run) {
    const int here = index++;
    if (here % shares != share || here < first) return;
    progress->next = here + 1;
    progress->differing += IsSame(name, layout, before, run) ? 0 : 1;
  });
}

// Runs a share of the cases, in a new process after each crash.
void RunShare(int share, int shares, Progress* progress) {
  for (int before = -1; before != progress->next;) {
    before = progress->next;
    const pid_t child = Fork([&] {
      RunCases(share, shares, progress);
      return 0;
    });
    if (StatusOf(child) == 0) return;
    ++progress->crashed;
  }
}

int CaseCount() {
  int count = 0;
  ForEachCase([&](const char*, double, auto, auto) { ++count; });
  return count;
}

}  // namespace

int main() {
  if (StatusOf(Fork([] { return HasGpu() ? 0 : kNoGpu; })) == kNoGpu) return kNoGpu;
  void* const shared = mmap(nullptr, kShares * sizeof(Progress), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) {
    std::perror("mmap");
    return 1;
  }
  auto* const progress = new (shared) Progress[kShares];
  pid_t children[kShares];
  for (int i = 0; i < kShares; ++i) {
    children[i] = Fork([&] {
      RunShare(i, kShares, &progress[i]);
      return 0;
    });
  }
  int differing = 0, crashed = 0;
  for (int i = 0; i < kShares; ++i) {
    crashed += progress[i].crashed + StatusOf(children[i]);
    differing += progress[i].differing;
  }
  std::printf("%d cases: %d differ, %d crashed\n", CaseCount(), differing, crashed);
  return differing + crashed == 0 ? 0 : 1;
}
