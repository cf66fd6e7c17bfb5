// SPDX-License-Identifier: Apache-2.0
// ElementType: the floating-point types of gradients.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/enum_names.h"

namespace sluice::compress {

enum class ElementType : uint8_t { kFloat32, kBfloat16, kFloat16 };

constexpr auto NamesOf(ElementType) {
  return std::to_array<EnumName<ElementType>>({{ElementType::kFloat32, "fp32"},
                                               {ElementType::kBfloat16, "bf16"},
                                               {ElementType::kFloat16, "fp16"}});
}

constexpr size_t BytesOf(ElementType type) {
  return type == ElementType::kFloat32 ? sizeof(float) : sizeof(uint16_t);
}

}  // namespace sluice::compress
