// SPDX-License-Identifier: Apache-2.0
// Codec `blocktopk:B` (B is a power of two from 4 to 4096): sends the element of largest magnitude
// in each block of B elements. If several are equal, the one at the lowest position is sent. Values
// are coded as in sparse_values.h.
//
// A block of B elements takes log2(B) bits for the position plus the bits of a value. The codec is
// biased: the residual keeps all other elements, and sum of decoded + residual = sum of gradients.
// Except for the rounding of values, |acc - decoded|^2 <= (1 - 1/B) |acc|^2. A block of zeros (all
// magnitudes below 2^-141) sends no value. No state.
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
