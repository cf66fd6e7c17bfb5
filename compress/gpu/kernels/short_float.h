// SPDX-License-Identifier: Apache-2.0
// Floats with fewer bits, defined by their parameters: fp16 and both formats of fp8. The results
// equal those of compress/simd/cast.cc.
#pragma once

#include "base/device_functions.h"
#include "compress/gpu/kernels/numbers.h"

namespace sluice::compress::gpu {

// A format with kMantissa bits of mantissa, exponents with the bias kBias, and codes up to kLargest
// (without sign).
template <int kMantissa, int kBias, uint32_t kLargest>
struct ShortFloat {
  static constexpr uint32_t kLargestCode = kLargest;
  static constexpr int kDrop = 23 - kMantissa;
  static constexpr uint32_t kRebase = static_cast<uint32_t>(127 - kBias) << 23;
  static constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(128 - kBias) << 23;
  // The unit of subnormal numbers.
  static constexpr float kUnit =
      std::bit_cast<float>(static_cast<uint32_t>(128 - kBias - kMantissa) << 23);

  // Returns the code of a finite number without its sign. Codes saturate at kLargest.
  static constexpr uint32_t Encode(float x) {
    const uint32_t magnitude = MagnitudeBits(x);
    if (magnitude < kSmallestNormal) {
      return static_cast<uint32_t>(Round(std::bit_cast<float>(magnitude) * (1 / kUnit)));
    }
    const uint32_t up = (uint32_t{1} << (kDrop - 1)) - 1 + (magnitude >> kDrop & 1);
    return Cut(magnitude, up);
  }
  static constexpr uint32_t EncodeAtRandom(float x, uint32_t draw) {
    const uint32_t magnitude = MagnitudeBits(x);
    if (magnitude < kSmallestNormal) {
      const float units = std::bit_cast<float>(magnitude) * (1 / kUnit);
      return static_cast<uint32_t>(RoundAtRandom(units, draw));
    }
    return Cut(magnitude, draw & ((uint32_t{1} << kDrop) - 1));
  }

  // Decodes a code without its sign.
  static constexpr float Decode(uint32_t code) {
    if (code < uint32_t{1} << kMantissa) return static_cast<float>(code) * kUnit;
    return std::bit_cast<float>((code << kDrop) + kRebase);
  }

 private:
  static constexpr uint32_t Cut(uint32_t magnitude, uint32_t up) {
    return Min((magnitude + up - kRebase) >> kDrop, kLargest);
  }
};

}  // namespace sluice::compress::gpu
