// SPDX-License-Identifier: Apache-2.0
// Codecs that send signs, in blocks of 1,024 elements. Elements that are zero stay zero, except in
// blocks of `sign` and `onebit` with a residual of which at most half is zero: there, they count as
// values above zero, and the residual corrects them later.
// - `sign`: ± the block's mean magnitude (EF-SignSGD: Karimireddy et al. 2019; blocks: Zheng et al.
//   2019). About 1.02 bits per element; biased, so it needs feedback.
// - `onebit`: the mean of all values above zero, or of all values below (1-bit SGD: Seide et al.
//   2014). About 1.03 bits; biased, so it needs feedback.
// - `signsgd`: ±1. The shard answers with the sign of the sum (majority vote: Bernstein et al.
//   2018). About 1.02 bits; sends no magnitude, so feedback does not apply.
// Blocks in which some elements stay zero take up to one additional bit per element.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/aggregator.h"
#include "compress/codec.h"
#include "compress/codec_spec.h"

namespace sluice::compress {

std::unique_ptr<Codec> MakeSign(const CodecSpec& spec);
std::unique_ptr<Codec> MakeSignSgd(const CodecSpec& spec);
absl::Status ValidateSign(absl::Span<const std::byte> payload, size_t count);
void DecodeAddSign(absl::Span<const std::byte> payload, absl::Span<float> sum);

std::unique_ptr<Codec> MakeOneBit(const CodecSpec& spec);
absl::Status ValidateOneBit(absl::Span<const std::byte> payload, size_t count);
void DecodeAddOneBit(absl::Span<const std::byte> payload, absl::Span<float> sum);

// For `signsgd`: accepts frames with values ±1 and 0. Close returns the sign of their sum, or 0 for
// a tie.
std::unique_ptr<Aggregator> MakeVoteAggregator(size_t count);

}  // namespace sluice::compress
