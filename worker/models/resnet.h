// SPDX-License-Identifier: Apache-2.0
// ResNet: residual networks for images: He, Zhang, Ren and Sun, "Deep Residual Learning for Image
// Recognition", CVPR 2016.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "worker/models/model.h"
#include "worker/models/sample_shape.h"

namespace sluice::worker {

struct ResNetOptions {
  std::vector<uint32_t> blocks;  // Per stage. Each stage after the first halves the image.
  uint32_t width = 64;           // Channels of the first stage; each later stage has twice as many.
  // Uses blocks of three convolutions (1×1, 3×3, and 1×1 with four times the stage's width) instead
  // of two (3×3).
  bool bottleneck = false;
  // Begins with a 3×3 convolution, for images of a few dozen pixels. Otherwise a 7×7 convolution
  // and pooling reduce each side to 1/4.
  bool small_stem = false;
  // Shortcuts around blocks that change the shape take every second pixel and add channels of zeros
  // (option A of the paper) instead of using a 1×1 convolution (option B).
  bool padded_shortcuts = false;
};

// The paper's network for CIFAR with option A: 269,722 parameters for color images of ten classes.
ResNetOptions ResNet20();
// With the large stem and 1,000 classes, the models have 11,689,512 and 25,557,032 parameters.
// Names, order, shapes and initial distribution match torchvision. As in torchvision, the 3×3
// convolutions of resnet50 have the stride; in the paper, the first 1×1 convolutions have it.
ResNetOptions ResNet18(bool small_stem);
ResNetOptions ResNet50(bool small_stem);

// Returns the smallest side of an image for which the last stage still gets 2 × 2 pixels. With
// smaller images, BatchNorm would compute a variance from one value if a batch is one image.
uint32_t ResNetMinSide(const ResNetOptions& options);

std::shared_ptr<Model> MakeResNet(const ResNetOptions& options, const SampleShape& shape);

}  // namespace sluice::worker
