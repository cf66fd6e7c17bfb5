// SPDX-License-Identifier: Apache-2.0
// BreakingDevice: records the calls to a device, and makes the device fail at a point that the test
// chooses.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "compress/gpu/kernels/device.h"

namespace sluice::compress::gpu {

struct DeviceCalls {
  std::vector<void*> events;  // Arguments of all calls to After.
  int works = 0;
  // Number of EncodeWork items that need the largest magnitude.
  int maxima = 0;
  int sums = 0;
  int waits = 0;
};

class BreakingDevice final : public Device {
 public:
  // Wait succeeds `waits` times and then fails.
  BreakingDevice(std::unique_ptr<Device> device, int waits, DeviceCalls* calls)
      : device_(std::move(device)), waits_(waits), calls_(calls) {}

  void* Allocate(size_t bytes) override { return device_->Allocate(bytes); }
  void Free(void* memory) override { device_->Free(memory); }
  void* AllocatePinned(size_t bytes) override { return device_->AllocatePinned(bytes); }
  void FreePinned(void* memory) override { device_->FreePinned(memory); }
  void After(void* event) override { calls_->events.push_back(event); }
  void CopyIn(void* to, const void* from, size_t bytes) override {
    device_->CopyIn(to, from, bytes);
  }
  void CopyOut(void* to, const void* from, size_t bytes) override {
    device_->CopyOut(to, from, bytes);
  }
  void Clear(void* memory, size_t bytes) override { device_->Clear(memory, bytes); }
  void Run(const EncodeWork& work) override {
    ++calls_->works;
    calls_->maxima += work.largest != nullptr ? 1 : 0;
    device_->Run(work);
  }
  void Run(const SampleWork& work) override { device_->Run(work); }
  void Run(const AddWork& work) override {
    ++calls_->sums;
    device_->Run(work);
  }
  const char* Wait() override {
    return ++calls_->waits > waits_ ? "it fell off the bus" : device_->Wait();
  }

 private:
  const std::unique_ptr<Device> device_;
  const int waits_;
  DeviceCalls* const calls_;
};

}  // namespace sluice::compress::gpu
