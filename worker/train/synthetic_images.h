// SyntheticImages: made-up images that a small model learns in seconds, for tests and trials
// without files.
#pragma once

#include <cstdint>

#include "worker/train/labelled_images.h"

namespace sluice {

// 28 × 28. Each class has a coarse pattern of its own, each image its pattern under noise. The same
// for every call; images `first` … `first + count − 1` of an endless row, so that training and test
// images do not overlap.
LabelledImages MakeSyntheticImages(uint32_t first, uint32_t count);

}  // namespace sluice
