// SPDX-License-Identifier: Apache-2.0
#include "follow/typed_weights.h"

#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "base/float_bits.h"

namespace sluice::follow {
namespace {

template <typename Round>
void WriteRounded(absl::Span<const float> values, Round round, std::byte* out) {
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t code = round(values[i]);
    std::memcpy(out + i * sizeof(code), &code, sizeof(code));
  }
}

}  // namespace

void WriteTyped(compress::ElementType type, absl::Span<const float> values,
                absl::Span<std::byte> out) {
  Check(out.size() == values.size() * BytesOf(type), "the output is as large as the values");
  if (values.empty()) return;
  switch (type) {
    case compress::ElementType::kFloat32:
      std::memcpy(out.data(), values.data(), out.size());
      return;
    case compress::ElementType::kBfloat16:
      WriteRounded(
          values, [](float x) { return ToBfloat(x); }, out.data());
      return;
    case compress::ElementType::kFloat16:
      WriteRounded(
          values, [](float x) { return ToHalf(x); }, out.data());
      return;
  }
}

}  // namespace sluice::follow
