#include "worker/train/synthetic_images.h"

#include <algorithm>

#include "base/random.h"

namespace sluice {
namespace {

constexpr uint32_t kSide = 28;
constexpr uint32_t kCell = 4;  // A pattern is made of squares of so many pixels.
constexpr uint32_t kCells = kSide / kCell;
constexpr uint64_t kSeed = 2836;
constexpr int kNoise = 96;

enum Stream : uint64_t { kPatterns = 1, kImages = 2 };

uint8_t PatternAt(uint32_t label, uint32_t y, uint32_t x) {
  CounterRandom random(kSeed, kPatterns, label, y / kCell * kCells + x / kCell);
  return static_cast<uint8_t>(random.Below(2) * 160 + 48);
}

}  // namespace

LabelledImages MakeSyntheticImages(uint32_t first, uint32_t count) {
  LabelledImages set;
  set.count = count;
  set.height = kSide;
  set.width = kSide;
  set.pixels.reserve(set.image_bytes() * count);
  set.labels.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    CounterRandom random(kSeed, kImages, uint64_t{first} + i);
    const auto label = static_cast<uint32_t>(random.Below(kImageClasses));
    set.labels.push_back(static_cast<uint8_t>(label));
    for (uint32_t y = 0; y < kSide; ++y) {
      for (uint32_t x = 0; x < kSide; ++x) {
        const int noise = static_cast<int>(random.Below(2 * kNoise + 1)) - kNoise;
        set.pixels.push_back(
            static_cast<uint8_t>(std::clamp(PatternAt(label, y, x) + noise, 0, 255)));
      }
    }
  }
  return set;
}

}  // namespace sluice
