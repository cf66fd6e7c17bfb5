// SPDX-License-Identifier: Apache-2.0
// Codec `intsum:b` (b = 2, 4 or 8): codes of b bits whose step sizes are the same for all senders
// of a chunk, so that the receiver can add integers. The codec follows the idea of THC (Li et al.,
// NSDI 2024), without THC's extra round trip and rotation.
//
// Blocks have 256 elements. code = clip(round(acc / 2^e), ±q) with q = 2^(b-1) - 1, and decoded =
// code 2^e. The codec takes b + 1/16 bits per element. It is biased: the residual keeps the amounts
// that rounding and clipping drop, and sum of decoded + residual = sum of gradients, as with any
// additive codec.
//
// The exponent e of a block is the smallest one that would have fitted the largest |acc| of all
// senders in the previous step. A sender's state consists of the exponents, one float per block.
// The receiver's state is one sum per element.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/aggregator.h"
#include "compress/codec.h"
#include "compress/codec_spec.h"

namespace sluice::compress {

std::unique_ptr<Codec> MakeIntSum(const CodecSpec& spec);
absl::Status ValidateIntSum(absl::Span<const std::byte> payload, size_t count);
void DecodeAddIntSum(absl::Span<const std::byte> payload, absl::Span<float> sum);

// Validates the frame that carries the exponents for the senders' next step, one byte per block.
// The frame contains no values.
absl::Status ValidateExponents(absl::Span<const std::byte> payload, size_t count);
void DecodeAddExponents(absl::Span<const std::byte> payload, absl::Span<float> sum);

// Returns an aggregator that adds codes as integers while all frames of a step have the same
// exponents, and as floats otherwise. Both ways give the same bits of the mean. The aggregator
// publishes the exponents for the next step. `spec` must be an intsum spec.
std::unique_ptr<Aggregator> MakeIntSumAggregator(size_t count, const CodecSpec& spec,
                                                 uint32_t senders);

}  // namespace sluice::compress
