// SPDX-License-Identifier: Apache-2.0
// Vgg: VGG-16 for images: Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale
// Image Recognition", ICLR 2015.
#pragma once

#include <cstdint>
#include <memory>

#include "worker/models/model.h"
#include "worker/models/sample_shape.h"

namespace sluice::worker {

struct VggOptions {
  bool batch_norm = false;  // After each convolution.
  double dropout = 0.5;     // Between the linear layers.
  uint32_t width = 64;     // Channels of the first convolutions; the last have eight times as many.
  uint32_t hidden = 4096;  // Width of both linear layers before the scores.
};

inline constexpr uint32_t kVgg16MinSide = 32;

// For color images of 1,000 classes, the model has 138,357,544 parameters, or 138,365,992 with
// BatchNorm. Names, order, shapes and initial distribution match torchvision's vgg16 and vgg16_bn.
// Images need at least kVgg16MinSide pixels on each side. The result of five poolings is averaged,
// or repeated, to 7 × 7.
std::shared_ptr<Model> MakeVgg16(const VggOptions& options, const SampleShape& shape);

}  // namespace sluice::worker
