// SPDX-License-Identifier: Apache-2.0
// Coding of one chunk of a model's weights: what changed between two versions, without loss for
// every bit pattern. Chunks do not depend on each other. docs/patch-format.md is normative.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compress/element_type.h"

namespace sluice::follow {

// Every chunk has this number of elements, except that the last one may be shorter.
inline constexpr size_t kChunkElements = size_t{1} << 20;

// The values are on disk. Never reuse one.
enum class ChunkMethod : uint8_t {
  kSame = 0,    // Nothing changed; there is no payload.
  kRaw = 1,     // The payload is the new weights.
  kSparse = 2,  // The payload is the positions and steps of the changed weights.
};

// Appends the payload that takes `before` to `after` and returns its method: the one with the
// fewest bytes. Both are weights in little-endian order, at most kChunkElements and equally many.
ChunkMethod AppendChunk(compress::ElementType type, absl::Span<const std::byte> before,
                        absl::Span<const std::byte> after, std::vector<std::byte>* payload);

// Checks a payload for a chunk of `count` elements. Returns a description of the error, or an empty
// string. `method` may have any value.
absl::string_view ChunkProblem(compress::ElementType type, ChunkMethod method,
                               absl::Span<const std::byte> payload, size_t count);

// The functions below need a payload that ChunkProblem has accepted for the same type, method
// and number of elements.

// Returns the number of elements that the payload replaces: those that changed, or all with kRaw.
size_t ChangedElements(ChunkMethod method, absl::Span<const std::byte> payload, size_t count);

// Changes `weights` in place.
void ApplyChunk(compress::ElementType type, ChunkMethod method, absl::Span<const std::byte> payload,
                absl::Span<std::byte> weights);

}  // namespace sluice::follow
