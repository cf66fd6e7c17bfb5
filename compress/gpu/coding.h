// SPDX-License-Identifier: Apache-2.0
// Maps codecs to kernels on a device, and answers questions about payloads before they are encoded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "compress/codec_spec.h"
#include "compress/gpu/kernels/work.h"

namespace sluice::compress::gpu {

// Returns the coding of a chunk of `count` elements in `rows` rows (0 for a flat chunk). Returns
// nullopt if the device cannot encode the spec, whatever the size of the chunk.
std::optional<Coding> CodingOf(const CodecSpec& spec, size_t count, uint32_t rows);

// Returns the number of payload bytes that precede the kernels' output. All of these bytes are 0.
size_t BytesBefore(const CodecSpec& spec, const Coding& coding);

// Returns true if the algorithm keeps only some elements.
bool IsSparse(Algorithm algorithm);
// Returns true if the size of a payload can differ from MaxPayloadSize.
bool HasOwnSize(Algorithm algorithm);

// Returns true if the algorithm's kernels need EncodeWork::scratch.
bool NeedsScratch(Algorithm algorithm);

// Returns true for blocktopk and randomk, which send values at places that the receiver knows.
bool HasPlaces(Algorithm algorithm);
uint32_t PlacesOf(const CodecSpec& spec, size_t count);

}  // namespace sluice::compress::gpu
