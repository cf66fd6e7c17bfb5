// SPDX-License-Identifier: Apache-2.0
// Device: memory and a queue of work, on a GPU (cuda_device.cu) or, for tests, on the processor
// (host_device.h). This header needs only a C++ compiler.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "compress/gpu/kernels/work.h"

namespace sluice::compress::gpu {

// Only one thread at a time may use a device.
class Device {
 public:
  virtual ~Device() = default;

  // Returns memory that is aligned to 256 bytes, or null if there is not enough memory.
  virtual void* Allocate(size_t bytes) = 0;
  virtual void Free(void* memory) = 0;
  // Allocates host memory that the device can copy while the host continues to run.
  virtual void* AllocatePinned(size_t bytes) = 0;
  virtual void FreePinned(void* memory) = 0;

  // The calls below return immediately. The device executes them later, in the order of the calls.
  // The caller must not change memory in arguments until Wait. Pointers may be null if the size is
  // 0. `After` makes all later work wait for the event of another stream.
  virtual void After(void* event) = 0;
  virtual void CopyIn(void* to, const void* from, size_t bytes) = 0;
  // `to` is host memory. It may be pinned.
  virtual void CopyOut(void* to, const void* from, size_t bytes) = 0;
  virtual void Clear(void* memory, size_t bytes) = 0;
  virtual void Run(const EncodeWork& work) = 0;
  virtual void Run(const SampleWork& work) = 0;
  virtual void Run(const AddWork& work) = 0;

  // Waits until all work is complete. Returns null on success. After an error, every call returns
  // the first error, and the device is unusable.
  virtual const char* Wait() = 0;
};

// Returns GPU number `index` of this machine. Returns null and sets `*problem` to the reason if
// there is no such GPU or if Sluice was built without SLUICE_CUDA.
std::unique_ptr<Device> MakeCudaDevice(int index, std::string* problem);

}  // namespace sluice::compress::gpu
