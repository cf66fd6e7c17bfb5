// SPDX-License-Identifier: Apache-2.0
// Synthetic images: generated data sets for tests and trials without files. Every call on every
// machine returns the same images: `first` … `first + count − 1` of an endless sequence, so that
// training and test images need not overlap.
#pragma once

#include <cstdint>

#include "worker/data/source/labelled_images.h"

namespace sluice::worker {

// 28 × 28, gray, 10 classes, like MNIST. A small model learns them in seconds. Each class has its
// own coarse pattern, and each image is its class's pattern with noise.
LabelledImages MakeSyntheticImages(uint32_t first, uint32_t count);

// 32 × 32, three colors, 10 classes, like CIFAR-10. Only texture tells classes apart, not position
// or color. A class's texture is two crossed gratings, which look the same when flipped. Each image
// has random phases and colors, a weaker texture of another class on top, and noise. Convolutional
// networks learn the classes in a few epochs, but not perfectly.
LabelledImages MakeSyntheticColorImages(uint32_t first, uint32_t count);

}  // namespace sluice::worker
