// SPDX-License-Identifier: Apache-2.0
// Chunks of various lengths and kinds, encoded by the processor's codecs and by a GPU's kernels.
// The kernels run on the processor, block by block.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "compress/codec_table.h"
#include "compress/frame.h"
#include "compress/gpu/kernels/block.h"
#include "compress/gpu/kernels/chunk.h"
#include "tests/compress/test_data.h"

namespace sluice::compress::gpu {

inline std::vector<float> MadeUp(uint32_t kind, size_t count, uint64_t seed) {
  std::vector<float> x = HeavyTailed(count, seed);
  for (size_t i = 0; i < count; ++i) {
    switch (kind % 8) {
      case 1:  // Zeros of both signs.
        x[i] = i % 3 == 0 ? -0.0f : 0.0f;
        break;
      case 2:  // Ties.
        x[i] = i % 2 == 0 ? 0.75f : -0.75f;
        break;
      case 3:  // Subnormal numbers.
        x[i] *= 1e-37f;
        break;
      case 4:  // The largest numbers.
        x[i] = std::clamp(x[i] * 1e38f, -1.5e38f, 1.5e38f);
        break;
      case 5:  // Mostly zeros.
        x[i] = i % 5 == 0 ? x[i] : i % 7 == 0 ? -0.0f : 0.0f;
        break;
      case 6:  // Integers, whose halves are ties in rounding.
        x[i] = std::round(x[i] * 1e4f) / 2;
        break;
      case 7:  // One outlier per block.
        x[i] = i % 256 == 17 ? 1e4f : x[i];
        break;
      default:
        break;
    }
  }
  return x;
}

struct MadeChunk {
  std::vector<float> gradient, residual;
  std::vector<uint8_t> payload;
  std::vector<std::byte> expected;
  std::vector<float> expected_residual;
  uint64_t kept = 0;
};

inline constexpr ThreadOrder kOrders[] = {ThreadOrder::kForward, ThreadOrder::kBackward};
inline constexpr uint32_t kCounts[] = {1,    2,    7,    8,    31,   63,   255,   256,  257,
                                       511,  1023, 1024, 1025, 4095, 4096, 4097,  8192, 9999,
                                       2048, 512,  3,    1536, 5000, 1280, 12289, 100,  4352};

// Chunks, and their encodings by the processor's codecs.
class Made {
 public:
  // `threshold` is only for codecs that take one.
  Made(const std::string& spec, bool with_residual, float threshold = 0) {
    codec_ = MakeCodec(*ParseCodecSpec(spec));
    uint32_t blocks = 0, elements = 0;
    for (uint32_t i = 0; i < 3 * std::size(kCounts); ++i) {
      const uint32_t count = kCounts[i % std::size(kCounts)];
      MadeChunk& made = made_.emplace_back();
      made.gradient = MadeUp(i, count, 1000 + i);
      if (with_residual) made.residual = MadeUp(i % 2 == 0 ? i : i + 8, count, 2000 + i);
      made.expected_residual = made.residual;
      EncodeInput input;
      input.gradient = made.gradient;
      input.residual = absl::MakeSpan(made.expected_residual);
      input.own_key = 77 + i;
      input.shared_key = 99 + i;
      input.threshold = threshold;
      input.kept = &made.kept;
      EXPECT_TRUE(EncodeFrame(*codec_, input, &made.expected).ok());
      made.expected.erase(made.expected.begin(), made.expected.begin() + kFrameHeaderSize);
      // Guard bytes follow the payload; kernels must not overwrite them. Some addresses have only
      // the minimum alignment that kernels require.
      const uint32_t aligned = codec_->format() == FormatId::kNone ? 4 : 2;
      made.payload.assign(codec_->MaxPayloadSize(count, 0) + 64, 0xEE);
      Chunk& chunk = chunks_.emplace_back();
      chunk.residual = with_residual ? made.residual.data() : nullptr;
      chunk.left = with_residual ? made.residual.data() : nullptr;
      chunk.count = count;
      chunk.first_block = blocks;
      chunk.first_element = elements;
      chunk.own_key = input.own_key;
      chunk.shared_key = input.shared_key;
      chunk.payload = made.payload.data() + i % 3 * aligned;
      // The number is rounded up to a multiple of 4, so that it also fits blocks of 1,024 elements.
      blocks += (count + 1023) / 1024 * 4;
      elements += count;
    }
    for (size_t i = 0; i < made_.size(); ++i) chunks_[i].gradient = made_[i].gradient.data();
    blocks_ = blocks;
    elements_ = elements;
    tiles_ = MakeTiles(chunks_);
  }

  const Chunk* chunks() const { return chunks_.data(); }
  const Tile* tiles() const { return tiles_.data(); }
  uint32_t chunk_count() const { return static_cast<uint32_t>(chunks_.size()); }
  uint32_t tile_count() const { return static_cast<uint32_t>(tiles_.size()); }
  uint32_t blocks() const { return blocks_; }
  uint32_t elements() const { return elements_; }
  const MadeChunk& made(size_t i) const { return made_[i]; }
  std::vector<Chunk>& mutable_chunks() { return chunks_; }
  const Codec& codec() const { return *codec_; }

  void ExpectPayloads() const {
    for (size_t i = 0; i < made_.size(); ++i) {
      const MadeChunk& made = made_[i];
      ASSERT_EQ(std::memcmp(chunks_[i].payload, made.expected.data(), made.expected.size()), 0)
          << "payload of chunk " << i << ", " << chunks_[i].count << " elements";
      const uint8_t* const end = chunks_[i].payload + made.expected.size();
      for (int j = 0; j < 32; ++j)
        ASSERT_EQ(end[j], 0xEE) << "the kernel must not write past chunk " << i;
    }
  }
  void ExpectResiduals() const {
    for (size_t i = 0; i < made_.size(); ++i) {
      const MadeChunk& made = made_[i];
      for (size_t j = 0; j < made.residual.size(); ++j) {
        ASSERT_EQ(std::bit_cast<uint32_t>(made.residual[j]),
                  std::bit_cast<uint32_t>(made.expected_residual[j]))
            << "residual " << j << " of chunk " << i << ", " << chunks_[i].count
            << " elements: " << made.residual[j] << ", should be " << made.expected_residual[j];
      }
    }
  }

 private:
  std::unique_ptr<Codec> codec_;
  std::vector<MadeChunk> made_;
  std::vector<Chunk> chunks_;
  std::vector<Tile> tiles_;
  uint32_t blocks_ = 0, elements_ = 0;
};

// Calls fn(made, order) with and without residuals, in both orders of threads.
template <class Fn>
void ForEachMade(const std::string& spec, float threshold, Fn fn) {
  for (const bool with_residual : {true, false}) {
    for (const ThreadOrder order : kOrders) {
      Made made(spec, with_residual, threshold);
      fn(made, order);
    }
  }
}
template <class Fn>
void ForEachMade(const std::string& spec, Fn fn) {
  ForEachMade(spec, 0, fn);
}

}  // namespace sluice::compress::gpu
