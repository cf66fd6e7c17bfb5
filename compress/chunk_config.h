// ChunkConfig: what both ends must know about a chunk to code it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compress/codec_spec.h"

namespace sluice::compress {

struct ChunkConfig {
  size_t count = 0;  // Elements.
  CodecSpec spec;
  uint32_t id = 0;      // In the job: random numbers differ by it.
  uint32_t tensor = 0;  // Chunks of one tensor share a threshold under scope=tensor.
  uint32_t rows = 0;    // If the chunk is whole rows of a matrix: how many; else 0.

  friend bool operator==(const ChunkConfig&, const ChunkConfig&) = default;
};

}  // namespace sluice::compress
