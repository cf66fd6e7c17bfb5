// SPDX-License-Identifier: Apache-2.0
// The device on which the encoder is tested. host_under_test.cc and cuda_under_test.cc define it.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "compress/gpu/kernels/device.h"

namespace sluice::compress::gpu {

// Returns null if there is no such device. If the device uses host memory, it has `bytes` bytes.
std::unique_ptr<Device> MakeDeviceUnderTest(size_t bytes = size_t{1} << 30);
// Returns true if the device enforces the limit on its memory.
bool HasLimitedMemory();

// Copies on the device. They exist until Clear is called or the object is destroyed.
class DeviceCopies {
 public:
  DeviceCopies() : device_(MakeDeviceUnderTest()) {}
  ~DeviceCopies() { Clear(); }
  DeviceCopies(const DeviceCopies&) = delete;
  DeviceCopies& operator=(const DeviceCopies&) = delete;

  template <typename T>
  const void* Add(const std::vector<T>& values) {
    const size_t bytes = values.size() * sizeof(T);
    copies_.push_back(device_->Allocate(bytes));
    device_->CopyIn(copies_.back(), values.data(), bytes);
    device_->Wait();
    return copies_.back();
  }
  void Clear() {
    for (void* const copy : copies_) device_->Free(copy);
    copies_.clear();
  }

 private:
  const std::unique_ptr<Device> device_;
  std::vector<void*> copies_;
};

}  // namespace sluice::compress::gpu
