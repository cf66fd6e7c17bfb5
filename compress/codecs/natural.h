// SPDX-License-Identifier: Apache-2.0
// Codec `natural` (natural compression: Horváth et al. 2019): rounds each value to one of the two
// neighbouring powers of two, with probabilities that preserve the mean. Powers of two stay
// unchanged. The codec takes 1 + w + 1/32 bits per element, in blocks of 512. w is the number of
// bits that the block's range of exponents needs (4 for normal values, 5 or 6 for gradients, at
// most 8). The codec is unbiased and stateless; its variance is at most |acc|^2 / 8. Subnormal
// numbers become 0 or ±2^-126. Values above 2^127 are clipped to it, because there is no larger
// power of two.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/codec.h"
#include "compress/codec_spec.h"

namespace sluice::compress {

std::unique_ptr<Codec> MakeNatural(const CodecSpec& spec);
absl::Status ValidateNatural(absl::Span<const std::byte> payload, size_t count);
void DecodeAddNatural(absl::Span<const std::byte> payload, absl::Span<float> sum);

}  // namespace sluice::compress
