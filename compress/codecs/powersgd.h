// Codec `powersgd:r` (rank 1 to 32): a matrix as the product of two thin ones, from one power
// iteration that goes on where the last step's ended. PowerSGD (Vogels et al., NeurIPS 2019), with
// factors per sender: any frame decodes alone, and one round trip is enough.
//
// acc is M, m x n. P = orthonormalised M Q', Q' = the last step's Q; Q = M^T P; decoded = P Q^T
// with both factors in bf16. 16 r (m + n) / (m n) bits per element; biased (a projection, so never
// more than M): the rest goes to the residual, and sum of decoded + residual = sum of gradients.
// State of a sender: Q, r n floats. A chunk that is no matrix, or one that this would not halve
// compared to fp16, goes as fp16.
//
// All CPUs give the same bytes, and so do GPUs: sums have one order (compress/simd/low_rank.h).
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/codec.h"
#include "compress/codec_spec.h"

namespace sluice::compress {

std::unique_ptr<Codec> MakePowerSgd(const CodecSpec& spec);
absl::Status ValidateLowRank(absl::Span<const std::byte> payload, size_t count);
void DecodeAddLowRank(absl::Span<const std::byte> payload, absl::Span<float> sum);

}  // namespace sluice::compress
