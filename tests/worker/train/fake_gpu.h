// With fake_gpu.cc in a program, LibTorch has two GPUs whose memory is the host's: what happens to
// tensors on them can be tested where there is none. Operations are the CPU's, so results have its
// bits. Only for a LibTorch without CUDA.
#pragma once

#include <cstdint>

namespace sluice::worker {

// Events that were recorded on its stream so far.
uint64_t FakeGpuEvents();

}  // namespace sluice::worker
