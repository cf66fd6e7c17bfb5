// SPDX-License-Identifier: Apache-2.0
#include "follow/typed_weights.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "sample_weights.h"

namespace sluice::follow {
namespace {

using compress::ElementType;

std::vector<std::byte> Typed(ElementType type, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * BytesOf(type));
  WriteTyped(type, values, absl::MakeSpan(bytes));
  return bytes;
}

TEST(TypedWeights, RoundsToTheNearestValueTiesToEven) {
  // 1 + 2^-8 lies halfway between two bfloat16 values, 1 + 3 * 2^-8 too.
  EXPECT_EQ(Typed(ElementType::kBfloat16, {1.0f, 1.00390625f, 1.01171875f, -2.0f}),
            BytesOfWords<uint16_t>({0x3F80, 0x3F80, 0x3F82, 0xC000}));
  EXPECT_EQ(Typed(ElementType::kFloat16, {1.0f, 65504.0f, -0.5f}),
            BytesOfWords<uint16_t>({0x3C00, 0x7BFF, 0xB800}));
}

TEST(TypedWeights, KeepsFloatsBitForBit) {
  EXPECT_EQ(Typed(ElementType::kFloat32, {1.5f, -0.0f}),
            BytesOfWords<uint32_t>({0x3FC00000, 0x80000000}));
  EXPECT_TRUE(Typed(ElementType::kFloat32, {}).empty());
}

}  // namespace
}  // namespace sluice::follow
