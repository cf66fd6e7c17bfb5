// SPDX-License-Identifier: Apache-2.0
// Statistics of parts of frames. They read as little of a frame as its format allows, and nothing
// before or after the part. All frames must be valid for the chunk (ValidateFrames) and must decode
// alone (DecodeAlone).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace sluice::compress {

// Smaller norms count as 0, because fp32 cannot hold their reciprocals.
inline constexpr double kNormMin = 1e-30;

// Some consecutive elements of a chunk.
struct ChunkPart {
  uint32_t count = 0;  // Elements of the chunk.
  uint32_t first = 0;  // The first element of the part; a multiple of kPartUnit.
  uint32_t size = 0;   // Elements of the part; above 0.

  bool whole() const { return size == count; }
};

inline ChunkPart WholeChunk(uint32_t count) { return {.count = count, .first = 0, .size = count}; }

// Returns true if the elements of a part can be decoded without the preceding ones.
bool DecodeInParts(absl::Span<const std::byte> frames);

// Returns the sum of squares of the decoded elements of `part`. For sparse frames, whose positions
// it does not read, this is an estimate unless the part is the whole chunk.
double SquaresIn(const ChunkPart& part, absl::Span<const std::byte> frames,
                 std::vector<float>* scratch);

// In these functions, the part must be the whole chunk unless DecodeInParts is true.
// Computes sum[i] += scale * decoded[part.first + i]. `sum` must have part.size elements.
void AddScaledPart(const ChunkPart& part, absl::Span<const std::byte> frames, float scale,
                   std::vector<float>* scratch, absl::Span<float> sum);
// Returns the dot product of the decoded elements of `part` and `other`, in fp64.
double DotWithPart(const ChunkPart& part, absl::Span<const std::byte> frames,
                   absl::Span<const float> other, std::vector<float>* scratch);

// Adds `weight` to each element of `totals` whose decoded value is not 0. `totals` must have one
// element per element of the chunk.
void AddWhereSent(absl::Span<const std::byte> frames, float weight, std::vector<float>* scratch,
                  absl::Span<float> totals);

}  // namespace sluice::compress
