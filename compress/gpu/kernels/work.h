// SPDX-License-Identifier: Apache-2.0
// Work for a device, submitted by an encoder or an adder of frames: one codec for several chunks,
// in a few launches. The structs contain only numbers and addresses, so that the compiler of the
// kernels needs no other headers.
#pragma once

#include <cstdint>

#include "compress/coding/index_plan.h"
#include "compress/element_type.h"
#include "compress/gpu/kernels/chunk.h"

namespace sluice::compress::gpu {

enum class Algorithm : uint8_t {
  kFp32,
  kFp16,
  kBf16,
  kFp8,
  kFp8E5m2,
  kLinear,
  kMinMax,
  kQsgd,
  kNatural,
  kIntSum,
  kSign,
  kOneBit,
  kSignSgd,
  kTernary,
  kThreshold,
  kBlockTopK,
  kRandomK,
  kEden,
  kPowerSgd,
};

// A codec with the options that select its kernels.
struct Coding {
  Algorithm algorithm = Algorithm::kFp16;
  // Number of bits of a code, or of a position in the blocks of kBlockTopK. For kPowerSgd, the
  // rank.
  uint8_t bits = 0;
  bool stochastic = false;
  bool unbiased = false;  // Only for kRandomK.
  uint8_t values = 0;     // The ValueFormat of kept elements.
  IndexMode index = IndexMode::kAuto;
  float share = 0;  // Only for kTernary.

  friend bool operator==(const Coding&, const Coding&) = default;
};

// Scratch buffers that pass data between kernels. Their contents are undefined afterwards. Each of
// the first five has 32 bits for every element of all chunks (Chunk::first_element). The others
// have 32 bits for every block of 256 elements (Chunk::first_block).
struct Scratch {
  uint32_t* positions;
  float* values;
  uint32_t* packed_positions;
  float* packed_values;
  uint32_t* gaps;
  uint32_t* kept;
  uint32_t* scales;
};

struct EncodeWork {
  Coding coding;
  ElementType gradient = ElementType::kFloat32;
  const Chunk* chunks = nullptr;
  // Chunk indices in tiles refer to `chunks`.
  const Tile* tiles = nullptr;
  uint32_t chunk_count = 0;
  uint32_t tile_count = 0;
  // Codings with positions or places need all buffers. kSign, its variants and kNatural need some
  // of them.
  Scratch scratch{};
  // Only for kThreshold: the threshold of each chunk, rounded as in a frame.
  const float* thresholds = nullptr;
  // Only for kBlockTopK and kRandomK: the number of places in each chunk.
  const uint32_t* places = nullptr;
  // Only for kIntSum: the codec's state for each block of all chunks.
  const float* exponents = nullptr;
  // Only for kPowerSgd: a matrix for each chunk, and tiles of the matrices' rows and columns.
  const LowRankMatrix* matrices = nullptr;
  const Tile* row_tiles = nullptr;
  const Tile* column_tiles = nullptr;
  uint32_t row_tile_count = 0;
  uint32_t column_tile_count = 0;
  // For kPowerSgd, and for kIntSum unless all exponents are known: the largest magnitude of each
  // chunk. The caller sets it to 0, and a kernel computes it.
  uint32_t* largest = nullptr;
  // For each chunk: the number of payload bytes, and the number of kept elements. Written only if
  // the payload's size may differ from the codec's MaxPayloadSize.
  uint32_t* sizes = nullptr;
  uint32_t* kept = nullptr;
};

// The format of payloads that a device adds to sums.
enum class Addend : uint8_t {
  kNothing,  // Sums are set to 0.
  kFp32,
  kFp16,
  kBf16,
  kFp8,
  kFp8E5m2,
  kLinear,
  kMinMax,
  kQsgd,
  kNatural,
  kIntSum,
  kSign,
  kOneBit,
  kTernary,
  kSparse,
  kBlockTopK,
  kRandomK,
  kRotated,
  kLowRank,  // Payloads that contain factors of matrices.
};

// The kernel that adds a payload.
struct AddendKind {
  Addend addend = Addend::kNothing;
  uint8_t bits = 0;  // Number of bits of a code, for formats with a choice.

  friend bool operator==(const AddendKind&, const AddendKind&) = default;
};

// Adds validated payloads to sums. The addresses of payloads must be multiples of 4.
struct AddWork {
  Addend addend = Addend::kNothing;
  uint8_t bits = 0;  // Number of bits of a code.
  const Chunk* chunks = nullptr;
  const Tile* tiles = nullptr;
  uint32_t chunk_count = 0;
  uint32_t tile_count = 0;
  // Only for kTernary and kSparse: the size of each chunk's payload in bytes, and buffers in which
  // each chunk has space for one number per entry, beginning at Chunk::first_element.
  const uint32_t* sizes = nullptr;
  uint32_t* ends = nullptr;
  uint32_t* offsets = nullptr;
  uint32_t* positions = nullptr;
};

// Counts magnitudes with SampleMagnitudes.
struct SampleWork {
  ElementType gradient = ElementType::kFloat32;
  const Chunk* chunks = nullptr;
  uint32_t chunk_count = 0;
  const uint32_t* strides = nullptr;
  uint32_t* counts = nullptr;
};

}  // namespace sluice::compress::gpu
