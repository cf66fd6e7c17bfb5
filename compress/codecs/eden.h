// Codec `eden:b` (b = 1 to 4): blocks are rotated at random, which makes any input look normally
// distributed, and quantised with the b-bit code that is best for that. DRIVE and EDEN (Vargaftik
// et al., NeurIPS 2021 and ICML 2022).
//
// Blocks of 1,024; y = R acc, R a product of Walsh-Hadamard transforms H and random signs D;
// q = the centroids nearest to y; decoded = s R^T q. b + 24/1024 bits per element.
// Without a residual R = H D2 H D1 (after one H alone, a block of few large elements would lose the
// smaller ones in every draw) and s = |acc|^2 / <q, y>, which is unbiased; mean squared error
// 0.571, 0.133, 0.036 and 0.0096 of |acc|^2. With one, R = H D and s is the scale of least error
// (0.363, 0.1175, 0.0345, 0.0095); the residual takes the rest: sum of decoded + residual = sum of
// gradients. No state: the key of the signs is in the frame.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/codec.h"
#include "compress/codec_spec.h"

namespace sluice::compress {

std::unique_ptr<Codec> MakeEden(const CodecSpec& spec);
absl::Status ValidateRotated(absl::Span<const std::byte> payload, size_t count);
void DecodeAddRotated(absl::Span<const std::byte> payload, absl::Span<float> sum);

}  // namespace sluice::compress
