// SPDX-License-Identifier: Apache-2.0
// LazyDevice: delays work as long as a GPU may, which is until Wait. Code that accesses memory too
// early then reads old contents, or changes data that the device still reads or writes.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "compress/gpu/kernels/device.h"

namespace sluice::compress::gpu {

class LazyDevice final : public Device {
 public:
  explicit LazyDevice(std::unique_ptr<Device> device) : device_(std::move(device)) {}

  void* Allocate(size_t bytes) override { return device_->Allocate(bytes); }
  // Waits for all work, as cudaFree does.
  void Free(void* memory) override {
    Catch();
    device_->Free(memory);
  }
  void* AllocatePinned(size_t bytes) override { return device_->AllocatePinned(bytes); }
  void FreePinned(void* memory) override {
    Catch();
    device_->FreePinned(memory);
  }

  void After(void* event) override {
    Later([this, event] { device_->After(event); });
  }
  void CopyIn(void* to, const void* from, size_t bytes) override {
    Later([=, this] { device_->CopyIn(to, from, bytes); });
  }
  void CopyOut(void* to, const void* from, size_t bytes) override {
    Later([=, this] { device_->CopyOut(to, from, bytes); });
  }
  void Clear(void* memory, size_t bytes) override {
    Later([=, this] { device_->Clear(memory, bytes); });
  }
  void Run(const EncodeWork& work) override {
    Later([=, this] { device_->Run(work); });
  }
  void Run(const SampleWork& work) override {
    Later([=, this] { device_->Run(work); });
  }
  void Run(const AddWork& work) override {
    Later([=, this] { device_->Run(work); });
  }
  const char* Wait() override {
    Catch();
    return device_->Wait();
  }

 private:
  void Later(std::function<void()> what) { later_.push_back(std::move(what)); }
  void Catch() {
    for (const std::function<void()>& what : std::exchange(later_, {})) what();
  }

  const std::unique_ptr<Device> device_;
  std::vector<std::function<void()>> later_;
};

}  // namespace sluice::compress::gpu
