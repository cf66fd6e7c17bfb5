// DeviceBuffer: memory of a device that is used again and again, and what lies in it.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "compress/gpu/kernels/device.h"

namespace sluice::compress::gpu {

// Memory of a device, or of the host for copies to and from it, that is used again and again.
class DeviceBuffer {
 public:
  DeviceBuffer(Device* device, bool pinned) : device_(device), pinned_(pinned) {}
  ~DeviceBuffer() { Release(); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  // At least so many bytes; what was in it is lost where it has to grow. RESOURCE_EXHAUSTED: there
  // is no room.
  absl::Status Reserve(size_t bytes);
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void Release();

  Device* const device_;
  const bool pinned_;
  void* data_ = nullptr;
  size_t size_ = 0;
};

// Arrays that lie one after the other, at offsets that are known before there is memory.
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

// Null in a buffer for which nothing was reserved.
template <typename T>
T* At(const DeviceBuffer& buffer, size_t offset) {
  std::byte* const data = buffer.data();
  return data == nullptr ? nullptr : reinterpret_cast<T*>(data + offset);
}

// Until all that was asked of the device has happened. INTERNAL: it failed.
absl::Status WaitFor(Device* device);

}  // namespace sluice::compress::gpu
