// Codec `qsgd:b` (QSGD: Alistarh et al. 2017): code x step in blocks of 512, where a code is acc /
// step rounded to one of its two neighbours with the probabilities that keep the mean, and step the
// block's largest magnitude / (2^(b-1) - 1).
// b + 1/32 bits per element, b = 2 to 8; unbiased, stateless. Blocks are scaled by their largest
// magnitude, as the paper's own code does, not by their Euclidean norm: that leaves most codes 0
// and wins only with entropy coding. Squared error: the sum over elements of step^2 f (1 - f), f
// the part of |acc| / step after the point; at most step^2 / 4 each.
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
