// SPDX-License-Identifier: Apache-2.0
// Compares every coding of positions with a reference encoder that writes bit by bit, as
// docs/wire-format.md defines.

#include "compress/coding/position_coding.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/random.h"
#include "compress/coding/index_coding.h"
#include "compress/simd/targets.h"
#include "gtest/gtest.h"

namespace sluice::compress {
namespace {

// Writes a plane, starting at the lowest bit of the first byte.
class BitWriter {
 public:
  void Put(uint64_t value, int width) {
    for (int i = 0; i < width; ++i) {
      if (bits_ % 8 == 0) plane_.push_back(std::byte{0});
      if ((value >> i & 1) != 0) plane_.back() |= static_cast<std::byte>(1 << (bits_ % 8));
      ++bits_;
    }
  }
  void PutUnary(uint64_t zeros) {
    for (uint64_t i = 0; i < zeros; ++i) Put(0, 1);
    Put(1, 1);
  }
  uint64_t bits() const { return bits_; }
  const std::vector<std::byte>& plane() const { return plane_; }

 private:
  uint64_t bits_ = 0;
  std::vector<std::byte> plane_;
};

struct Coded {
  std::vector<std::byte> first;
  BitWriter last;
  size_t bytes() const { return first.size() + last.plane().size(); }
};

void Append(const std::vector<std::byte>& plane, Coded* coded) {
  coded->first.insert(coded->first.end(), plane.begin(), plane.end());
}

Coded WithDivisor(const std::vector<uint32_t>& gaps, int parameter, bool thirds) {
  Coded coded;
  BitWriter lows;
  for (const uint32_t gap : gaps) lows.Put(gap, parameter);
  Append(lows.plane(), &coded);
  for (size_t i = 0; thirds && i < gaps.size(); i += 5) {
    unsigned byte = 0, weight = 1;
    for (size_t j = i; j < std::min(i + 5, gaps.size()); ++j, weight *= 3) {
      byte += weight * ((gaps[j] >> parameter) % 3);
    }
    coded.first.push_back(static_cast<std::byte>(byte));
  }
  for (const uint32_t gap : gaps) coded.last.PutUnary((gap >> parameter) / (thirds ? 3 : 1));
  return coded;
}

Coded InBlocks(const std::vector<uint32_t>& gaps) {
  Coded coded;
  BitWriter parameters;
  std::vector<std::byte> lows;
  for (size_t i = 0; i < gaps.size(); i += 16) {
    const size_t end = std::min(i + 16, gaps.size());
    uint64_t sum = 0;
    for (size_t j = i; j < end; ++j) sum += gaps[j];
    const int parameter = std::min(static_cast<int>(std::bit_width(sum / 32)), 15);
    parameters.Put(static_cast<uint64_t>(parameter), 4);
    BitWriter block;
    for (size_t j = i; j < end; ++j) block.Put(gaps[j], parameter);
    lows.insert(lows.end(), block.plane().begin(), block.plane().end());
    for (size_t j = i; j < end; ++j) coded.last.PutUnary(gaps[j] >> parameter);
  }
  Append(parameters.plane(), &coded);
  Append(lows, &coded);
  return coded;
}

Coded InCodes(const std::vector<uint32_t>& gaps, int width) {
  Coded coded;
  const uint32_t escape = (1U << width) - 1;
  for (uint32_t gap : gaps) {
    for (; gap >= escape; gap -= escape) coded.last.Put(escape, width);
    coded.last.Put(gap, width);
  }
  return coded;
}

Coded Reference(int coding, const std::vector<uint32_t>& gaps) {
  if (coding == 96) return InBlocks(gaps);
  if (coding > 64) return InCodes(gaps, coding - 64);
  return WithDivisor(gaps, coding % 32, coding >= 32);
}

std::vector<int> AllCodings() {
  std::vector<int> codings;
  for (int b = 0; b <= 31; ++b) codings.push_back(b);
  for (int b = 0; b <= 29; ++b) codings.push_back(32 + b);
  for (int w = 1; w <= 16; ++w) codings.push_back(64 + w);
  codings.push_back(96);
  return codings;
}

std::vector<uint32_t> PositionCodingRandomGaps(size_t count, double density, uint64_t seed) {
  CounterRandom random(seed);
  std::vector<uint32_t> gaps(count);
  for (uint32_t& gap : gaps) {
    gap = static_cast<uint32_t>(std::log(1 - random.Uniform()) / std::log(1 - density));
  }
  return gaps;
}

std::vector<uint32_t> PositionsOf(const std::vector<uint32_t>& gaps) {
  std::vector<uint32_t> positions;
  uint32_t next = 0;
  for (const uint32_t gap : gaps) {
    positions.push_back(next + gap);
    next = positions.back() + 1;
  }
  return positions;
}

uint64_t Sum(const std::vector<uint32_t>& gaps) {
  return std::accumulate(gaps.begin(), gaps.end(), uint64_t{0});
}
size_t CountFor(const std::vector<uint32_t>& gaps) {
  return static_cast<size_t>(Sum(gaps)) + gaps.size();
}

// Reads the planes from `first` and `last`, as from a payload. Returns false if the coding is
// unknown or `first` has the wrong size.
bool Split(int coding, size_t kept, absl::Span<const std::byte> first,
           absl::Span<const std::byte> last, PositionPlanes* planes) {
  planes->coding = static_cast<uint8_t>(coding);
  planes->kept = kept;
  ByteReader reader(first);
  if (!ReadFirstPlanes(&reader, planes) || reader.remaining() != 0) return false;
  planes->last = last;
  return true;
}

std::vector<uint32_t> ReadAll(const PositionPlanes& planes) {
  std::vector<uint32_t> positions(planes.kept + PositionReader::kBatch);
  PositionReader reader(planes);
  size_t done = 0;
  while (const size_t read = reader.Read(positions.data() + done)) done += read;
  positions.resize(done);
  return positions;
}

std::vector<std::vector<uint32_t>> Cases() {
  std::vector<std::vector<uint32_t>> cases = {
      {0},
      {1},
      {254},
      {255},
      {256},
      {510},
      {100000},
      std::vector<uint32_t>(1000, 0),
      std::vector<uint32_t>(1000, 1),
      std::vector<uint32_t>(50, 4077),
      {0, 0, 0, 100000},
      {1, 4077, 1, 4077, 0, 0, 0, 0, 4077},
      // These gaps cause a word of zeros in the plane of quotients, and runs that end with a one.
      {62, 63, 64, 65, 127, 128, 129, 0, 1000}};
  for (const size_t count : {2u,  5u,  7u,  8u,  9u,   15u,  16u,  17u,  31u,  32u,
                             33u, 63u, 64u, 65u, 319u, 320u, 321u, 640u, 641u, 1283u}) {
    cases.push_back(PositionCodingRandomGaps(count, 0.05, count));
  }
  cases.push_back(PositionCodingRandomGaps(2000, 0.002, 1));
  cases.push_back(PositionCodingRandomGaps(2000, 0.5, 2));
  // These gaps have dense and sparse stretches.
  std::vector<uint32_t> mixed = PositionCodingRandomGaps(500, 0.4, 3);
  for (const uint32_t gap : PositionCodingRandomGaps(100, 0.001, 4)) mixed.push_back(gap);
  cases.push_back(mixed);
  return cases;
}

IndexLayout PlanFor(int coding, const Coded& coded) {
  return {.coding = static_cast<uint8_t>(coding),
          .first_bytes = coded.first.size(),
          .last_bits = coded.last.bits()};
}

class PositionCoding : public ::testing::TestWithParam<std::string> {
 protected:
  PositionCoding() { ForceSimdTarget(GetParam()); }
  ~PositionCoding() override { ForceSimdTarget(""); }
};

TEST_P(PositionCoding, EveryCodingWritesItsBytesAndReadsBack) {
  for (const std::vector<uint32_t>& gaps : Cases()) {
    for (const int coding : AllCodings()) {
      const Coded wanted = Reference(coding, gaps);
      const IndexLayout plan = PlanFor(coding, wanted);
      std::vector<std::byte> first, last;
      AppendFirstPlanes(plan, gaps, &first);
      AppendLastPlane(plan, gaps, &last);
      ASSERT_EQ(first, wanted.first) << coding << " " << gaps.size();
      ASSERT_EQ(last, wanted.last.plane()) << coding << " " << gaps.size();
      PositionPlanes planes;
      ASSERT_TRUE(Split(coding, gaps.size(), first, last, &planes));
      const size_t count = CountFor(gaps);
      EXPECT_EQ(PositionProblem(planes, count), "") << coding << " " << gaps.size();
      EXPECT_NE(PositionProblem(planes, count - 1), "") << coding << " " << gaps.size();
      EXPECT_EQ(ReadAll(planes), PositionsOf(gaps)) << coding << " " << gaps.size();
    }
  }
}

TEST_P(PositionCoding, TheSmallestOfWhatWasAskedForIsTaken) {
  const auto within = [](IndexMode mode, int coding) {
    switch (mode) {
      case IndexMode::kAuto:
        return true;
      case IndexMode::kRice:
        return coding < 64 || coding == 96;
      case IndexMode::kPacked:
        return coding > 64 && coding < 96;
      case IndexMode::kBytes:
        return coding == 72;
      case IndexMode::kBitmap:
        return coding == 0;
    }
    return false;
  };
  for (const std::vector<uint32_t>& gaps : Cases()) {
    for (const IndexMode mode : {IndexMode::kAuto, IndexMode::kRice, IndexMode::kPacked,
                                 IndexMode::kBytes, IndexMode::kBitmap}) {
      const IndexLayout plan = PlanPositions(mode, gaps, Sum(gaps));
      const Coded wanted = Reference(plan.coding, gaps);
      ASSERT_TRUE(within(mode, plan.coding)) << int{plan.coding};
      EXPECT_EQ(plan.first_bytes, wanted.first.size());
      EXPECT_EQ(plan.last_bits, wanted.last.bits()) << int{plan.coding} << " " << gaps.size();
      EXPECT_LE(wanted.bytes(), MaxPositionBytes(mode, CountFor(gaps)));
      size_t least = std::numeric_limits<size_t>::max();
      for (const int coding : AllCodings()) {
        if (within(mode, coding)) least = std::min(least, Reference(coding, gaps).bytes());
      }
      // The encoder does not try all parameters, but the omitted ones must never be much better.
      EXPECT_LE(static_cast<double>(wanted.bytes()), 1.08 * static_cast<double>(least) + 2)
          << int{plan.coding} << " " << gaps.size();
    }
  }
}

TEST_P(PositionCoding, PlanesThatLieAreRefusedOrReadInside) {
  size_t refused = 0, accepted = 0;
  const std::vector<uint32_t> gaps = PositionCodingRandomGaps(45, 0.03, 7);
  const size_t count = CountFor(gaps) + 3;
  for (const int coding : AllCodings()) {
    const Coded good = Reference(coding, gaps);
    const std::vector<std::byte>& last = good.last.plane();
    const auto check = [&](size_t kept, absl::Span<const std::byte> a,
                           absl::Span<const std::byte> b) {
      PositionPlanes planes;
      if (!Split(coding, kept, a, b, &planes) || !PositionProblem(planes, count).empty()) {
        ++refused;
        return;
      }
      ++accepted;
      const std::vector<uint32_t> positions = ReadAll(planes);
      ASSERT_EQ(positions.size(), kept);
      for (size_t i = 0; i < positions.size(); ++i) {
        ASSERT_LT(positions[i], count);
        ASSERT_TRUE(i == 0 || positions[i - 1] < positions[i]);
      }
      // In each coding, positions must have only one encoding. Coding 96 is an exception, because
      // its blocks may choose their parameters.
      if (coding == 96) return;
      std::vector<uint32_t> read = positions;
      for (size_t i = positions.size(); i-- > 1;) read[i] -= positions[i - 1] + 1;
      EXPECT_EQ(Reference(coding, read).first, std::vector<std::byte>(a.begin(), a.end()));
      EXPECT_EQ(Reference(coding, read).last.plane(), std::vector<std::byte>(b.begin(), b.end()));
    };
    for (size_t bit = 0; bit < (good.first.size() + last.size()) * 8; ++bit) {
      std::vector<std::byte> a = good.first, b = last;
      std::byte& byte = bit / 8 < a.size() ? a[bit / 8] : b[bit / 8 - a.size()];
      byte ^= static_cast<std::byte>(1 << (bit % 8));
      check(gaps.size(), a, b);
    }
    for (size_t size = 0; size < last.size(); ++size) {
      check(gaps.size(), good.first, absl::MakeConstSpan(last).first(size));
    }
    for (const size_t kept : {size_t{0}, gaps.size() - 1, gaps.size() + 1, size_t{1} << 31}) {
      check(kept, good.first, last);
    }
    std::vector<std::byte> longer = last;
    longer.push_back(std::byte{0});
    check(gaps.size(), good.first, longer);
  }
  EXPECT_GT(refused, 1000u);
  EXPECT_GT(accepted, 1000u);
}

INSTANTIATE_TEST_SUITE_P(Targets, PositionCoding, ::testing::ValuesIn(SimdTargets()),
                         [](const auto& param) { return param.param; });

TEST(PositionPlanes, UnknownCodingsAreRefused) {
  const std::vector<int> known = AllCodings();
  for (int coding = 0; coding < 256; ++coding) {
    PositionPlanes planes;
    const bool taken = Split(coding, 0, {}, {}, &planes);
    EXPECT_EQ(taken, std::find(known.begin(), known.end(), coding) != known.end()) << coding;
    // Without positions, only coding 0 must be accepted, because the encoding must be unique.
    EXPECT_EQ(taken && PositionProblem(planes, 10).empty(), coding == 0) << coding;
  }
}

TEST(PositionPlanes, WhatNoEncoderWritesIsRefused) {
  const auto problem = [](int coding, size_t kept, const std::vector<int>& first,
                          const std::vector<int>& last) {
    std::vector<std::byte> a, b;
    for (const int byte : first) a.push_back(static_cast<std::byte>(byte));
    for (const int byte : last) b.push_back(static_cast<std::byte>(byte));
    PositionPlanes planes;
    if (!Split(coding, kept, a, b, &planes)) return std::string("too short");
    return std::string(PositionProblem(planes, 1000));
  };
  EXPECT_EQ(problem(1, 2, {0b01}, {0b11}), "");
  // The plane contains the low bit of a third number.
  EXPECT_NE(problem(1, 2, {0b101}, {0b11}), "");
  EXPECT_EQ(problem(32, 2, {5}, {0b11}), "");
  EXPECT_NE(problem(32, 2, {9}, {0b11}), "");       // The plane contains a third remainder.
  EXPECT_NE(problem(32, 5, {243}, {0b11111}), "");  // The byte does not contain five remainders.
  // The first gap has the codes 3 (which continues) and 1; the second gap is 0.
  EXPECT_EQ(problem(66, 2, {}, {0b0111}), "");
  // An incomplete code follows the gap 1.
  EXPECT_NE(problem(66, 1, {}, {0b1101}), "");
  // With three positions, bits that were padding above are the code of the third gap.
  EXPECT_EQ(problem(66, 3, {}, {0b0111}), "");
  EXPECT_EQ(problem(72, 2, {}, {255, 0, 254}), "");
  EXPECT_NE(problem(72, 2, {}, {255, 0, 255}), "");
  EXPECT_NE(problem(72, 2, {}, {255, 0, 254, 0}), "");
  EXPECT_EQ(problem(96, 1, {2, 1}, {0b1}), "");
  // There is a parameter without a block.
  EXPECT_NE(problem(96, 1, {0x12, 1}, {0b1}), "");
  // The plane contains the low bit of a third number.
  EXPECT_NE(problem(96, 1, {2, 5}, {0b1}), "");
  EXPECT_NE(problem(31, 1, {0, 0, 0, 0}, {0, 0, 0, 2}), "");  // 2^56 would wrap around in 32 bits.
  EXPECT_NE(problem(61, 1, {0, 0, 0, 0, 0}, {0, 0, 0, 2}), "");
  EXPECT_NE(problem(96, 1, {15, 0, 0}, {0, 0, 0, 2}), "");
}

// Returns the gaps between kept elements if each element is kept with probability p.
std::vector<uint32_t> Independent(size_t count, double p, uint64_t seed) {
  CounterRandom random(seed);
  std::vector<uint32_t> gaps;
  uint32_t gap = 0;
  for (size_t i = 0; i < count; ++i) {
    if (random.Uniform() < p) {
      gaps.push_back(gap);
      gap = 0;
    } else {
      ++gap;
    }
  }
  return gaps;
}

double EntropyBits(size_t count, size_t kept) {
  const double p = static_cast<double>(kept) / static_cast<double>(count);
  return static_cast<double>(count) * (-p * std::log2(p) - (1 - p) * std::log2(1 - p));
}

// Returns the number of bits of the smallest coding, including the number of positions and the byte
// that names the coding.
double CodedBits(IndexMode mode, const std::vector<uint32_t>& gaps) {
  const IndexLayout plan = PlanPositions(mode, gaps, Sum(gaps));
  return static_cast<double>(8 * (5 + plan.first_bytes + BytesFor(plan.last_bits)));
}

TEST(IndexBits, AreWithinTwoPercentOfTheEntropy) {
  for (double p = 1e-4; p < 0.2; p *= 1.07) {
    // The chunk has at least 64 Ki elements and, on average, at least 2,000
    // positions.
    const auto count = static_cast<size_t>(std::max(65536.0, 2000 / p));
    const std::vector<uint32_t> gaps = Independent(count, p, static_cast<uint64_t>(1 / p));
    const double entropy = EntropyBits(count, gaps.size());
    const double bits = CodedBits(IndexMode::kAuto, gaps);
    EXPECT_LT(bits, entropy * (p <= 0.15 ? 1.02 : 1.025)) << p;
    // No coding can take fewer bits than the entropy, except by chance.
    EXPECT_GT(bits, entropy * 0.998) << p;
  }
}

TEST(IndexBits, ClustersCostLess) {
  // The rows of 512 elements have different densities, as in a layer whose neurons differ in
  // activity.
  std::vector<uint32_t> gaps;
  CounterRandom random(5);
  uint32_t gap = 0;
  const size_t count = 65536;
  double entropy = 0;
  size_t kept = 0;
  for (size_t row = 0; row < count / 512; ++row) {
    const double p = row % 4 == 0 ? 0.3 : 0.004;
    entropy += 512 * (-p * std::log2(p) - (1 - p) * std::log2(1 - p));
    for (size_t i = 0; i < 512; ++i, ++gap) {
      if (random.Uniform() >= p) continue;
      gaps.push_back(gap);
      gap = static_cast<uint32_t>(-1);
      ++kept;
    }
  }
  const double bits = CodedBits(IndexMode::kAuto, gaps);
  EXPECT_LT(bits, 0.8 * EntropyBits(count, kept));
  EXPECT_GT(bits, 0.99 * entropy);
}

}  // namespace
}  // namespace sluice::compress
