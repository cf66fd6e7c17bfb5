// SPDX-License-Identifier: Apache-2.0
// DeviceBuffer: reusable memory of a device, and the layout of its contents.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "compress/gpu/kernels/device.h"

namespace sluice::compress::gpu {

// Reusable memory of a device, or of the host for copies to and from a device.
class DeviceBuffer {
 public:
  DeviceBuffer(Device* device, bool pinned) : device_(device), pinned_(pinned) {}
  ~DeviceBuffer() { Release(); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  // Grows the buffer to at least `bytes` bytes. If it grows, its contents are lost. Fails with
  // RESOURCE_EXHAUSTED if there is not enough memory.
  absl::Status Reserve(size_t bytes);
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void Release();

  Device* const device_;
  const bool pinned_;
  void* data_ = nullptr;
  size_t size_ = 0;
};

// Layout of consecutive arrays. The class computes their offsets before the memory is allocated.
class Offsets {
 public:
  template <typename T>
  size_t Add(size_t count) {
    const size_t at = size_;
    constexpr size_t kAligned = 256;
    size_ += (count * sizeof(T) + kAligned - 1) / kAligned * kAligned;
    return at;
  }
  size_t size() const { return size_; }

 private:
  size_t size_ = 0;
};

// Returns the address at an offset, or null if nothing was reserved in the buffer.
template <typename T>
T* At(const DeviceBuffer& buffer, size_t offset) {
  std::byte* const data = buffer.data();
  return data == nullptr ? nullptr : reinterpret_cast<T*>(data + offset);
}

// Waits until the device has completed all work. Fails with INTERNAL if the device failed.
absl::Status WaitFor(Device* device);

}  // namespace sluice::compress::gpu
