// SPDX-License-Identifier: Apache-2.0
#include "worker/data/source/augmentation.h"

#include <algorithm>
#include <cmath>

namespace sluice::worker {
namespace {

constexpr uint64_t kSampleStream = 0x4155;  // Separates this use of the seed from others.
constexpr int kCropTries = 10;
constexpr double kNarrowest = 3.0 / 4.0;
constexpr double kWidest = 4.0 / 3.0;

// Returns the largest centered part of the image that has an allowed aspect ratio.
PixelBox MiddleCrop(uint32_t width, uint32_t height) {
  const double ratio = static_cast<double>(width) / height;
  PixelBox box = {.left = 0, .top = 0, .width = width, .height = height};
  if (ratio < kNarrowest) {
    box.height = std::max<uint32_t>(1, static_cast<uint32_t>(std::lround(width / kNarrowest)));
  } else if (ratio > kWidest) {
    box.width = std::max<uint32_t>(1, static_cast<uint32_t>(std::lround(height * kWidest)));
  }
  box.width = std::min(box.width, width);
  box.height = std::min(box.height, height);
  box.left = (width - box.width) / 2;
  box.top = (height - box.height) / 2;
  return box;
}

}  // namespace

CounterRandom SampleRandom(EpochKey epoch, uint32_t sample) {
  return CounterRandom(epoch.seed, kSampleStream, epoch.epoch, sample);
}

void CropAndFlip(const Augmentation& augmentation, const PlaneShape& shape,
                 absl::Span<const uint8_t> from, CounterRandom random, absl::Span<uint8_t> to) {
  const auto padding = static_cast<int64_t>(augmentation.crop_padding);
  const auto width = static_cast<int64_t>(shape.width);
  const auto height = static_cast<int64_t>(shape.height);
  const auto place = static_cast<uint64_t>(2 * padding + 1);
  const int64_t down = static_cast<int64_t>(random.Below(place)) - padding;
  const int64_t right = static_cast<int64_t>(random.Below(place)) - padding;
  const bool flip = augmentation.flip && random.Below(2) == 1;
  // Columns first … last − 1 of the written row come from inside the image.
  const int64_t first = std::clamp<int64_t>(-right, 0, width);
  const int64_t last = std::clamp<int64_t>(width - right, first, width);
  std::fill(to.begin(), to.end(), 0);
  for (int64_t row = 0; row < height * shape.channels; ++row) {
    const int64_t y = row % height + down;
    if (y < 0 || y >= height) continue;
    const uint8_t* source = from.data() + (row - row % height + y) * width;
    uint8_t* target = to.data() + row * width;
    std::copy(source + first + right, source + last + right, target + first);
    if (flip) std::reverse(target, target + width);
  }
}

PixelBox RandomCrop(uint32_t width, uint32_t height, double least_area, CounterRandom* random) {
  const double area = static_cast<double>(width) * height;
  const double narrowest = std::log(kNarrowest);
  const double widest = std::log(kWidest);
  for (int i = 0; i < kCropTries; ++i) {
    const double target = area * (least_area + (1 - least_area) * random->Uniform());
    const double ratio = std::exp(narrowest + (widest - narrowest) * random->Uniform());
    const auto w = std::lround(std::sqrt(target * ratio));
    const auto h = std::lround(std::sqrt(target / ratio));
    if (w < 1 || h < 1 || w > int64_t{width} || h > int64_t{height}) continue;
    PixelBox box;
    box.width = static_cast<uint32_t>(w);
    box.height = static_cast<uint32_t>(h);
    box.left = static_cast<uint32_t>(random->Below(width - box.width + 1));
    box.top = static_cast<uint32_t>(random->Below(height - box.height + 1));
    return box;
  }
  return MiddleCrop(width, height);
}

}  // namespace sluice::worker
