// SPDX-License-Identifier: Apache-2.0
// ChunkConfig: the facts about a chunk that sender and receiver must know to encode and decode it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compress/codec_spec.h"

namespace sluice::compress {

struct ChunkConfig {
  size_t count = 0;  // Number of elements.
  CodecSpec spec;
  // The chunk's number within the job. Random numbers depend on this number.
  uint32_t id = 0;
  // With scope=tensor, the chunks of a tensor share a threshold.
  uint32_t tensor = 0;
  // Number of rows if the chunk consists of whole rows of a matrix; otherwise 0.
  uint32_t rows = 0;

  friend bool operator==(const ChunkConfig&, const ChunkConfig&) = default;
};

}  // namespace sluice::compress
