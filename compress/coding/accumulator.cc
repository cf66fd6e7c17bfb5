// SPDX-License-Identifier: Apache-2.0
#include "compress/coding/accumulator.h"

#include <bit>

#include "absl/strings/str_cat.h"
#include "base/float_bits.h"
#include "compress/simd/accumulate.h"

namespace sluice::compress {
namespace {

absl::Status NotFinite(absl::Span<const float> gradient, absl::Span<const float> residual) {
  size_t i = 0;
  while (IsFinite(gradient[i] + (residual.empty() ? 0.0f : residual[i]))) ++i;
  if (residual.empty() || !IsFinite(gradient[i])) {
    return absl::InvalidArgumentError(
        absl::StrCat("gradient is not finite: element ", i, " is ", gradient[i]));
  }
  return absl::InvalidArgumentError(absl::StrCat("gradient plus residual is not finite: element ",
                                                 i, " is ", gradient[i], " + ", residual[i]));
}

}  // namespace

absl::StatusOr<float> LargestMagnitude(absl::Span<const float> gradient,
                                       absl::Span<const float> residual) {
  if (!residual.empty() && residual.size() != gradient.size()) {
    return absl::InvalidArgumentError(absl::StrCat("gradient has ", gradient.size(),
                                                   " elements, residual has ", residual.size()));
  }
  const uint32_t bits = LargestMagnitudeBits(
      gradient.data(), residual.empty() ? nullptr : residual.data(), gradient.size());
  if (bits >= kInfinityBits) return NotFinite(gradient, residual);
  return std::bit_cast<float>(bits);
}

}  // namespace sluice::compress
