// SPDX-License-Identifier: Apache-2.0
#include "follow/chunk_coding.h"

#include <cmath>

#include "follow/ordered_bits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/follow/sample_weights.h"

namespace sluice::follow {
namespace {

using compress::ElementType;

struct Coded {
  ChunkMethod method;
  std::vector<std::byte> payload;
};

// Encodes, checks and applies a chunk. The result must equal `after`.
Coded CodeChunk(ElementType type, const std::vector<std::byte>& before,
                const std::vector<std::byte>& after) {
  Coded coded;
  coded.method = AppendChunk(type, before, after, &coded.payload);
  const size_t count = before.size() / BytesOf(type);
  EXPECT_EQ(ChunkProblem(type, coded.method, coded.payload, count), "");
  std::vector<std::byte> weights = before;
  ApplyChunk(type, coded.method, coded.payload, absl::MakeSpan(weights));
  EXPECT_EQ(weights, after);
  EXPECT_LE(coded.payload.size(), after.size());
  return coded;
}

constexpr ElementType kAllTypes[] = {ElementType::kBfloat16, ElementType::kFloat16,
                                     ElementType::kFloat32};

TEST(ChunkCoding, RestoresRandomPatternsAtEveryDensity) {
  uint64_t seed = 0;
  for (const ElementType type : kAllTypes) {
    for (const size_t count : {1, 2, 7, 8, 9, 63, 64, 1000, 4097}) {
      for (const uint64_t rarity : {1, 2, 10, 500}) {
        for (const unsigned range : {1, 3, 255}) {
          const std::vector<std::byte> before = RandomBytes(count * BytesOf(type), ++seed);
          CodeChunk(type, before, Nudged(before, BytesOf(type), rarity, range, seed));
        }
      }
      CodeChunk(type, RandomBytes(count * BytesOf(type), 1), RandomBytes(count * BytesOf(type), 2));
    }
  }
}

TEST(ChunkCoding, TakesNoBytesIfNothingChanged) {
  const std::vector<std::byte> weights = RandomBytes(1000, 3);
  const Coded coded = CodeChunk(ElementType::kBfloat16, weights, weights);
  EXPECT_EQ(coded.method, ChunkMethod::kSame);
  EXPECT_TRUE(coded.payload.empty());
  EXPECT_EQ(CodeChunk(ElementType::kFloat32, {}, {}).method, ChunkMethod::kSame);
}

TEST(ChunkCoding, SendsRandomWeightsRaw) {
  const Coded coded =
      CodeChunk(ElementType::kFloat16, RandomBytes(20'000, 4), RandomBytes(20'000, 5));
  EXPECT_EQ(coded.method, ChunkMethod::kRaw);
  EXPECT_EQ(coded.payload.size(), 20'000u);
  EXPECT_EQ(ChangedElements(coded.method, coded.payload, 10'000), 10'000u);
}

TEST(ChunkCoding, RestoresTheEdgesOfTheRange) {
  const std::vector<uint32_t> patterns = {0,          0x80000000, 1,          0x80000001,
                                          0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000,
                                          0xFFC00000, 0x7FFFFFFF, 0xFFFFFFFF, 0x3F800000};
  std::vector<uint32_t> before(10'000, 0x3F800000);
  for (const uint32_t from : patterns) {
    for (const uint32_t to : patterns) {
      before[77] = from;
      std::vector<uint32_t> after = before;
      after[77] = to;
      after[9'999] = from;
      CodeChunk(ElementType::kFloat32, BytesOfWords(before), BytesOfWords(after));
      std::vector<uint16_t> before16(300, 0x3F80), after16(300, 0x3F80);
      before16[0] = static_cast<uint16_t>(from >> 16);
      after16[0] = static_cast<uint16_t>(to >> 16);
      CodeChunk(ElementType::kBfloat16, BytesOfWords(before16), BytesOfWords(after16));
    }
  }
}

TEST(ChunkCoding, OneOutlierTakesFewBytes) {
  std::vector<uint16_t> before(kChunkElements, 0x3D00), after = before;
  for (size_t i = 0; i < after.size(); i += 97) after[i] += i % 2 == 0 ? 1 : 2;
  const size_t without =
      CodeChunk(ElementType::kBfloat16, BytesOfWords(before), BytesOfWords(after)).payload.size();
  after[500'000] = 0xFFC1;
  const Coded with = CodeChunk(ElementType::kBfloat16, BytesOfWords(before), BytesOfWords(after));
  EXPECT_EQ(with.method, ChunkMethod::kSparse);
  EXPECT_LT(with.payload.size(), without + 20);
}

// Entropy of a binary source in bits per element.
double BinaryEntropy(double p) { return -p * std::log2(p) - (1 - p) * std::log2(1 - p); }

TEST(ChunkCoding, ComesNearTheEntropyOfRareSmallSteps) {
  for (const uint64_t rarity : {30, 100, 300, 1000}) {
    const std::vector<std::byte> before(2 * kChunkElements, std::byte{0x3D});
    std::vector<std::byte> after = before;
    const CounterRandom random(rarity, 0);
    size_t changed = 0, large = 0;
    for (size_t i = 0; i < kChunkElements; ++i) {
      const uint64_t number = random.At(i);
      if (number % rarity != 0) continue;
      const bool is_large = (number >> 32) % 10 == 0;
      after[2 * i] =
          static_cast<std::byte>(0x3D + (is_large ? 2 : 1) * ((number >> 60) % 2 ? 1 : -1));
      ++changed;
      large += is_large;
    }
    const Coded coded = CodeChunk(ElementType::kBfloat16, before, after);
    ASSERT_EQ(coded.method, ChunkMethod::kSparse);
    EXPECT_EQ(ChangedElements(coded.method, coded.payload, kChunkElements), changed);
    const auto count = static_cast<double>(changed);
    const double density = count / kChunkElements;
    const double entropy = BinaryEntropy(density) / density + 1 + BinaryEntropy(large / count);
    EXPECT_LT(static_cast<double>(8 * coded.payload.size()) / count, entropy + 0.35) << rarity;
  }
}

TEST(ChunkCoding, RefusesOtherPayloads) {
  const std::vector<std::byte> some(16, std::byte{1});
  for (const ElementType type : kAllTypes) {
    EXPECT_NE(ChunkProblem(type, ChunkMethod::kSame, some, 8), "");
    EXPECT_NE(ChunkProblem(type, ChunkMethod::kRaw, some, 7), "");
    EXPECT_NE(ChunkProblem(type, ChunkMethod::kSparse, {}, 8), "");
    EXPECT_NE(ChunkProblem(type, ChunkMethod::kSparse, std::vector<std::byte>(4), 8), "");
    EXPECT_NE(ChunkProblem(type, static_cast<ChunkMethod>(3), some, 8), "");
  }
}

// No payload that another one of the same size accepts may make the reader leave its arrays. The
// sanitizers' builds check this.
TEST(ChunkCoding, DamagedPayloadsAreRefusedOrApplied) {
  for (const ElementType type : kAllTypes) {
    const size_t width = BytesOf(type);
    const std::vector<std::byte> before = RandomBytes(600 * width, 6);
    const std::vector<std::byte> after = Nudged(before, width, 9, 5, 7);
    std::vector<std::byte> payload;
    ASSERT_EQ(AppendChunk(type, before, after, &payload), ChunkMethod::kSparse);
    for (size_t bit = 0; bit < 8 * payload.size(); ++bit) {
      std::vector<std::byte> damaged = payload;
      damaged[bit / 8] ^= std::byte{1} << (bit % 8);
      if (!ChunkProblem(type, ChunkMethod::kSparse, damaged, 600).empty()) continue;
      std::vector<std::byte> weights = before;
      ApplyChunk(type, ChunkMethod::kSparse, damaged, absl::MakeSpan(weights));
      EXPECT_NE(weights, after) << bit;
    }
    for (size_t size = 0; size < payload.size(); ++size) {
      EXPECT_NE(ChunkProblem(type, ChunkMethod::kSparse, absl::MakeSpan(payload).first(size), 600),
                "");
    }
  }
}

}  // namespace
}  // namespace sluice::follow
