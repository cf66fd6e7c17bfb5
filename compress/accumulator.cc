#include "compress/accumulator.h"

#include <bit>

#include "absl/strings/str_cat.h"
#include "compress/float_bits.h"
#include "compress/vectorized.h"

namespace sluice {
namespace {

// Magnitudes of floats are ordered as their bits are, with infinities and NaNs above all finite
// ones.
SLUICE_VECTORIZED uint32_t LargestBits(const float* values, size_t count) {
  uint32_t largest = 0;
  for (size_t i = 0; i < count; ++i) largest = std::max(largest, MagnitudeBits(values[i]));
  return largest;
}

SLUICE_VECTORIZED uint32_t LargestBitsOfSum(const float* a, const float* b, size_t count) {
  uint32_t largest = 0;
  for (size_t i = 0; i < count; ++i) largest = std::max(largest, MagnitudeBits(a[i] + b[i]));
  return largest;
}

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
  const uint32_t bits = residual.empty()
                            ? LargestBits(gradient.data(), gradient.size())
                            : LargestBitsOfSum(gradient.data(), residual.data(), gradient.size());
  if (bits >= kInfinityBits) return NotFinite(gradient, residual);
  return std::bit_cast<float>(bits);
}

}  // namespace sluice
