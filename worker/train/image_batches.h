// ImageBatches: samples of a data set as the tensors that a model takes.
#pragma once

#include <torch/types.h>

#include <cstdint>

#include "absl/types/span.h"
#include "worker/train/labelled_images.h"

namespace sluice {

struct ImageBatch {
  at::Tensor images;  // float [n, 1, height, width], normalized.
  at::Tensor labels;  // int64 [n].
};

// Samples by their numbers, all below images.count.
ImageBatch MakeBatch(const LabelledImages& images, const Normalization& normalization,
                     absl::Span<const uint32_t> samples);

}  // namespace sluice
