#include "worker/core/gradient_view.h"

#include <algorithm>

#include "base/check.h"
#include "compress/accumulator.h"
#include "compress/simd/cast.h"

namespace sluice {
namespace {

// The smallest that is not finite, without its sign.
constexpr uint16_t kInfinityOfFp16 = 0x7C00;
constexpr uint16_t kInfinityOfBf16 = 0x7F80;

}  // namespace

GradientView GradientView::Part(size_t offset, size_t count) const {
  Check(offset <= size && count <= size - offset, "a part of a gradient lies in it");
  GradientView part = *this;
  part.data = static_cast<const std::byte*>(data) + offset * BytesOf(type);
  part.size = count;
  return part;
}

DeviceGradient GradientView::on_device() const {
  if (!on_gpu) return {};
  return {data, type, scale, ready};
}

absl::Span<const float> GradientView::floats() const {
  Check(is_plain() && !on_gpu, "only plain views can be read where they lie");
  return {static_cast<const float*>(data), size};
}

bool IsFinite(const GradientView& view) {
  Check(!view.on_gpu, "what lies on a GPU is looked at there");
  switch (view.type) {
    case ElementType::kFloat32:
      return CheckAccumulator({static_cast<const float*>(view.data), view.size}, {}).ok();
    case ElementType::kBfloat16:
      return LargestHalf(static_cast<const uint16_t*>(view.data), view.size) < kInfinityOfBf16;
    case ElementType::kFloat16:
      return LargestHalf(static_cast<const uint16_t*>(view.data), view.size) < kInfinityOfFp16;
  }
  return false;
}

absl::Span<const float> GradientReader::Read(const GradientView& view) {
  if (view.on_gpu) {
    Check(device_ != nullptr, "views on a GPU come where there is one");
    const size_t bytes = view.size * BytesOf(view.type);
    copy_.resize(std::max(copy_.size(), bytes));
    status_.Update(device_->Read(view.on_device(), bytes, copy_.data()));
    if (!status_.ok()) std::fill_n(copy_.begin(), bytes, std::byte{0});
    GradientView copied = view;
    copied.data = copy_.data();
    copied.on_gpu = false;
    return Read(copied);
  }
  if (view.is_plain()) return view.floats();
  if (buffer_.size() < view.size) buffer_ = std::vector<float>(view.size);
  float* const out = buffer_.data();
  switch (view.type) {
    case ElementType::kFloat32: {
      const auto* in = static_cast<const float*>(view.data);
      for (size_t i = 0; i < view.size; ++i) out[i] = in[i] * view.scale;
      break;
    }
    case ElementType::kBfloat16:
      WidenBf16(static_cast<const uint16_t*>(view.data), view.scale, out, view.size);
      break;
    case ElementType::kFloat16:
      WidenFp16(static_cast<const uint16_t*>(view.data), view.scale, out, view.size);
      break;
  }
  return {out, view.size};
}

}  // namespace sluice
