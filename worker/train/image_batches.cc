#include "worker/train/image_batches.h"

#include <array>

namespace sluice {

ImageBatch MakeBatch(const LabelledImages& images, const Normalization& normalization,
                     absl::Span<const uint32_t> samples) {
  std::array<float, 256> normalized;
  for (size_t value = 0; value < normalized.size(); ++value) {
    normalized[value] =
        (static_cast<float>(value) / 255.0f - normalization.mean) / normalization.deviation;
  }
  const auto n = static_cast<int64_t>(samples.size());
  ImageBatch batch;
  batch.images = at::empty({n, 1, images.height, images.width}, at::kFloat);
  batch.labels = at::empty({n}, at::kLong);
  float* pixel = batch.images.mutable_data_ptr<float>();
  int64_t* label = batch.labels.mutable_data_ptr<int64_t>();
  for (const uint32_t sample : samples) {
    const uint8_t* raw = images.pixels.data() + sample * images.image_bytes();
    for (size_t i = 0; i < images.image_bytes(); ++i) *pixel++ = normalized[raw[i]];
    *label++ = images.labels[sample];
  }
  return batch;
}

}  // namespace sluice
