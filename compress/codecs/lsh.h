// SPDX-License-Identifier: Apache-2.0
// Codec `lsh` (SimHash: Charikar 2002): compares each block of 256 elements with the block that was
// last sent in full at the same position. If both point in the same direction, the frame contains
// only a gain that multiplies the earlier block. Otherwise the frame contains 8-bit codes with a
// scale, and sender and receiver remember the new block.
//
// The SimHash of a block consists of the signs of 256 random projections, which differ by chunk and
// step. Two blocks count as having the same direction if at most 64 signs differ, which is an angle
// of 45 degrees. With a gain, decoded = gain * remembered, where gain = <acc, remembered> /
// <remembered, remembered> in bf16. Otherwise decoded = code * scale, as in `int8`. The codec is
// biased but never adds energy (it is contractive), so feedback is stable.
//
// The codec takes 8.07 bits per element if no block matches and 0.07 if all match. State: 4 bytes
// per element on the sender, and 4 bytes per element and sender on the receiver. Each frame names
// the memory that it was encoded with, so a receiver with a different memory refuses it.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/aggregator.h"
#include "compress/codec.h"
#include "compress/codec_spec.h"

namespace sluice::compress {

std::unique_ptr<Codec> MakeLsh(const CodecSpec& spec);

// This format has no decode_add, because only the receiver of the sender's earlier frames knows the
// blocks that gains multiply.
absl::Status ValidateLsh(absl::Span<const std::byte> payload, size_t count);

std::unique_ptr<Aggregator> MakeLshAggregator(size_t count, uint32_t senders);

}  // namespace sluice::compress
