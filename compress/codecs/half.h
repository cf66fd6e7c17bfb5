// SPDX-License-Identifier: Apache-2.0
// Codecs fp16 and bf16: saturating casts to 16 bits per element. The residual keeps the rounding
// error.
//
//   fp16      IEEE half: 11 significant bits, from 6e-8 to 65504
//   bf16      upper half of an fp32: 8 significant bits, the full range of fp32
//   :sr       rounded down or up at random so that the mean is right (Gupta et al. 2015): unbiased
//             except for saturation; needs no feedback
//
// No state. Additive.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/codec.h"
#include "compress/codec_spec.h"

namespace sluice::compress {

// Makes the codec for an fp16 or bf16 spec.
std::unique_ptr<Codec> MakeHalf(const CodecSpec& spec);

absl::Status ValidateFp16(absl::Span<const std::byte> payload, size_t count);
void DecodeAddFp16(absl::Span<const std::byte> payload, absl::Span<float> sum);
void DecodeAddPartFp16(absl::Span<const std::byte> payload, size_t count, size_t first,
                       absl::Span<float> sum);
absl::Status ValidateBf16(absl::Span<const std::byte> payload, size_t count);
void DecodeAddBf16(absl::Span<const std::byte> payload, absl::Span<float> sum);
void DecodeAddPartBf16(absl::Span<const std::byte> payload, size_t count, size_t first,
                       absl::Span<float> sum);

}  // namespace sluice::compress
