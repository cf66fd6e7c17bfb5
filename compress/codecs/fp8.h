// SPDX-License-Identifier: Apache-2.0
// Codec fp8: 8-bit floats with a scale for each block of 256 elements (formats: Micikevicius et al.
// 2022). The scale maps the block's largest value to the format's largest.
//
//   fp8 (:e4m3)  4 bits of exponent, 3 of mantissa, to 448: relative error 2^-4, over 2^15 to 1
//   fp8:e5m2     5 and 2, to 57344: relative error 2^-3, over 2^30 to 1
//   :sr          rounded down or up at random: unbiased
//
// 8 + 1/16 bits per element. No state. Additive.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/codec.h"
#include "compress/codec_spec.h"

namespace sluice::compress {

std::unique_ptr<Codec> MakeFp8(const CodecSpec& spec);
absl::Status ValidateFp8(absl::Span<const std::byte> payload, size_t count);
void DecodeAddFp8(absl::Span<const std::byte> payload, absl::Span<float> sum);

}  // namespace sluice::compress
