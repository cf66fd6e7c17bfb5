// SPDX-License-Identifier: Apache-2.0
// Codec `qsgd:b` (QSGD: Alistarh et al. 2017; b = 2 to 8): blocks of 512 codes, each of which is
// multiplied by the block's step. A code is acc / step, rounded to one of its two neighbours with
// probabilities that preserve the mean. The step is the block's largest magnitude / (2^(b-1) - 1).
// The codec takes b + 1/32 bits per element and is unbiased and stateless.
//
// Blocks are scaled by their largest magnitude, as in the paper's own code, and not by their
// Euclidean norm: with the norm, most codes are 0, which pays off only with entropy coding. The
// squared error is the sum of step^2 f (1 - f) over the elements, where f is the fractional part of
// |acc| / step. It is at most step^2 / 4 per element.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/codec.h"
#include "compress/codec_spec.h"

namespace sluice::compress {

std::unique_ptr<Codec> MakeQsgd(const CodecSpec& spec);
absl::Status ValidateQsgd(absl::Span<const std::byte> payload, size_t count);
void DecodeAddQsgd(absl::Span<const std::byte> payload, absl::Span<float> sum);

}  // namespace sluice::compress
