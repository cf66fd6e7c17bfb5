// SPDX-License-Identifier: Apache-2.0
// In a program with fake_gpu.cc, LibTorch sees two GPUs whose memory is host memory, so tests can
// use GPU tensors without a GPU. Operations run on the CPU, so results have the same bits. Requires
// a LibTorch without CUDA.
#pragma once

#include <cstdint>

namespace sluice::worker {

// Returns the number of events recorded on both GPUs so far.
uint64_t FakeGpuEvents();

}  // namespace sluice::worker
