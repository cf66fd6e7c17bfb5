// Codec `lsh` (SimHash: Charikar 2002): a block of 256 that points where the block last sent in
// full did goes as one gain times that block; the others as 8-bit codes with a scale, which both
// sides remember from then on. The SimHash of a block is the signs of 256 random projections, which
// differ by chunk and step: two blocks are taken to point the same way where at most 64 of the
// signs differ, an angle of 45 degrees. Then decoded = gain * remembered, gain = <acc, remembered>
// / <remembered, remembered> in bf16; else decoded = code * scale as in `int8`. Never adds energy
// (contractive), so that feedback is stable; biased. 8.07 bits per element where nothing matches,
// 0.07 where everything does. State: 4 bytes per element on the sender, and 4 per element and
// sender on the receiver. Frames name the memory that they refer to, so that a receiver that has
// another one refuses them.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/aggregator.h"
#include "compress/codec.h"
#include "compress/codec_spec.h"

namespace sluice::compress {

std::unique_ptr<Codec> MakeLsh(const CodecSpec& spec);

// No decode_add: what a gain is a gain of, only the receiver of the sender's earlier frames knows.
absl::Status ValidateLsh(absl::Span<const std::byte> payload, size_t count);

std::unique_ptr<Aggregator> MakeLshAggregator(size_t count, uint32_t senders);

}  // namespace sluice::compress
