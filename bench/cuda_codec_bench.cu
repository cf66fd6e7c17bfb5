// SPDX-License-Identifier: Apache-2.0
// Measures the memory throughput of each codec's kernels against a copy from device to device in
// the same run. Thresholds keep 1 % of fp32 elements. The case `thresh. of fp16` reads the same
// memory as fp16 and keeps far more.
//
// usage: cuda_codec_bench [million elements]      default 100; exits 77 if there is no GPU
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tests/compress/gpu/device/device.cuh"
#include "tests/compress/gpu/device/kernel_cases.h"

namespace {

using namespace sluice::compress::gpu;

constexpr int kRuns = 11;
constexpr double kDensity = 0.01;
constexpr uint32_t kChunk = 256 * 1024;

// Returns the median of kRuns runs in seconds, after one run for warm-up. Calls `reset` before each
// run and does not count its time.
template <class Reset, class Fn>
double Time(Reset reset, Fn fn) {
  cudaEvent_t begin, end;
  OrDie(cudaEventCreate(&begin), "event");
  OrDie(cudaEventCreate(&end), "event");
  reset();
  fn();
  std::vector<float> times(kRuns);
  for (float& ms : times) {
    reset();
    OrDie(cudaEventRecord(begin), "event");
    fn();
    OrDie(cudaEventRecord(end), "event");
    OrDie(cudaEventSynchronize(end), "kernels");
    OrDie(cudaEventElapsedTime(&ms, begin, end), "event");
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  return double{times[kRuns / 2]} * 1e-3;
}

}  // namespace

int main(int argc, char** argv) {
  const long millions = argc > 1 ? std::strtol(argv[1], nullptr, 10) : 100;
  if (millions < 1 || millions > 1000) {
    std::fprintf(stderr, "usage: cuda_codec_bench [million elements, 1 to 1000]\n");
    return 2;
  }
  if (!HasGpu()) return kNoGpu;
  const auto chunk_count = static_cast<uint32_t>(millions * 1000000 / kChunk + 1);
  const StepLayout layout(std::vector<uint32_t>(chunk_count, kChunk));
  std::vector<uint8_t> host = layout.Fill(/*special=*/false);
  layout.SetThresholds(kDensity, &host);
  const DeviceCopy<uint8_t> memory(host);
  const size_t initial_bytes = layout.positions;
  const DeviceCopy<uint8_t> initial(
      {host.begin(), host.begin() + static_cast<ptrdiff_t>(initial_bytes)});
  const DeviceInputs inputs(layout.Inputs(memory.data()));
  Step<DeviceLauncher> step{inputs.Lists(), layout, memory.data(), {}};

  const auto elements = static_cast<double>(layout.elements());
  const size_t bytes = layout.elements() * sizeof(float);
  const double copy_time =
      Time([] {},
           [&] {
             OrDie(cudaMemcpyAsync(memory.data() + layout.packed_values,
                                   memory.data() + layout.values, bytes, cudaMemcpyDeviceToDevice),
                   "copy");
           });
  const double copy = 2 * static_cast<double>(bytes) / copy_time;
  std::printf("copy: %.0f GB/s; %.1f million elements in %u chunks\n", copy * 1e-9, elements * 1e-6,
              chunk_count);
  std::printf("%-16s %9s %9s %9s\n", "codec", "ms", "GB/s", "of copy");
  ForEachCase([&](const char* name, double bytes_per_element, auto before, auto run) {
    // Each run changes the residuals, and the next one would keep more elements.
    const auto reset = [&] {
      OrDie(cudaMemcpyAsync(memory.data(), initial.data(), initial_bytes, cudaMemcpyDeviceToDevice),
            "copy");
      before(step);
    };
    const double time = Time(reset, [&] { run(step); });
    const double rate = elements * bytes_per_element / time;
    std::printf("%-16s %9.3f %9.0f %9.2f\n", name, time * 1e3, rate * 1e-9, rate / copy);
  });
  return 0;
}
