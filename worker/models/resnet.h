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
  std::vector<uint32_t> blocks;  // Of each stage. Each stage after the first halves the image.
  uint32_t width = 64;  // Channels of the first stage; each one after it has twice as many.
  // Blocks of 1×1, 3×3 and 1×1, the last of four times the stage's width, in place of two 3×3.
  bool bottleneck = false;
  // Of images of a few dozen pixels: 3×3 in place of 7×7 and pooling, which take 1/4 of each side.
  bool small_stem = false;
  // What goes around a block that changes the shape: every other pixel and channels of zeros after
  // those that are there (option A of the paper), in place of a 1×1 convolution (option B).
  bool padded_shortcuts = false;
};

// 269,722 parameters for colour images of ten classes: the paper's network for CIFAR, option A.
ResNetOptions ResNet20();
// With the large stem and 1,000 classes 11,689,512 and 25,557,032 parameters, by name, order, shape
// and initial distribution those of torchvision's. resnet50 strides in the 3×3, as torchvision's
// does, not in the first 1×1, as the paper's.
ResNetOptions ResNet18(bool small_stem);
ResNetOptions ResNet50(bool small_stem);

// The least side of an image of which the last stage still sees 2 × 2: below, BatchNorm has nothing
// to take a variance of when a batch is one image.
uint32_t ResNetMinSide(const ResNetOptions& options);

std::shared_ptr<Model> MakeResNet(const ResNetOptions& options, const SampleShape& shape);

}  // namespace sluice::worker
