// SPDX-License-Identifier: Apache-2.0
// Computes the expected decoded values of each codec from the formulas in docs/compression.md, one
// element at a time.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/float_bits.h"

namespace sluice::compress {

inline std::vector<float> ReferenceInt8(const std::vector<float>& acc) {
  std::vector<float> decoded(acc.size());
  for (size_t from = 0; from < acc.size(); from += 256) {
    const size_t to = std::min(from + 256, acc.size());
    float largest = 0;
    for (size_t i = from; i < to; ++i) largest = std::max(largest, std::abs(acc[i]));
    // The scale is the smallest bf16 that is not below the exact value.
    const float exact = largest / 127;
    uint16_t code = ToBfloat(exact);
    if (FromBfloat(code) < exact) ++code;
    const float scale = FromBfloat(code);
    for (size_t i = from; i < to && scale > 0; ++i) {
      decoded[i] = std::nearbyint(acc[i] * (1 / scale)) * scale;
    }
  }
  return decoded;
}

inline std::vector<float> ReferenceTopKFp16(const std::vector<float>& acc, float tau) {
  std::vector<float> decoded(acc.size());
  for (size_t i = 0; i < acc.size(); ++i) {
    if (std::abs(acc[i]) >= tau) decoded[i] = FromHalf(ToHalf(acc[i]));
  }
  return decoded;
}

inline std::vector<float> ReferenceTopKInt4(const std::vector<float>& acc, float tau) {
  float largest = 0;
  for (const float x : acc) largest = std::max(largest, std::abs(x));
  const float delta = largest > tau ? ToShortFloatUp((largest - tau) / 7) : 0;
  std::vector<float> decoded(acc.size());
  for (size_t i = 0; i < acc.size(); ++i) {
    if (std::abs(acc[i]) < tau) continue;
    const float steps = delta > 0 ? std::floor((std::abs(acc[i]) - tau) / delta + 0.5f) : 0;
    const float magnitude = tau + std::min(steps, 7.0f) * delta;
    decoded[i] = std::copysign(magnitude, acc[i]);
  }
  return decoded;
}

inline std::vector<float> ReferenceTernary(const std::vector<float>& acc, float share) {
  std::vector<float> decoded(acc.size());
  for (size_t from = 0; from < acc.size(); from += 256) {
    const size_t to = std::min(from + 256, acc.size());
    float largest = 0;
    for (size_t i = from; i < to; ++i) largest = std::max(largest, std::abs(acc[i]));
    if (largest == 0) continue;
    double lanes[8] = {};
    int kept = 0;
    for (size_t i = from; i < to; ++i) {
      if (std::abs(acc[i]) < share * largest) continue;
      lanes[(i - from) % 8] += std::abs(acc[i]);
      ++kept;
    }
    double sum = 0;
    for (const double lane : lanes) sum += lane;
    // This rounds to 4 significant bits, ties to even.
    int exponent = 0;
    const double mantissa = std::frexp(static_cast<float>(sum / kept), &exponent);
    const auto scale = static_cast<float>(std::ldexp(std::nearbyint(mantissa * 16), exponent - 4));
    for (size_t i = from; i < to; ++i) {
      if (std::abs(acc[i]) >= share * largest) decoded[i] = std::copysign(scale, acc[i]);
    }
  }
  return decoded;
}

}  // namespace sluice::compress
