// In a program with fake_gpu.cc, LibTorch has two GPUs whose memory is host memory, so that tests
// can use tensors on GPUs without a GPU. Operations are those of the CPU, so results have the same
// bits. Only for a LibTorch without CUDA.
#pragma once

#include <cstdint>

namespace sluice::worker {

// Number of events recorded on its stream so far.
uint64_t FakeGpuEvents();

}  // namespace sluice::worker
