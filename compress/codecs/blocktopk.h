// Codec `blocktopk:B` (B a power of two from 4 to 4096): the element of largest magnitude of each
// block of B, ties the lowest position; values as in sparse_values.h.
//
// log2(B) bits for a position and those of a value, per block of B. Biased: all else stays in the
// residual, and sum of decoded + residual = sum of gradients. |acc - decoded|^2 <=
// (1 - 1/B) |acc|^2 but for the rounding of values. A block of zeros (all below 2^-141) sends no
// value. No state.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/codec.h"
#include "compress/codec_spec.h"

namespace sluice::compress {

std::unique_ptr<Codec> MakeBlockTopK(const CodecSpec& spec);
absl::Status ValidateBlockTopK(absl::Span<const std::byte> payload, size_t count);
void DecodeAddBlockTopK(absl::Span<const std::byte> payload, absl::Span<float> sum);

}  // namespace sluice::compress
