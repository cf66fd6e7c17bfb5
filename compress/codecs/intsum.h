// Codec `intsum:b` (b = 2, 4 or 8): codes of b bits in steps that all senders of a chunk share, so
// that the receiver adds integers. After the idea of THC (Li et al., NSDI 2024), without its extra
// round trip and rotation.
//
// Blocks of 256. code = clip(round(acc / 2^e), ±q), q = 2^(b-1) - 1; decoded = code 2^e; b + 1/16
// bits per element; biased: what rounding and clipping leave goes to the residual, and
// sum of decoded + residual = sum of gradients, as with any additive codec. The exponent e of a
// block is the smallest that would have fitted the largest |acc| of any sender on the step before.
// State of a sender: the exponents, a float per block; of the receiver: a sum per element.
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

// The exponents that senders use on their next step: a byte per block. Decodes to nothing.
absl::Status ValidateExponents(absl::Span<const std::byte> payload, size_t count);
void DecodeAddExponents(absl::Span<const std::byte> payload, absl::Span<float> sum);

// Adds codes as integers while all frames of a step have the same exponents, floats otherwise; the
// mean has the same bits either way. Shares the exponents for the next step. `spec` is an intsum
// one.
std::unique_ptr<Aggregator> MakeIntSumAggregator(size_t count, const CodecSpec& spec,
                                                 uint32_t senders);

}  // namespace sluice::compress
