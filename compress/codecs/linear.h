// SPDX-License-Identifier: Apache-2.0
// Codecs int8, int4 and int2: linear quantization with a scale for each block of 256 elements.
//
//   int8, int4, int2  code = acc / scale rounded to nearest even, ±(2^(b-1) - 1); scale = largest
//                     |acc| / (2^(b-1) - 1). |error| <= scale / 2. b + 1/16 bits per element.
//   :minmax           code = (acc - least) / scale from 0 to 2^b - 1; scale = (max - min) /
//                     (2^b - 1). For blocks whose values have one sign. b + 1/8 bits.
//   :sr               rounded down or up at random so that the mean is right: unbiased, |error| <
//                     scale (Gupta et al. 2015). Needs no feedback.
//
// No state. Additive.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/codec.h"
#include "compress/codec_spec.h"

namespace sluice::compress {

// Makes the codec for an int8, int4 or int2 spec.
std::unique_ptr<Codec> MakeLinear(const CodecSpec& spec);

absl::Status ValidateInt8(absl::Span<const std::byte> payload, size_t count);
void DecodeAddInt8(absl::Span<const std::byte> payload, absl::Span<float> sum);
void DecodeAddPartInt8(absl::Span<const std::byte> payload, size_t count, size_t first,
                       absl::Span<float> sum);
void DecodeAddAllInt8(absl::Span<const absl::Span<const std::byte>> payloads,
                      absl::Span<float> sum);
absl::Status ValidateInt4(absl::Span<const std::byte> payload, size_t count);
void DecodeAddInt4(absl::Span<const std::byte> payload, absl::Span<float> sum);
void DecodeAddPartInt4(absl::Span<const std::byte> payload, size_t count, size_t first,
                       absl::Span<float> sum);
void DecodeAddAllInt4(absl::Span<const absl::Span<const std::byte>> payloads,
                      absl::Span<float> sum);
absl::Status ValidateInt2(absl::Span<const std::byte> payload, size_t count);
void DecodeAddInt2(absl::Span<const std::byte> payload, absl::Span<float> sum);
void DecodeAddPartInt2(absl::Span<const std::byte> payload, size_t count, size_t first,
                       absl::Span<float> sum);
void DecodeAddAllInt2(absl::Span<const absl::Span<const std::byte>> payloads,
                      absl::Span<float> sum);
absl::Status ValidateMinMax(absl::Span<const std::byte> payload, size_t count);
void DecodeAddMinMax(absl::Span<const std::byte> payload, absl::Span<float> sum);

}  // namespace sluice::compress
