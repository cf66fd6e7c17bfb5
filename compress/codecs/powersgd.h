// SPDX-License-Identifier: Apache-2.0
// Codec `powersgd:r` (rank 1 to 32): represents a matrix as the product of two thin matrices,
// computed by one power iteration that starts from the last step's result. The method is PowerSGD
// (Vogels et al., NeurIPS 2019) with separate factors for each sender: every frame can be decoded
// alone, and one round trip is enough.
//
// acc is the m x n matrix M. P = orthonormalised M Q', where Q' is the last step's Q. Q = M^T P.
// decoded = P Q^T, with both factors in bf16. The codec takes 16 r (m + n) / (m n) bits per
// element. It is biased (a projection, so the result is never larger than M): the residual keeps
// the rest, and sum of decoded + residual = sum of gradients. A sender's state is Q, r n floats. A
// chunk is sent as fp16 if it is not a matrix or if this codec would not halve its size compared to
// fp16.
//
// All CPUs and GPUs produce the same bytes, because sums have a fixed order
// (compress/simd/low_rank.h).
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
