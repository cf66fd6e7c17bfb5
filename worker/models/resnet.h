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
  // Uses blocks of 1×1, 3×3 and 1×1, the last with four times the stage's width, instead of two
  // 3×3.
  bool bottleneck = false;
  // For images of a few dozen pixels: a 3×3 convolution instead of 7×7 and pooling, which reduce
  // each side to 1/4.
  bool small_stem = false;
  // Shortcut around a block that changes the shape: every second pixel and zeros as additional
  // channels (option A of the paper), instead of a 1×1 convolution (option B).
  bool padded_shortcuts = false;
};

// The paper's network for CIFAR with option A: 269,722 parameters for color images of ten classes.
ResNetOptions ResNet20();
// With the large stem and 1,000 classes, the models have 11,689,512 and 25,557,032 parameters.
// Names, order, shapes and initial distribution are torchvision's. Like torchvision's, resnet50
// strides in the 3×3; the paper's strides in the first 1×1.
ResNetOptions ResNet18(bool small_stem);
ResNetOptions ResNet50(bool small_stem);

// Returns the smallest side of an image for which the last stage still gets 2 × 2 pixels. Below
// that, BatchNorm has only one value for its variance if a batch is one image.
uint32_t ResNetMinSide(const ResNetOptions& options);

std::shared_ptr<Model> MakeResNet(const ResNetOptions& options, const SampleShape& shape);

}  // namespace sluice::worker
