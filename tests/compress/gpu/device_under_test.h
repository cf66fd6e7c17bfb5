// The device that the encoder is tested on: host_under_test.cc's or cuda_under_test.cc's.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "compress/gpu/kernels/device.h"

namespace sluice::compress::gpu {

// Null: there is none here. One that is made of host memory has so many bytes of it.
std::unique_ptr<Device> MakeDeviceUnderTest(size_t bytes = size_t{1} << 30);
// Whether it keeps to that.
bool HasLimitedRoom();

// Copies on the device, until the end.
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
