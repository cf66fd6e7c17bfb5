// SPDX-License-Identifier: Apache-2.0
// Weights for tests of patches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/types/span.h"
#include "base/random.h"
#include "compress/element_type.h"
#include "follow/patch.h"

namespace sluice::follow {

template <typename Word>
std::vector<std::byte> BytesOfWords(const std::vector<Word>& words) {
  std::vector<std::byte> bytes(words.size() * sizeof(Word));
  if (!words.empty()) std::memcpy(bytes.data(), words.data(), bytes.size());
  return bytes;
}

// Any bit patterns.
inline std::vector<std::byte> RandomBytes(size_t count, uint64_t seed) {
  const CounterRandom random(seed, 0);
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(random.At(i));
  return bytes;
}

// Adds up to `range` to the lowest byte of one in `rarity` elements of `width` bytes.
inline std::vector<std::byte> Nudged(std::vector<std::byte> weights, size_t width, uint64_t rarity,
                                     unsigned range, uint64_t seed) {
  const CounterRandom random(seed, 1);
  for (size_t i = 0; i * width < weights.size(); ++i) {
    const uint64_t number = random.At(i);
    if (number % rarity != 0) continue;
    const auto by = static_cast<unsigned>(number >> 32) % range + 1;
    weights[i * width] = static_cast<std::byte>(static_cast<unsigned>(weights[i * width]) + by);
  }
  return weights;
}

inline TensorLayout OneTensor(size_t elements) { return {{.name = "w", .shape = {elements}}}; }

}  // namespace sluice::follow
