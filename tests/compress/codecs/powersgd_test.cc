// SPDX-License-Identifier: Apache-2.0
// Compares codec `powersgd` with plain loops and with the best approximation of the same rank.
#include "compress/codecs/powersgd.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/float_bits.h"
#include "compress/simd/low_rank.h"
#include "compress/simd/targets.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/test_data.h"

namespace sluice::compress {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using PowerSgdBytes = std::vector<std::byte>;

// One sender of a single matrix.
class Sender {
 public:
  Sender(size_t rank, size_t rows, size_t columns)
      : rows_(static_cast<uint32_t>(rows)),
        count_(rows * columns),
        codec_(CodecFor(absl::StrCat("powersgd:", rank))),
        state_(codec_->StateSize(count_, rows_)) {
    codec_->InitState(count_, rows_, 77, absl::MakeSpan(state_));
  }

  PowerSgdBytes Encode(const std::vector<float>& gradient, absl::Span<float> residual = {}) {
    PowerSgdBytes frame;
    EXPECT_TRUE(EncodeFrame(*codec_,
                            {.gradient = gradient,
                             .residual = residual,
                             .shared_key = ++step_,
                             .rows = rows_,
                             .state = absl::MakeSpan(state_)},
                            &frame)
                    .ok());
    EXPECT_TRUE(ValidateFrame(frame, count_).ok()) << ValidateFrame(frame, count_);
    EXPECT_EQ(frame.size(), MaxFrameSize(*codec_, count_, rows_));
    for (const float x : state_) EXPECT_TRUE(std::isfinite(x));
    return frame;
  }

  // Encodes x without a residual and returns |x - decoded|^2 / |x|^2.
  double Error(const std::vector<float>& x) {
    const std::vector<float> decoded = Decode(Encode(x), x.size());
    double error = 0, energy = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      error += (double{x[i]} - decoded[i]) * (double{x[i]} - decoded[i]);
      energy += double{x[i]} * x[i];
    }
    return error / energy;
  }

  const std::vector<float>& state() const { return state_; }

 private:
  const uint32_t rows_;
  const size_t count_;
  const std::unique_ptr<Codec> codec_;
  std::vector<float> state_;
  uint64_t step_ = 0;
};

// Returns a 64 x 128 matrix with the given singular values. Its singular vectors are rows of a
// Hadamard matrix.
std::vector<float> WithSingularValues(const std::vector<double>& values, size_t shift = 0) {
  const auto sign = [](size_t a, size_t b) { return std::popcount(a & b) % 2 == 0 ? 1.0 : -1.0; };
  std::vector<float> matrix(64 * 128);
  for (size_t i = 0; i < 64; ++i) {
    for (size_t j = 0; j < 128; ++j) {
      double sum = 0;
      for (size_t k = 0; k < values.size(); ++k) {
        sum += values[k] * sign(i, k + 1 + shift) * sign(j, 3 * k + 2 + shift);
      }
      matrix[i * 128 + j] = static_cast<float>(sum / std::sqrt(64.0 * 128.0));
    }
  }
  return matrix;
}

class LowRankOnTarget : public ::testing::TestWithParam<std::string> {
 protected:
  LowRankOnTarget() { ForceSimdTarget(GetParam()); }
  ~LowRankOnTarget() override { ForceSimdTarget(""); }
};

TEST_P(LowRankOnTarget, ProductsAreThoseOfPlainLoops) {
  for (const size_t rows : {1u, 2u, 3u, 4u, 7u, 20u}) {
    for (const size_t columns : {1u, 15u, 16u, 17u, 31u, 64u, 519u, 1100u}) {
      for (const size_t rank : {1u, 2u, 4u, 5u, 9u}) {
        const std::vector<float> m = HeavyTailed(rows * columns, rows + columns, 1.0f);
        const std::vector<float> q = HeavyTailed(rank * columns, 3, 1.0f);
        const std::vector<float> p = HeavyTailed(rank * rows, 4, 1.0f);
        std::vector<float> by_columns(rank * rows, -1.0f), by_rows(rank * columns, -1.0f);
        MultiplyByColumns({m.data(), rows, columns, 0.5f}, q.data(), rank, by_columns.data());
        MultiplyByRows({m.data(), rows, columns, 0.5f}, p.data(), rank, by_rows.data());
        for (size_t k = 0; k < rank; ++k) {
          for (size_t i = 0; i < rows; ++i) {
            float lanes[16] = {};
            for (size_t j = 0; j < columns; ++j) {
              lanes[j % 16] += m[i * columns + j] * 0.5f * q[k * columns + j];
            }
            for (size_t half = 8; half > 0; half /= 2) {
              for (size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
            }
            ASSERT_EQ(by_columns[k * rows + i], lanes[0]) << rows << "x" << columns;
          }
          for (size_t j = 0; j < columns; ++j) {
            float sum = 0;
            for (size_t i = 0; i < rows; ++i) sum += m[i * columns + j] * 0.5f * p[k * rows + i];
            ASSERT_EQ(by_rows[k * columns + j], sum) << rows << "x" << columns;
          }
        }
      }
    }
  }
}

TEST_P(LowRankOnTarget, DecodesToTheProductOfItsFactors) {
  for (const auto& [rank, rows, columns] : {std::tuple<size_t, size_t, size_t>{1, 5, 100},
                                            {4, 30, 300},
                                            {7, 100, 57},
                                            {32, 200, 600}}) {
    const std::vector<float> x = HeavyTailed(rows * columns, 5);
    const PowerSgdBytes frame = Sender(rank, rows, columns).Encode(x);
    ASSERT_EQ(frame.size(), kFrameHeaderSize + 5 + 2 * rank * (rows + columns));
    const std::byte* factors = frame.data() + kFrameHeaderSize + 5;
    const auto factor = [&](size_t i) {
      uint16_t code;
      std::memcpy(&code, factors + 2 * i, 2);
      return FromBfloat(code);
    };
    const std::vector<float> decoded = Decode(frame, x.size());
    for (size_t i = 0; i < rows; ++i) {
      for (size_t j = 0; j < columns; ++j) {
        float sum = factor(i) * factor(rank * rows + j);
        for (size_t k = 1; k < rank; ++k) {
          sum += factor(k * rows + i) * factor(rank * rows + k * columns + j);
        }
        ASSERT_EQ(decoded[i * columns + j], sum) << i << ", " << j;
      }
    }
  }
}

TEST_P(LowRankOnTarget, ResidualIsWhatIsNotDecodedBitForBit) {
  const size_t rows = 33, columns = 301;
  Sender sender(3, rows, columns);
  std::vector<float> residual(rows * columns);
  for (uint64_t step = 0; step < 5; ++step) {
    const std::vector<float> gradient = HeavyTailed(rows * columns, step);
    std::vector<float> acc(rows * columns);
    for (size_t i = 0; i < acc.size(); ++i) acc[i] = gradient[i] + residual[i];
    const std::vector<float> decoded =
        Decode(sender.Encode(gradient, absl::MakeSpan(residual)), acc.size());
    for (size_t i = 0; i < acc.size(); ++i) {
      const float wanted = acc[i] - decoded[i];
      ASSERT_EQ(std::memcmp(&wanted, &residual[i], sizeof(wanted)), 0) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, LowRankOnTarget, ::testing::ValuesIn(SimdTargets()),
                         [](const auto& param) { return param.param; });

// A matrix whose rank equals the codec's must be decoded with rounding errors only. Both factors
// are rounded to 8 bits, which causes an error of up to 2^-9 in each. The expected squared error is
// 2 x (2^-9)^2 times about 1/3 to 1/2.
TEST(PowerSgd, MatricesOfItsRankArriveButForRounding) {
  for (const size_t rank : {1u, 2u, 5u}) {
    std::vector<double> values;
    for (size_t k = 0; k < rank; ++k) values.push_back(1.0 + static_cast<double>(k));
    const double error = Sender(rank, 64, 128).Error(WithSingularValues(values));
    EXPECT_GT(error, 1e-8) << rank;
    EXPECT_LT(error, 1e-5) << rank;
  }
}

// If the matrix is constant, the iterations must converge to the largest singular values, which is
// the best possible result.
TEST(PowerSgd, WarmStartFindsTheBestFactors) {
  std::vector<double> values;
  double all = 0, best = 0;
  for (size_t k = 0; k < 20; ++k) {
    values.push_back(std::pow(0.7, static_cast<double>(k)));
    all += values[k] * values[k];
    if (k >= 3) best += values[k] * values[k];
  }
  Sender sender(3, 64, 128);
  const std::vector<float> x = WithSingularValues(values);
  const double first = sender.Error(x);
  for (int step = 0; step < 20; ++step) sender.Error(x);
  const double last = sender.Error(x);
  EXPECT_GT(first, 1.05 * best / all) << "one iteration cannot find the best factors";
  EXPECT_LT(first, 4 * best / all);
  EXPECT_GT(last, 0.9999 * best / all);
  EXPECT_LT(last, 1.01 * best / all);
}

TEST(PowerSgd, ColumnsThatFoundNothingLookElsewhere) {
  Sender sender(4, 64, 128);
  // A matrix of rank 1 leaves three columns without a component.
  for (int step = 0; step < 3; ++step) EXPECT_LT(sender.Error(WithSingularValues({2.0})), 1e-5);
  // A matrix of zeros must not change the state.
  const std::vector<float> before = sender.state();
  EXPECT_EQ(Decode(sender.Encode(std::vector<float>(64 * 128)), 64 * 128),
            std::vector<float>(64 * 128));
  EXPECT_EQ(sender.state(), before);
  // All directions of this matrix are new. The first column of Q has no component in them, but the
  // three random columns do.
  const std::vector<float> other = WithSingularValues({4, 3, 2, 1}, 20);
  EXPECT_LT(sender.Error(other), 0.3);
  sender.Error(other);
  EXPECT_LT(sender.Error(other), 1e-4);
}

TEST(PowerSgd, AStateOfZerosIsAsGoodAsAnother) {
  const std::unique_ptr<Codec> codec = CodecFor("powersgd:2");
  const std::vector<float> x = WithSingularValues({2, 1});
  std::vector<float> state(codec->StateSize(x.size(), 64));
  PowerSgdBytes frame;
  ASSERT_TRUE(
      EncodeFrame(*codec, {.gradient = x, .rows = 64, .state = absl::MakeSpan(state)}, &frame)
          .ok());
  // In the first step, random columns replace the columns of zeros, so the resulting columns are
  // independent. The second step must then represent the whole matrix.
  frame.clear();
  ASSERT_TRUE(
      EncodeFrame(*codec, {.gradient = x, .rows = 64, .state = absl::MakeSpan(state)}, &frame)
          .ok());
  const std::vector<float> decoded = Decode(frame, x.size());
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(decoded[i], x[i], 1e-3) << i;
}

TEST(PowerSgd, LargestAndSmallestNumbers) {
  constexpr float kMax = std::numeric_limits<float>::max();
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  for (const float value : {kMax, -kMax, 1e30f, kTiny, 1e-38f}) {
    Sender sender(2, 64, 128);
    std::vector<float> x(64 * 128, value), residual(x.size());
    x[5] = -value;
    const std::vector<float> decoded = Decode(sender.Encode(x, absl::MakeSpan(residual)), x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_TRUE(std::isfinite(decoded[i])) << value;
      ASSERT_EQ(residual[i], x[i] - decoded[i]) << value;
    }
    if (value == 1e30f) {
      EXPECT_NEAR(decoded[6] / value, 1, 0.02);
    }
  }
}

TEST(PowerSgd, WhatIsNoMatrixGoesAsHalves) {
  const auto size = [](size_t rank, size_t count, uint32_t rows) {
    const std::unique_ptr<Codec> codec = CodecFor(absl::StrCat("powersgd:", rank));
    const std::vector<float> x = HeavyTailed(count, 1);
    std::vector<float> state(codec->StateSize(count, rows));
    PowerSgdBytes frame;
    EXPECT_TRUE(
        EncodeFrame(*codec, {.gradient = x, .rows = rows, .state = absl::MakeSpan(state)}, &frame)
            .ok());
    EXPECT_TRUE(ValidateFrame(frame, count).ok());
    EXPECT_EQ(frame.size(), MaxFrameSize(*codec, count, rows));
    EXPECT_LE(state.size(), rank * count);
    return frame.size() - kFrameHeaderSize;
  };
  EXPECT_EQ(size(4, 1000, 0), 2001u);
  EXPECT_EQ(size(4, 0, 0), 1u);
  EXPECT_EQ(size(4, 1001, 10), 2003u) << "1001 elements cannot be divided into 10 rows";
  // Factors are used up to the limit 2 r (m + n) = m n.
  EXPECT_EQ(size(4, 256, 16), 5u + 2 * 4 * 32);
  EXPECT_EQ(size(5, 256, 16), 513u);
  EXPECT_EQ(size(1, 1000, 1), 2001u);
}

TEST(PowerSgd, RefusesWhatNoEncoderWrites) {
  const PowerSgdBytes frame = Sender(2, 16, 32).Encode(HeavyTailed(512, 1));
  const PowerSgdBytes good(frame.begin() + kFrameHeaderSize, frame.end());
  ASSERT_TRUE(ValidateLowRank(good, 512).ok());
  const auto message = [&](size_t at, std::vector<int> bytes) {
    PowerSgdBytes payload = good;
    for (size_t i = 0; i < bytes.size(); ++i) payload[at + i] = static_cast<std::byte>(bytes[i]);
    return std::string(ValidateLowRank(payload, 512).message());
  };
  EXPECT_THAT(message(0, {33}), HasSubstr("the largest is 32"));
  EXPECT_THAT(message(0, {32}), HasSubstr("cannot be sent as rank 32"));
  EXPECT_THAT(message(0, {1}), HasSubstr("should have"));
  EXPECT_THAT(message(0, {0}), HasSubstr("payload"));
  EXPECT_THAT(message(1, {0}), HasSubstr("in 0 rows"));
  EXPECT_THAT(message(1, {15}), HasSubstr("in 15 rows"));
  EXPECT_THAT(message(1, {8}), HasSubstr("should have"));
  EXPECT_THAT(message(5, {1, 0x40}), AllOf(HasSubstr("number 0"), HasSubstr("too large")));
  EXPECT_THAT(message(5 + 62, {0x80, 0x7F}), HasSubstr("number 31"));
  EXPECT_THAT(message(5 + 64, {0x81, 0xFB}), HasSubstr("number 32"));
  EXPECT_EQ(message(5 + 64, {0x80, 0xFB}), "");
  EXPECT_FALSE(ValidateLowRank({}, 0).ok());
  EXPECT_FALSE(ParseCodecSpec("powersgd:33").ok());
  EXPECT_FALSE(ParseCodecSpec("powersgd:0").ok());
}

}  // namespace
}  // namespace sluice::compress
