// SPDX-License-Identifier: Apache-2.0
// DeviceResiduals: the residuals of chunks in a device's memory, and buffers for the new residuals
// of an encoding.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/gpu/device_buffer.h"
#include "compress/gpu/kernels/device.h"

namespace sluice::compress::gpu {

// An encoding writes the new residual to separate memory, so that a refused encoding changes
// nothing. Call Take, and then either Replace or Give. Methods that return a status fail with
// RESOURCE_EXHAUSTED if the device does not have enough memory.
class DeviceResiduals {
 public:
  // Manages chunks 0 to `chunks` - 1, which start without residuals.
  DeviceResiduals(Device* device, size_t chunks);
  ~DeviceResiduals();
  DeviceResiduals(const DeviceResiduals&) = delete;
  DeviceResiduals& operator=(const DeviceResiduals&) = delete;

  // Returns the chunk's residual, or null if there is none.
  float* of(size_t chunk) const { return residuals_[chunk].values; }
  // Creates a residual of zeros if the chunk has no residual.
  absl::Status Make(size_t chunk, size_t count);
  // Sets the chunk's residual. An empty span clears it.
  absl::Status Write(size_t chunk, absl::Span<const float> values);
  absl::Status Read(size_t chunk, absl::Span<float> values);

  absl::Status Take(size_t count, float** floats);
  void Give(float* floats, size_t count) { spare_.emplace(count, floats); }
  // Replaces the chunk's existing residual with `floats`, which must have the same size.
  void Replace(size_t chunk, float* floats);

 private:
  struct Residual {
    float* values = nullptr;
    size_t count = 0;
  };

  Device* const device_;
  std::vector<Residual> residuals_;
  // Unused buffers by their size in floats.
  std::multimap<size_t, float*> spare_;
  DeviceBuffer copy_;  // Pinned memory.
};

}  // namespace sluice::compress::gpu
