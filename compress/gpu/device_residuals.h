// DeviceResiduals: what chunks owe, in memory of a device, and room for what an encoding leaves.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/gpu/device_buffer.h"
#include "compress/gpu/kernels/device.h"

namespace sluice::compress::gpu {

// An encoding leaves what it loses in other memory than the residual that it was made from, so that
// one that is refused has changed nothing: Take, and then either Replace or Give. Errors:
// RESOURCE_EXHAUSTED, the device has no room.
class DeviceResiduals {
 public:
  // Of chunks 0 to chunks - 1, which have none.
  DeviceResiduals(Device* device, size_t chunks);
  ~DeviceResiduals();
  DeviceResiduals(const DeviceResiduals&) = delete;
  DeviceResiduals& operator=(const DeviceResiduals&) = delete;

  // Null: there is none.
  float* of(size_t chunk) const { return residuals_[chunk].values; }
  // Zeros where there is none.
  absl::Status Make(size_t chunk, size_t count);
  // Empty `values`: the chunk has none any more.
  absl::Status Write(size_t chunk, absl::Span<const float> values);
  absl::Status Read(size_t chunk, absl::Span<float> values);

  absl::Status Take(size_t count, float** floats);
  void Give(float* floats, size_t count) { spare_.emplace(count, floats); }
  // Of a chunk that has one; as many floats.
  void Replace(size_t chunk, float* floats);

 private:
  struct Residual {
    float* values = nullptr;
    size_t count = 0;
  };

  Device* const device_;
  std::vector<Residual> residuals_;
  std::multimap<size_t, float*> spare_;  // By how many floats there is room for.
  DeviceBuffer copy_;                    // Pinned.
};

}  // namespace sluice::compress::gpu
