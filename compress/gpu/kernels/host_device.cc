// SPDX-License-Identifier: Apache-2.0
#include "compress/gpu/kernels/host_device.h"

#include <cstring>
#include <map>
#include <new>

#include "base/check.h"
#include "compress/gpu/kernels/run_work.h"

namespace sluice::compress::gpu {
namespace {

constexpr std::align_val_t kAlignment{256};

struct OnHost {
  template <class Kernel>
  void operator()(const Kernel& kernel, uint32_t blocks) const {
    RunOnHost(kernel, blocks);
  }
};

class HostDevice final : public Device {
 public:
  explicit HostDevice(size_t bytes) : free_(bytes) {}
  ~HostDevice() override { Check(sizes_.empty(), "memory of a device is freed before the device"); }

  void* Allocate(size_t bytes) override {
    if (bytes > free_) return nullptr;
    void* const memory = AllocatePinned(bytes);
    // The memory is filled with a pattern, because unwritten memory must not look like zeros.
    std::memset(memory, 0xA5, bytes);
    free_ -= bytes;
    sizes_[memory] = bytes;
    return memory;
  }
  void Free(void* memory) override {
    if (memory == nullptr) return;
    const auto found = sizes_.find(memory);
    Check(found != sizes_.end(), "only allocated memory is freed");
    free_ += found->second;
    sizes_.erase(found);
    FreePinned(memory);
  }
  void* AllocatePinned(size_t bytes) override { return ::operator new(bytes, kAlignment); }
  void FreePinned(void* memory) override { ::operator delete(memory, kAlignment); }

  void After(void*) override {}
  void CopyIn(void* to, const void* from, size_t bytes) override { Copy(to, from, bytes); }
  void CopyOut(void* to, const void* from, size_t bytes) override { Copy(to, from, bytes); }
  void Clear(void* memory, size_t bytes) override {
    if (bytes > 0) std::memset(memory, 0, bytes);
  }
  void Run(const EncodeWork& work) override { RunWork(work, OnHost()); }
  void Run(const SampleWork& work) override { RunWork(work, OnHost()); }
  void Run(const AddWork& work) override { RunWork(work, OnHost()); }
  const char* Wait() override { return nullptr; }

 private:
  // memcpy must not get null pointers, even if there is nothing to copy.
  static void Copy(void* to, const void* from, size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }

  size_t free_;
  std::map<void*, size_t> sizes_;
};

}  // namespace

std::unique_ptr<Device> MakeHostDevice(size_t bytes) { return std::make_unique<HostDevice>(bytes); }

}  // namespace sluice::compress::gpu
