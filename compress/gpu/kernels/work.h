// What an encoder, and what adds frames up, give a device to do: one codec over some chunks, in a
// few launches. Plain numbers and addresses, so that whoever compiles kernels need know nothing
// else.
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

// A codec with its options, as kernels are told apart by.
struct Coding {
  Algorithm algorithm = Algorithm::kFp16;
  uint8_t bits = 0;  // Of a code, or of a place in kBlockTopK's blocks; kPowerSgd: the rank.
  bool stochastic = false;
  bool unbiased = false;  // kRandomK.
  uint8_t values = 0;     // A ValueFormat.
  IndexMode index = IndexMode::kAuto;
  float share = 0;  // ternary's.

  friend bool operator==(const Coding&, const Coding&) = default;
};

// Room that kernels use between them: what is in it means nothing afterwards. Each of the first
// five has 32 bits for every element of all chunks (Chunk::first_element), the others for every
// block of 256 (Chunk::first_block).
struct Room {
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
  const Tile* tiles = nullptr;  // By the chunks' index here.
  uint32_t chunk_count = 0;
  uint32_t tile_count = 0;
  // For what has positions or places all of it, for kSign and its like, and kNatural, some.
  Room room{};
  // Of each chunk: for kThreshold the threshold, as a frame can hold it.
  const float* thresholds = nullptr;
  const uint32_t* places = nullptr;  // For kBlockTopK and kRandomK.
  // For kIntSum: of each block of all chunks the codec's state.
  const float* exponents = nullptr;
  // For kPowerSgd: of each chunk, and tiles of their rows and of their columns.
  const LowRankMatrix* matrices = nullptr;
  const Tile* row_tiles = nullptr;
  const Tile* column_tiles = nullptr;
  uint32_t row_tile_count = 0;
  uint32_t column_tile_count = 0;
  // Of each chunk a 0, for kPowerSgd, and for kIntSum unless all exponents are there.
  uint32_t* largest = nullptr;
  // Of each chunk, written where the payload's size is not the codec's MaxPayloadSize.
  uint32_t* sizes = nullptr;
  uint32_t* kept = nullptr;
};

// What is added to chunks' sums.
enum class Addend : uint8_t {
  kNothing,  // Sums become 0.
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
  kLowRank,  // Of matrices.
};

// Payloads were validated before, and lie at addresses that 4 divides.
struct AddWork {
  Addend addend = Addend::kNothing;
  uint8_t bits = 0;  // Of a code.
  const Chunk* chunks = nullptr;
  const Tile* tiles = nullptr;
  uint32_t chunk_count = 0;
  uint32_t tile_count = 0;
  // For kTernary and kSparse: bytes of each chunk's payload, and room for as many numbers as it has
  // entries, from Chunk::first_element on.
  const uint32_t* sizes = nullptr;
  uint32_t* ends = nullptr;
  uint32_t* offsets = nullptr;
  uint32_t* positions = nullptr;
};

// Counts magnitudes as SampleMagnitudes does.
struct SampleWork {
  ElementType gradient = ElementType::kFloat32;
  const Chunk* chunks = nullptr;
  uint32_t chunk_count = 0;
  const uint32_t* strides = nullptr;
  uint32_t* counts = nullptr;
};

}  // namespace sluice::compress::gpu
