// Device: memory and an order of work, of a GPU (cuda_device.cu) or, for tests, of the processor
// (host_device.h). Needs nothing but a C++ compiler.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "compress/gpu/kernels/work.h"

namespace sluice::compress::gpu {

// Used from one thread at a time.
class Device {
 public:
  virtual ~Device() = default;

  // Aligned to 256 bytes. Null: there is no room for it.
  virtual void* Allocate(size_t bytes) = 0;
  virtual void Free(void* memory) = 0;
  // Of the host, such that the device can copy while the host does other things.
  virtual void* AllocatePinned(size_t bytes) = 0;
  virtual void FreePinned(void* memory) = 0;

  // All of this happens in the order in which it is asked for, and not at once: memory must stay as
  // it is until Wait. Of no bytes, the memory may be null.
  // Nothing that follows before the event of another stream has come to pass.
  virtual void After(void* event) = 0;
  virtual void CopyIn(void* to, const void* from, size_t bytes) = 0;
  // `to` is of the host, pinned or not.
  virtual void CopyOut(void* to, const void* from, size_t bytes) = 0;
  virtual void Clear(void* memory, size_t bytes) = 0;
  virtual void Run(const EncodeWork& work) = 0;
  virtual void Run(const SampleWork& work) = 0;
  virtual void Run(const AddWork& work) = 0;

  // Until all of it has happened. Null, or what went wrong first, now and ever after: the device is
  // of no use any more.
  virtual const char* Wait() = 0;
};

// GPU `index` of this machine. Null, and why in `*problem`, if there is none, or Sluice was built
// without SLUICE_CUDA.
std::unique_ptr<Device> MakeCudaDevice(int index, std::string* problem);

}  // namespace sluice::compress::gpu
