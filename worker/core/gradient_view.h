// GradientView: a tensor's gradient as it lies in memory, of any floating type; made fp32 where it
// is encoded, a chunk at a time, so that there is no fp32 copy of all of it.
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

// Points to memory of another's, aligned to its type.
struct GradientView {
  const void* data = nullptr;
  size_t size = 0;  // Elements.
  compress::ElementType type = compress::ElementType::kFloat32;
  // What each element is multiplied by, in fp32, when it is read: 1 / passes, 1 / loss scale.
  float scale = 1;
  // It lies on the GPU: `data` is an address there, and what it should be once the event `ready`
  // of the GPU's run-time has come to pass (null: at once).
  bool on_gpu = false;
  void* ready = nullptr;

  GradientView() = default;
  GradientView(const void* first, size_t count, compress::ElementType its_type, float times = 1)
      : data(first), size(count), type(its_type), scale(times) {}
  GradientView(const float* first, size_t count) : data(first), size(count) {}
  // Implicitly from spans, vectors and whatever else lies as floats.
  template <typename Floats, typename = std::enable_if_t<
                                 std::is_convertible_v<const Floats&, absl::Span<const float>>>>
  GradientView(const Floats& floats)  // NOLINT(google-explicit-constructor)
      : GradientView(absl::Span<const float>(floats).data(),
                     absl::Span<const float>(floats).size()) {}

  // `count` elements from `offset` on, which must be there.
  GradientView Part(size_t offset, size_t count) const;
  // Whether its floats can be read where they lie.
  bool is_plain() const { return type == compress::ElementType::kFloat32 && scale == 1; }
  // Where a GPU's encoder finds it; no data if it is not on one.
  compress::DeviceGradient on_device() const;
  // Of a plain view that is not on a GPU.
  absl::Span<const float> floats() const;
};

// Whether all elements are, before they are scaled. Not of a view on a GPU.
bool IsFinite(const GradientView& view);

// Those of `views` that lie on `device` become views of copies on the host, good until the next
// call: one wait for all. Errors: the device's. It may be null if none lies there.
absl::Status BringToHost(absl::Span<GradientView* const> views, compress::EncodingDevice* device);

// Reads views as fp32, one at a time: plain ones where they lie, others into one buffer, which
// becomes as large as the largest of them. What is not finite stays so.
class GradientReader {
 public:
  // Good until the next call. Not of a view on a GPU.
  absl::Span<const float> Read(const GradientView& view);
  size_t buffer_elements() const { return buffer_.capacity(); }

 private:
  std::vector<float> buffer_;
};

}  // namespace sluice::worker
