// SPDX-License-Identifier: Apache-2.0
#include "worker/data/source/synthetic_images.h"

#include <algorithm>
#include <array>

#include "base/random.h"

namespace sluice::worker {
namespace {

constexpr uint32_t kClasses = 10;
constexpr uint64_t kSeed = 2836;

enum Stream : uint64_t { kPatterns = 1, kImages = 2, kColorImages = 3 };

constexpr uint32_t kSyntheticImagesSide = 28;
constexpr uint32_t kCell = 4;  // Side of a pattern's squares in pixels.
constexpr uint32_t kCells = kSyntheticImagesSide / kCell;
constexpr int kNoise = 96;

uint8_t PatternAt(uint32_t label, uint32_t y, uint32_t x) {
  CounterRandom random(kSeed, kPatterns, label, y / kCell * kCells + x / kCell);
  return static_cast<uint8_t>(random.Below(2) * 160 + 48);
}

void AppendImage(uint32_t label, CounterRandom* random, std::vector<uint8_t>* pixels) {
  for (uint32_t y = 0; y < kSyntheticImagesSide; ++y) {
    for (uint32_t x = 0; x < kSyntheticImagesSide; ++x) {
      const int noise = static_cast<int>(random->Below(2 * kNoise + 1)) - kNoise;
      pixels->push_back(static_cast<uint8_t>(std::clamp(PatternAt(label, y, x) + noise, 0, 255)));
    }
  }
}

constexpr uint32_t kColorSide = 32;
constexpr int kColorNoise = 40;

// Number of waves of a class's gratings across and down the image.
struct Waves {
  uint32_t across;
  uint32_t down;
};
constexpr std::array<Waves, kClasses> kTextures = {
    {{1, 4}, {4, 1}, {3, 3}, {2, 6}, {6, 2}, {5, 5}, {1, 8}, {8, 1}, {4, 8}, {8, 4}}};

// Returns −256 at the beginning of a wave and 256 in its middle. A whole wave is a phase of 2^32.
int Triangle(uint32_t phase) {
  const int place = static_cast<int>(phase >> 22);  // 0 to 1023.
  return place < 512 ? place - 256 : 768 - place;
}

// The texture of one image.
class Texture {
 public:
  Texture(uint32_t label, CounterRandom* random) {
    // The number of waves differs from the class's number by up to half a wave.
    constexpr uint32_t kWave = uint32_t{1} << 27;  // 2^32 / kColorSide.
    const auto jittered = [&](uint32_t waves) {
      return waves * kWave - kWave / 2 + static_cast<uint32_t>(random->Below(kWave));
    };
    across_ = jittered(kTextures[label].across);
    down_ = jittered(kTextures[label].down);
    for (uint32_t& phase : phases_) phase = static_cast<uint32_t>(random->Next());
  }
  // Returns −512 to 512. Waves repeat because the phase wraps around.
  int At(uint32_t y, uint32_t x) const {
    return Triangle(phases_[0] + y * down_ + x * across_) +
           Triangle(phases_[1] + y * down_ - x * across_);
  }

 private:
  uint32_t across_ = 0;
  uint32_t down_ = 0;
  std::array<uint32_t, 2> phases_{};
};

// Returns a texture's strength in a color: at least `low` and below `high`, with a random sign.
int Strength(int low, int high, CounterRandom* random) {
  const int strength = low + static_cast<int>(random->Below(static_cast<uint64_t>(high - low)));
  return random->Below(2) == 1 ? strength : -strength;
}

void AppendColorImage(uint32_t label, CounterRandom* random, std::vector<uint8_t>* pixels) {
  const auto other_label =
      static_cast<uint32_t>((label + 1 + random->Below(kClasses - 1)) % kClasses);
  const Texture own(label, random);
  const Texture other(other_label, random);
  for (uint32_t channel = 0; channel < 3; ++channel) {
    const int brightness = 96 + static_cast<int>(random->Below(64));
    const int own_strength = Strength(32, 80, random);
    const int other_strength = Strength(16, 56, random);
    for (uint32_t y = 0; y < kColorSide; ++y) {
      for (uint32_t x = 0; x < kColorSide; ++x) {
        const int noise = static_cast<int>(random->Below(2 * kColorNoise + 1)) - kColorNoise;
        const int waves = (own_strength * own.At(y, x) + other_strength * other.At(y, x)) / 512;
        pixels->push_back(static_cast<uint8_t>(std::clamp(brightness + waves + noise, 0, 255)));
      }
    }
  }
}

LabelledImages MakeImages(Stream stream, const PlaneShape& shape, uint32_t first, uint32_t count,
                          void (*append)(uint32_t label, CounterRandom*, std::vector<uint8_t>*)) {
  LabelledImages set;
  set.count = count;
  set.channels = shape.channels;
  set.height = shape.height;
  set.width = shape.width;
  set.classes = kClasses;
  set.pixels.reserve(shape.bytes() * count);
  set.labels.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    CounterRandom random(kSeed, stream, uint64_t{first} + i);
    const auto label = static_cast<uint32_t>(random.Below(kClasses));
    set.labels.push_back(static_cast<uint8_t>(label));
    append(label, &random, &set.pixels);
  }
  return set;
}

}  // namespace

LabelledImages MakeSyntheticImages(uint32_t first, uint32_t count) {
  return MakeImages(kImages,
                    {.channels = 1, .height = kSyntheticImagesSide, .width = kSyntheticImagesSide},
                    first, count, &AppendImage);
}

LabelledImages MakeSyntheticColorImages(uint32_t first, uint32_t count) {
  return MakeImages(kColorImages, {.channels = 3, .height = kColorSide, .width = kColorSide}, first,
                    count, &AppendColorImage);
}

}  // namespace sluice::worker
