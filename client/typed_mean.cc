// SPDX-License-Identifier: Apache-2.0
#include "client/typed_mean.h"

#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/float_bits.h"

namespace sluice::client {
namespace {

// Smallest magnitudes that round to infinity instead of to the largest finite value.
constexpr uint32_t kHalfOverflowBits = 0x477FF000;    // 65520
constexpr uint32_t kBfloatOverflowBits = 0x7F7F8000;  // Half a unit above the largest bfloat16.
constexpr uint16_t kHalfInfinity = 0x7C00;
constexpr uint16_t kBfloatInfinity = 0x7F80;

constexpr uint16_t SignOf(float x) {
  return static_cast<uint16_t>((std::bit_cast<uint32_t>(x) & kSignBit) >> 16);
}

constexpr uint16_t ToHalfOrInfinity(float x) {
  return MagnitudeBits(x) < kHalfOverflowBits ? ToHalf(x) : kHalfInfinity | SignOf(x);
}

constexpr uint16_t ToBfloatOrInfinity(float x) {
  return MagnitudeBits(x) < kBfloatOverflowBits ? ToBfloat(x) : kBfloatInfinity | SignOf(x);
}

template <typename T, typename Rounding>
void Write(std::span<const float> mean, const MeanTarget& target, const Rounding& round) {
  T* const out = static_cast<T*>(target.data);
  for (size_t i = 0; i < mean.size(); ++i) out[i] = round(mean[i] * target.scale);
}

}  // namespace

void WriteMean(std::span<const float> mean, const MeanTarget& target) {
  switch (target.type) {
    case ElementType::kFloat32:
      return Write<float>(mean, target, [](float x) { return x; });
    case ElementType::kFloat16:
      return Write<uint16_t>(mean, target, ToHalfOrInfinity);
    case ElementType::kBfloat16:
      return Write<uint16_t>(mean, target, ToBfloatOrInfinity);
  }
}

}  // namespace sluice::client
