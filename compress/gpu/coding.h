// Which kernels a codec is on a device, and what is known of their payloads beforehand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "compress/codec_spec.h"
#include "compress/gpu/kernels/work.h"

namespace sluice::compress::gpu {

// How a chunk of so many elements in so many rows (0: flat) is coded. None: not on a device; that
// depends on the spec alone.
std::optional<Coding> CodingOf(const CodecSpec& spec, size_t count, uint32_t rows);

// Bytes of such a chunk's payload that stand before what kernels write; all 0.
size_t BytesBefore(const CodecSpec& spec, const Coding& coding);

// Whether some elements are kept only.
bool IsSparse(Algorithm algorithm);
// Whether payloads are of other sizes than MaxPayloadSize.
bool HasOwnSize(Algorithm algorithm);

// Whether kernels need EncodeWork::room.
bool NeedsRoom(Algorithm algorithm);

// Of blocktopk and randomk, which have places for values.
bool HasPlaces(Algorithm algorithm);
uint32_t PlacesOf(const CodecSpec& spec, size_t count);

}  // namespace sluice::compress::gpu
