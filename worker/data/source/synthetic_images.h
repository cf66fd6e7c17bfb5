// Synthetic images: made-up data sets, for tests and trials without files. The same for every call,
// on every machine: images `first` … `first + count − 1` of an endless row, so that training and
// test images need not overlap.
#pragma once

#include <cstdint>

#include "worker/data/source/labelled_images.h"

namespace sluice::worker {

// 28 × 28, grey, 10 classes, like MNIST: a small model learns them in seconds. Each class has a
// coarse pattern of its own, each image its pattern under noise.
LabelledImages MakeSyntheticImages(uint32_t first, uint32_t count);

// 32 × 32, three colours, 10 classes, like CIFAR-10. A class is a texture, not a place or colour:
// two crossed gratings, mirrored by a flip into themselves. Each image draws their places, its
// colours, a weaker texture of another class over them, and noise; convolutions learn it in a few
// epochs, and not perfectly.
LabelledImages MakeSyntheticColorImages(uint32_t first, uint32_t count);

}  // namespace sluice::worker
