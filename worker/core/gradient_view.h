// SPDX-License-Identifier: Apache-2.0
// GradientView: a tensor's gradient in place, of any floating type. The encoder converts it to fp32
// one chunk at a time, so that no fp32 copy of the whole tensor exists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/device_encoder.h"
#include "compress/element_type.h"

namespace sluice::worker {

// Points to memory that another object owns, aligned to its type.
struct GradientView {
  const void* data = nullptr;
  size_t size = 0;  // Elements.
  compress::ElementType type = compress::ElementType::kFloat32;
  // Each element is multiplied by this factor, in fp32, when it is read. Examples: 1 / passes, 1 /
  // loss scale.
  float scale = 1;
  // If true, `data` is a GPU address. The values are final after the GPU runtime's event `ready`
  // has completed (at once if `ready` is null).
  bool on_gpu = false;
  void* ready = nullptr;

  GradientView() = default;
  GradientView(const void* first, size_t count, compress::ElementType its_type, float times = 1)
      : data(first), size(count), type(its_type), scale(times) {}
  GradientView(const float* first, size_t count) : data(first), size(count) {}
  // Converts implicitly from spans, vectors and other contiguous floats.
  template <typename Floats, typename = std::enable_if_t<
                                 std::is_convertible_v<const Floats&, absl::Span<const float>>>>
  GradientView(const Floats& floats)  // NOLINT(google-explicit-constructor)
      : GradientView(absl::Span<const float>(floats).data(),
                     absl::Span<const float>(floats).size()) {}

  // Returns a view of `count` elements from `offset` on, which must exist.
  GradientView Part(size_t offset, size_t count) const;
  // Returns true if the elements can be read in place as floats.
  bool is_plain() const { return type == compress::ElementType::kFloat32 && scale == 1; }
  // Returns the location for a GPU's encoder. Its data is null if the view is not on a GPU.
  compress::DeviceGradient on_device() const;
  // Requires a plain view that is not on a GPU.
  absl::Span<const float> floats() const;
};

// Returns true if all elements are finite before they are scaled. Requires a view that is not on a
// GPU.
bool IsFinite(const GradientView& view);

// Replaces each view on `device` with a view of a host copy, which is valid until the next call.
// Waits once for all copies. Returns the device's errors. `device` may be null if no view is on a
// GPU.
absl::Status BringToHost(absl::Span<GradientView* const> views, compress::EncodingDevice* device);

// Reads views as fp32, one at a time. Returns plain views in place. Converts other views into one
// buffer, which grows to the size of the largest view. Non-finite values stay non-finite.
class GradientReader {
 public:
  // The result is valid until the next call. Requires a view that is not on a GPU.
  absl::Span<const float> Read(const GradientView& view);

 private:
  std::vector<float> buffer_;
};

}  // namespace sluice::worker
