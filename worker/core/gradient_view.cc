// SPDX-License-Identifier: Apache-2.0
#include "worker/core/gradient_view.h"

#include "base/check.h"
#include "compress/coding/accumulator.h"
#include "compress/simd/cast.h"

namespace sluice::worker {
namespace {

// The smallest bit patterns that are not finite, without the sign.
constexpr uint16_t kInfinityOfFp16 = 0x7C00;
constexpr uint16_t kInfinityOfBf16 = 0x7F80;

}  // namespace

GradientView GradientView::Part(size_t offset, size_t count) const {
  Check(offset <= size && count <= size - offset, "a part must be within its gradient");
  GradientView part = *this;
  part.data = static_cast<const std::byte*>(data) + offset * compress::BytesOf(type);
  part.size = count;
  return part;
}

compress::DeviceGradient GradientView::on_device() const {
  if (!on_gpu) return {};
  return {data, type, scale, ready};
}

absl::Span<const float> GradientView::floats() const {
  Check(is_plain() && !on_gpu, "only plain views can be read in place");
  return {static_cast<const float*>(data), size};
}

bool IsFinite(const GradientView& view) {
  Check(!view.on_gpu, "a view on a GPU must be checked on the device");
  switch (view.type) {
    case compress::ElementType::kFloat32:
      return compress::CheckAccumulator({static_cast<const float*>(view.data), view.size}, {}).ok();
    case compress::ElementType::kBfloat16:
      return compress::LargestHalf(static_cast<const uint16_t*>(view.data), view.size) <
             kInfinityOfBf16;
    case compress::ElementType::kFloat16:
      return compress::LargestHalf(static_cast<const uint16_t*>(view.data), view.size) <
             kInfinityOfFp16;
  }
  return false;
}

absl::Status BringToHost(absl::Span<GradientView* const> views, compress::EncodingDevice* device) {
  std::vector<GradientView*> there;
  std::vector<compress::DeviceRead> reads;
  for (GradientView* const view : views) {
    if (!view->on_gpu) continue;
    there.push_back(view);
    reads.push_back({view->on_device(), view->size * compress::BytesOf(view->type)});
  }
  if (there.empty()) return absl::OkStatus();
  Check(device != nullptr, "views on a GPU need a device");
  std::vector<const std::byte*> copies;
  absl::Status read = device->Read(reads, &copies);
  if (!read.ok()) return read;
  for (size_t i = 0; i < there.size(); ++i) {
    there[i]->data = copies[i];
    there[i]->on_gpu = false;
    there[i]->ready = nullptr;
  }
  return read;
}

absl::Span<const float> GradientReader::Read(const GradientView& view) {
  Check(!view.on_gpu, "a view on a GPU must be copied to the host before it is read");
  if (view.is_plain()) return view.floats();
  if (buffer_.size() < view.size) buffer_ = std::vector<float>(view.size);
  float* const out = buffer_.data();
  switch (view.type) {
    case compress::ElementType::kFloat32: {
      const auto* in = static_cast<const float*>(view.data);
      for (size_t i = 0; i < view.size; ++i) out[i] = in[i] * view.scale;
      break;
    }
    case compress::ElementType::kBfloat16:
      compress::WidenBf16(static_cast<const uint16_t*>(view.data), view.scale, out, view.size);
      break;
    case compress::ElementType::kFloat16:
      compress::WidenFp16(static_cast<const uint16_t*>(view.data), view.scale, out, view.size);
      break;
  }
  return {out, view.size};
}

}  // namespace sluice::worker
