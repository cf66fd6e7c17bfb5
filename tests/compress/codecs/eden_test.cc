// SPDX-License-Identifier: Apache-2.0
// Compares codec `eden` with a plain reference, and its errors with the theoretical ones.
#include "compress/codecs/eden.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/float_bits.h"
#include "compress/simd/rotation.h"
#include "compress/simd/targets.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/test_data.h"

namespace sluice::compress {
namespace {

using ::testing::HasSubstr;

using EdenBytes = std::vector<std::byte>;

std::unique_ptr<Codec> EdenOf(int bits) { return CodecFor(absl::StrCat("eden:", bits)); }

EdenBytes EncodeEden(int bits, const std::vector<float>& gradient, uint64_t key,
                     absl::Span<float> residual = {}) {
  EdenBytes frame;
  EXPECT_TRUE(EncodeFrame(*EdenOf(bits),
                          {.gradient = gradient, .residual = residual, .own_key = key}, &frame)
                  .ok());
  return frame;
}

std::vector<float> Gaussian(size_t count, uint64_t seed) {
  CounterRandom random(seed);
  std::vector<float> values(count);
  for (float& x : values) {
    x = static_cast<float>(std::sqrt(-2 * std::log(1 - random.Uniform())) *
                           std::cos(6.283185307179586 * random.Uniform()));
  }
  return values;
}

double EdenEnergy(absl::Span<const float> values) {
  double energy = 0;
  for (const float x : values) energy += double{x} * x;
  return energy;
}

// In the transform, the sign of element j of row i is the parity of the common bits of i and j.
std::vector<double> ReferenceTransform(const std::vector<double>& x) {
  std::vector<double> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    for (size_t j = 0; j < x.size(); ++j) y[i] += std::popcount(i & j) % 2 == 0 ? x[j] : -x[j];
  }
  return y;
}

class EdenOnTarget : public ::testing::TestWithParam<std::string> {
 protected:
  EdenOnTarget() { ForceSimdTarget(GetParam()); }
  ~EdenOnTarget() override { ForceSimdTarget(""); }
};

TEST_P(EdenOnTarget, TransformIsThatOfWalshAndHadamard) {
  for (size_t size = kRotatedMin; size <= kRotatedMax; size *= 2) {
    CounterRandom random(size);
    std::vector<float> x(size);
    for (float& value : x) value = static_cast<float>(random.Below(2001)) - 1000;
    std::vector<float> y = x;
    WalshHadamard(y.data(), size);
    // The inputs are integers, so the result must be exact.
    const std::vector<double> wanted = ReferenceTransform({x.begin(), x.end()});
    for (size_t i = 0; i < size; ++i) ASSERT_EQ(y[i], wanted[i]) << i << " of " << size;
    WalshHadamard(y.data(), size);
    for (size_t i = 0; i < size; ++i) ASSERT_EQ(y[i], x[i] * static_cast<float>(size));
  }
}

// Decodes as docs/wire-format.md defines, in doubles.
std::vector<double> ReferenceDecode(absl::Span<const std::byte> payload, size_t count) {
  uint64_t key;
  std::memcpy(&key, payload.data(), 8);
  const size_t bits = static_cast<size_t>(payload[8]) & 15;
  const bool twice = static_cast<size_t>(payload[8]) >> 4 == 2;
  std::vector<size_t> sizes;
  for (size_t left = count; left >= 64; left -= sizes.back()) {
    sizes.push_back(std::min<size_t>(1024, std::bit_floor(left)));
  }
  const std::byte* planes = payload.data() + 9 + 3 * sizes.size();
  std::vector<double> values;
  for (size_t block = 0; block < sizes.size(); ++block) {
    const size_t size = sizes[block], at = values.size();
    uint32_t scale_bits = 0;
    std::memcpy(&scale_bits, payload.data() + 9 + 3 * block, 3);
    const double scale = std::bit_cast<float>(scale_bits << 8);
    const auto bit = [&](size_t plane, size_t i) {
      return static_cast<int>(planes[plane * size / 8 + i / 8]) >> (i % 8) & 1;
    };
    std::vector<double> q(size);
    for (size_t i = 0; i < size; ++i) {
      uint32_t index = 0;
      for (size_t plane = 1; plane < bits; ++plane) index |= uint32_t(bit(plane, i)) << (plane - 1);
      const double magnitude = double{RotatedMagnitude(static_cast<int>(bits), index)};
      q[i] = bit(0, i) != 0 ? -magnitude : magnitude;
    }
    const auto negated = [&](size_t i, uint64_t rotation) {
      const uint64_t word = (rotation << 32) + (at + i) / 64 + 1;
      return (MixBits(key + 0x9E3779B97F4A7C15u * word) >> ((at + i) % 64) & 1) != 0;
    };
    std::vector<double> x = ReferenceTransform(q);
    if (twice) {
      for (size_t i = 0; i < size; ++i) x[i] = negated(i, 1) ? -x[i] : x[i];
      x = ReferenceTransform(x);
    }
    for (size_t i = 0; i < size; ++i) {
      values.push_back(negated(i, 0) ? -x[i] * scale : x[i] * scale);
    }
    planes += bits * size / 8;
  }
  while (values.size() < count) {
    float value;
    std::memcpy(&value, planes, 4);
    values.push_back(value);
    planes += 4;
  }
  return values;
}

TEST_P(EdenOnTarget, DecodesAsTheReferenceDoes) {
  for (int bits = 1; bits <= 4; ++bits) {
    for (const size_t count :
         {0u, 1u, 63u, 64u, 65u, 127u, 128u, 960u, 1023u, 1024u, 1100u, 3000u}) {
      std::vector<float> residual(count);
      const EdenBytes once =
          EncodeEden(bits, HeavyTailed(count, count), 99 + count, absl::MakeSpan(residual));
      const EdenBytes twice = EncodeEden(bits, HeavyTailed(count, count), 99 + count);
      const std::vector<float> one = Decode(once, count), two = Decode(twice, count);
      const std::vector<double> wanted_one = ReferenceDecode(FramePayload(once), count);
      const std::vector<double> wanted_two = ReferenceDecode(FramePayload(twice), count);
      ASSERT_EQ(one.size(), count);
      ASSERT_EQ(two.size(), count);
      for (size_t i = 0; i < count; ++i) {
        // After one rotation, the sum is exact, and only the product is rounded.
        ASSERT_EQ(one[i], static_cast<float>(wanted_one[i])) << i << " of " << count;
        ASSERT_NEAR(two[i], wanted_two[i], 1e-6) << i << " of " << count;
      }
    }
  }
}

TEST_P(EdenOnTarget, PicksTheNearestMagnitudes) {
  for (int bits = 1; bits <= 4; ++bits) {
    const std::vector<float> y = Gaussian(1024, 5);
    std::vector<uint8_t> planes(128 * static_cast<size_t>(bits));
    const float unit = 1.0f / 256;
    const RotatedSums sums = QuantizeRotated(y.data(), unit, bits, planes.data(), 1024);
    std::vector<float> q(1024);
    ExpandRotated(planes.data(), bits, q.data(), 1024);
    double product = 0, energy = 0;
    for (size_t i = 0; i < y.size(); ++i) {
      EXPECT_EQ(q[i] < 0, y[i] < 0) << i;
      for (uint32_t index = 0; index < RotatedMagnitudesOf(bits); ++index) {
        const float other = RotatedMagnitude(bits, index);
        EXPECT_LE(std::fabs(std::fabs(y[i]) - std::fabs(q[i]) * unit),
                  std::fabs(std::fabs(y[i]) - other * unit) + 1e-6f);
      }
      product += std::fabs(double{y[i]} * q[i]);
      energy += double{q[i]} * q[i];
    }
    EXPECT_NEAR(sums.product / product, 1, 1e-5);
    EXPECT_NEAR(sums.energy / energy, 1, 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, EdenOnTarget, ::testing::ValuesIn(SimdTargets()),
                         [](const auto& param) { return param.param; });

double ErrorOf(int bits, const std::vector<float>& x, bool feedback) {
  double error = 0;
  constexpr int kDraws = 20;
  for (uint64_t draw = 0; draw < kDraws; ++draw) {
    std::vector<float> residual(x.size());
    const EdenBytes frame =
        EncodeEden(bits, x, draw, feedback ? absl::MakeSpan(residual) : absl::Span<float>());
    const std::vector<float> decoded = Decode(frame, x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      error += (double{x[i]} - decoded[i]) * (double{x[i]} - decoded[i]);
    }
  }
  return error / kDraws / EdenEnergy(x);
}

TEST(Eden, ErrorsAreThoseOfTheoryWhateverTheInput) {
  const double unbiased[] = {0.571, 0.1333, 0.0358, 0.0096};
  const double least[] = {0.3634, 0.1175, 0.03454, 0.0095};
  std::vector<float> ramp(16384);
  for (size_t i = 0; i < ramp.size(); ++i) ramp[i] = static_cast<float>(i);
  for (const std::vector<float>& x : {Gaussian(16384, 1), ramp}) {
    for (int bits = 1; bits <= 4; ++bits) {
      EXPECT_NEAR(ErrorOf(bits, x, false) / unbiased[bits - 1], 1, 0.03) << bits;
      EXPECT_NEAR(ErrorOf(bits, x, true) / least[bits - 1], 1, 0.03) << bits;
    }
  }
}

// An input has only two non-zero elements. Two rotations must deliver both without bias. With a
// single rotation there would be only two magnitudes, a one-bit code would always keep the same
// one, and the smaller element would never arrive.
TEST(Eden, FewElementsArriveUnbiased) {
  std::vector<float> x(1024);
  x[100] = 1;
  x[700] = 0.3f;
  for (int bits = 1; bits <= 4; ++bits) {
    constexpr int kDraws = 4000;
    double large = 0, small = 0, squares = 0;
    for (uint64_t draw = 0; draw < kDraws; ++draw) {
      const std::vector<float> decoded = Decode(EncodeEden(bits, x, 1000 + draw), 1024);
      large += decoded[100] / kDraws;
      small += decoded[700] / kDraws;
      squares += (decoded[700] - 0.3) * (decoded[700] - 0.3) / kDraws;
    }
    const double deviation = std::sqrt(squares / kDraws);
    EXPECT_NEAR(small, 0.3, 5 * deviation) << bits;
    EXPECT_NEAR(large, 1, 5 * deviation + 0.002) << bits;
  }
}

TEST(Eden, ErrorsOfHeavyTailsAreNear) {
  const std::vector<float> x = HeavyTailed(16384, 2);
  for (int bits = 1; bits <= 2; ++bits) {
    RecordProperty(absl::StrCat("bits", bits), absl::StrCat(ErrorOf(bits, x, false)));
    EXPECT_NEAR(ErrorOf(bits, x, false) / (bits == 1 ? 0.571 : 0.1333), 1, 0.1) << bits;
    EXPECT_NEAR(ErrorOf(bits, x, true) / (bits == 1 ? 0.3634 : 0.1175), 1, 0.1) << bits;
  }
}

TEST(Eden, ResidualIsWhatIsNotDecodedBitForBit) {
  for (int bits = 1; bits <= 4; ++bits) {
    const std::vector<float> gradient = HeavyTailed(5000, 3);
    std::vector<float> residual = HeavyTailed(5000, 4), acc(5000);
    for (size_t i = 0; i < acc.size(); ++i) acc[i] = gradient[i] + residual[i];
    const std::vector<float> decoded =
        Decode(EncodeEden(bits, gradient, 7, absl::MakeSpan(residual)), 5000);
    for (size_t i = 0; i < acc.size(); ++i) {
      const float wanted = acc[i] - decoded[i];
      EXPECT_EQ(std::memcmp(&wanted, &residual[i], sizeof(wanted)), 0) << i;
    }
  }
}

TEST(Eden, SizesAreAsDocumented) {
  EXPECT_EQ(EncodeEden(2, HeavyTailed(65536, 1), 0).size(), kFrameHeaderSize + 9 + 3 * 64 + 16384);
  // Blocks of 1024, 512, 256 and 64 elements are rotated; the last 63 elements are not.
  EXPECT_EQ(EncodeEden(1, HeavyTailed(1919, 1), 0).size(),
            kFrameHeaderSize + 9 + 3 * 4 + 232 + 252);
}

TEST(Eden, RefusesWhatNoEncoderWrites) {
  const EdenBytes frame = EncodeEden(2, HeavyTailed(130, 1), 5);
  const EdenBytes good(frame.begin() + kFrameHeaderSize, frame.end());
  ASSERT_TRUE(ValidateRotated(good, 130).ok());
  const auto message = [&](size_t at, std::vector<int> bytes) {
    EdenBytes payload = good;
    for (size_t i = 0; i < bytes.size(); ++i) payload[at + i] = static_cast<std::byte>(bytes[i]);
    return std::string(ValidateRotated(payload, 130).message());
  };
  EXPECT_THAT(message(8, {0x20}), HasSubstr("codes of 0 bits"));
  EXPECT_THAT(message(8, {0x25}), HasSubstr("codes of 5 bits"));
  EXPECT_THAT(message(8, {0x02}), HasSubstr("0 rotations"));
  EXPECT_THAT(message(8, {0x32}), HasSubstr("3 rotations"));
  EXPECT_THAT(message(8, {0x23}), HasSubstr("should have"));
  EXPECT_THAT(message(9, {0, 0, 0}), HasSubstr("codes without a scale"));
  EXPECT_THAT(message(9, {0, 0, 0x80}), HasSubstr("out of range"));
  EXPECT_THAT(message(9, {1, 0, 0}), HasSubstr("out of range"));
  EXPECT_THAT(message(9, {0xFF, 0xFF, 0x7F}), HasSubstr("out of range"));
  EXPECT_THAT(message(good.size() - 4, {0, 0, 0x80, 0x7F}), HasSubstr("element 129 is not finite"));
  EXPECT_FALSE(ValidateRotated({}, 0).ok());
  EXPECT_FALSE(ParseCodecSpec("eden:5").ok());
  EXPECT_FALSE(ParseCodecSpec("eden:1.5").ok());
}

}  // namespace
}  // namespace sluice::compress
