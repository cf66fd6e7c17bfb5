// SPDX-License-Identifier: Apache-2.0
// Codecs that send the elements of largest magnitude, as Rice-coded positions and values
// (sparse_values.h). The residual keeps the other elements, so these codecs need feedback (Aji and
// Heafield 2017; Stich et al. 2018). All of them write the same format.
//
//   topk:d        |acc| >= a threshold that about a share d of elements reaches. The threshold
//                 covers several chunks of the sender or only this chunk. If at least the share
//                 d is kept, |acc - decoded|^2 <= (1 - d) |acc|^2.
//   topk_exact:d  the ceil(d n) largest of the chunk; a tie goes to the lowest positions. With
//                 scope=block, the largest of each block (block_selection.h).
//   threshold:t   |acc| >= t (Sahu et al. 2021). Larger gradients take more bytes.
//
// Zeros are never sent. A kept element takes the bits of its value and about entropy(d)/d bits for
// its position. The codecs are stateless.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/codec.h"
#include "compress/codec_facts.h"
#include "compress/codec_spec.h"

namespace sluice::compress {

// Converts `threshold` to a level that a frame can represent. The result is above 0, so zeros are
// never sent.
float UsableThreshold(float threshold);

std::unique_ptr<Codec> MakeTopK(const CodecSpec& spec);
CodecPrice SparsePrice(const CodecSpec& spec);
std::unique_ptr<Codec> MakeTopKExact(const CodecSpec& spec);
std::unique_ptr<Codec> MakeThreshold(const CodecSpec& spec);

absl::Status ValidateSparse(absl::Span<const std::byte> payload, size_t count);
void DecodeAddSparse(absl::Span<const std::byte> payload, absl::Span<float> sum);
void DecodeAddScaledSparse(absl::Span<const std::byte> payload, float scale, absl::Span<float> sum);
double EstimateSquaresSparse(absl::Span<const std::byte> payload, double from, double share);
void ForEachBatchSparse(
    absl::Span<const std::byte> payload,
    absl::FunctionRef<void(const uint32_t* positions, absl::Span<const float> values)> take);

}  // namespace sluice::compress
