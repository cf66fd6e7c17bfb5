// SPDX-License-Identifier: Apache-2.0
// ElementType: the floating-point types of gradients.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::compress {

enum class ElementType : uint8_t { kFloat32, kBfloat16, kFloat16 };

constexpr size_t BytesOf(ElementType type) {
  return type == ElementType::kFloat32 ? sizeof(float) : sizeof(uint16_t);
}

}  // namespace sluice::compress
