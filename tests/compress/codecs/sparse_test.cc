// SPDX-License-Identifier: Apache-2.0
// Tests topk_exact, threshold and the value formats of sparse codecs.

#include "compress/codecs/sparse.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "base/float_bits.h"
#include "compress/coding/sparse_values.h"
#include "compress/simd/select.h"
#include "compress/simd/targets.h"
#include "gtest/gtest.h"
#include "tests/compress/test_data.h"

namespace sluice::compress {
namespace {

struct SparseResult {
  std::vector<std::byte> frame;
  std::vector<float> decoded, residual;
};

SparseResult EncodeSparse(const std::string& spec, const std::vector<float>& values,
                          float threshold = 0) {
  SparseResult result;
  result.residual.resize(values.size());
  EXPECT_TRUE(
      EncodeFrame(
          *CodecFor(spec),
          {.gradient = values, .residual = absl::MakeSpan(result.residual), .threshold = threshold},
          &result.frame)
          .ok());
  result.decoded = Decode(result.frame, values.size());
  return result;
}

std::vector<size_t> Positions(const std::vector<float>& decoded) {
  std::vector<size_t> positions;
  for (size_t i = 0; i < decoded.size(); ++i) {
    if (decoded[i] != 0) positions.push_back(i);
  }
  return positions;
}

// Sorts by descending magnitude, then by position.
std::vector<size_t> LargestOf(const std::vector<float>& values, size_t wanted) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return std::abs(values[a]) > std::abs(values[b]); });
  order.resize(wanted);
  std::sort(order.begin(), order.end());
  return order;
}

TEST(TopKExact, KeepsExactlyTheLargest) {
  for (const size_t count : {1u, 2u, 99u, 100u, 101u, 4096u, 20000u}) {
    for (const double density : {0.001, 0.01, 0.37, 1.0}) {
      const std::vector<float> values = HeavyTailed(count, count);
      const auto wanted = static_cast<size_t>(std::ceil(density * static_cast<double>(count)));
      const std::string spec = ToString({.codec = CodecId::kTopKExact, .level = density});
      // The values are scaled up so that no nonzero value becomes 0 in fp16.
      std::vector<float> large = values;
      for (float& value : large) value *= 1e3f;
      const size_t nonzero = count - static_cast<size_t>(std::count(large.begin(), large.end(), 0));
      const SparseResult result = EncodeSparse(spec, large);
      std::vector<size_t> expected = LargestOf(large, std::min(wanted, nonzero));
      std::erase_if(expected, [&](size_t i) { return (ToHalf(large[i]) & 0x7FFF) == 0; });
      EXPECT_EQ(Positions(result.decoded), expected) << count << " " << spec;
    }
  }
}

// Large values are exactly at the positions of the sample of one in 16, so the sample gives a
// threshold that is far too high. The codec must still keep the largest elements.
TEST(TopKExact, DoesNotDependOnASample) {
  constexpr size_t kGroup = 64, kStride = 16;
  std::vector<float> values = HeavyTailed(65536, 11);
  size_t looked_at = 0;
  for (size_t at = 0; at < values.size(); at += kGroup) {
    std::vector<float> group(values.size());
    std::fill_n(group.begin() + static_cast<ptrdiff_t>(at), kGroup, 1.0f);
    MagnitudeHistogram magnitudes;
    magnitudes.Add(group, {}, kStride);
    if (magnitudes.ThresholdFor(0.0001) == 0) continue;
    for (size_t i = at; i < at + kGroup; i += 8) values[i] = 10.0f + static_cast<float>(i % 100);
    ++looked_at;
  }
  ASSERT_EQ(looked_at, values.size() / kGroup / kStride);
  const SparseResult result = EncodeSparse("topk_exact:5%", values);
  EXPECT_EQ(Positions(result.decoded), LargestOf(values, 3277));
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(result.residual[i], values[i] - result.decoded[i]) << i;
  }
  std::vector<std::byte> without_residual;
  ASSERT_TRUE(
      EncodeFrame(*CodecFor("topk_exact:5%"), {.gradient = values}, &without_residual).ok());
  EXPECT_EQ(without_residual, result.frame);
}

TEST(TopKExact, TiesGoToTheLowestPositions) {
  std::vector<float> values(1000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = i % 3 == 0 ? -0.5f : 0.5f;
  values[777] = 2;
  const SparseResult result = EncodeSparse("topk_exact:1%", values);
  EXPECT_EQ(Positions(result.decoded), (std::vector<size_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 777}));
}

TEST(TopKExact, SendsNoZeros) {
  std::vector<float> values(1000);
  values[5] = values[900] = 1;
  EXPECT_EQ(Positions(EncodeSparse("topk_exact:50%", values).decoded),
            (std::vector<size_t>{5, 900}));
  EXPECT_EQ(EncodeSparse("topk_exact:50%", std::vector<float>(1000)).frame.size(),
            kFrameHeaderSize + 6);
}

TEST(Threshold, IsFixedWhateverTheSenderSays) {
  const std::vector<float> values = {0.1f, -0.25f, 0.26f, 0.2499f, 1e9f, 0};
  const SparseResult result = EncodeSparse("threshold:0.25+int8", values, /*threshold=*/100);
  EXPECT_EQ(result.frame, EncodeSparse("threshold:0.25+int8", values).frame);
  EXPECT_EQ(Positions(EncodeSparse("threshold:0.25", {0.1f, -0.25f, 0.26f, 0.2499f, 9, 0}).decoded),
            (std::vector<size_t>{1, 2, 4}));
}

TEST(SparseValues, ErrorsAreWithinTheirFormats) {
  const std::vector<float> values = HeavyTailed(20000, 3);
  const float tau = 0.05f;
  float largest = 0;
  double sum = 0;
  size_t kept = 0;
  for (const float value : values) {
    if (std::abs(value) < tau) continue;
    largest = std::max(largest, std::abs(value));
    sum += std::abs(value);
    ++kept;
  }
  ASSERT_GT(kept, 100u);
  struct Case {
    const char* spec;
    float step;
  };
  for (const Case& c :
       {Case{"topk:1%+int8", largest / 127}, {"topk:1%+int4", (largest - tau) / 7}}) {
    const SparseResult result = EncodeSparse(c.spec, values, tau);
    float worst = 0;
    for (const size_t i : Positions(result.decoded)) {
      worst = std::max(worst, std::abs(result.residual[i]));
    }
    // Among this many values, the largest error must also come close to half a step.
    EXPECT_LE(worst, c.step * 0.501f) << c.spec;
    EXPECT_GE(worst, c.step * 0.45f) << c.spec;
    EXPECT_EQ(Positions(result.decoded).size(), kept) << c.spec;
  }
  const SparseResult sign = EncodeSparse("topk:1%+sign", values, tau);
  for (const size_t i : Positions(sign.decoded)) {
    EXPECT_NEAR(std::abs(sign.decoded[i]), sum / static_cast<double>(kept), 1e-5);
    EXPECT_EQ(std::signbit(sign.decoded[i]), std::signbit(values[i]));
  }
}

TEST(SparseValues, SignsAreReadFromAnyBitAndNoByteTooMany) {
  for (const std::string& target : SimdTargets()) {
    ForceSimdTarget(target);
    for (size_t kept = 0; kept <= 70; ++kept) {
      // The buffer has the exact size, so that a sanitizer detects reads after the end.
      std::vector<std::byte> codes(ValueBytes(ValueFormat::kSign, kept));
      for (size_t i = 0; i < kept; ++i) {
        codes[i / 8] |= static_cast<std::byte>(((i * 5 / 3) % 2) << (i % 8));
      }
      codes.shrink_to_fit();
      for (size_t first = 0; first <= kept; ++first) {
        std::vector<float> values(kept - first);
        DecodeValues(ValueFormat::kSign, {.step = 0.5f}, codes, first, absl::MakeSpan(values));
        for (size_t i = first; i < kept; ++i) {
          ASSERT_EQ(values[i - first], (i * 5 / 3) % 2 == 0 ? 0.5f : -0.5f) << target << first;
        }
      }
    }
  }
  ForceSimdTarget("");
}

TEST(SparseValues, TakeAsManyBytesAsTheySay) {
  const std::map<ValueFormat, size_t> level_bytes = {{ValueFormat::kFp16, 0},
                                                     {ValueFormat::kInt8, 3},
                                                     {ValueFormat::kInt4, 6},
                                                     {ValueFormat::kSign, 3},
                                                     {ValueFormat::kTwoBit, 6}};
  for (const auto& [format, bytes] : level_bytes) {
    for (size_t kept = 0; kept <= 40; ++kept) {
      std::vector<float> values = HeavyTailed(kept, kept + 1);
      for (float& value : values) value += std::copysign(1.0f, value);
      const std::vector<float> before = values;
      const ValueLevels levels = ChooseLevels(format, values, 1);
      std::vector<std::byte> codes, header;
      AppendLevels(format, levels, &header);
      EXPECT_EQ(header.size(), bytes);
      AppendValues(format, levels, absl::MakeSpan(values), &codes);
      ASSERT_EQ(codes.size(), ValueBytes(format, kept));
      EXPECT_EQ(WhatIsWrong(format, levels, kept, codes), "");
      std::vector<float> decoded(kept);
      DecodeValues(format, levels, codes, 0, absl::MakeSpan(decoded));
      for (size_t i = 0; i < kept; ++i) EXPECT_EQ(values[i], before[i] - decoded[i]);
      if (kept < 2) continue;
      float second = 0;
      DecodeValues(format, levels, codes, kept - 1, absl::MakeSpan(&second, 1));
      EXPECT_EQ(second, decoded[kept - 1]);
    }
  }
}

TEST(SparseValues, RefuseWhatNoEncoderWrites) {
  const std::byte ones[4] = {std::byte{0xFF}, std::byte{0xFF}, std::byte{0xFF}, std::byte{0xFF}};
  const float inf = std::numeric_limits<float>::infinity();
  const ValueLevels good{.floor = 1, .step = 1};
  EXPECT_NE(WhatIsWrong(ValueFormat::kFp16, {}, 2, ones), "");
  EXPECT_NE(WhatIsWrong(ValueFormat::kInt4, good, 7, ones), "");
  EXPECT_EQ(WhatIsWrong(ValueFormat::kInt4, good, 8, ones), "");
  EXPECT_NE(WhatIsWrong(ValueFormat::kInt4, {.floor = 0, .step = 1}, 8, ones), "");
  EXPECT_NE(WhatIsWrong(ValueFormat::kInt4, {.floor = 1, .step = inf}, 8, ones), "");
  EXPECT_NE(WhatIsWrong(ValueFormat::kInt4, {.floor = 3e38f, .step = 3e38f}, 8, ones), "");
  EXPECT_NE(WhatIsWrong(ValueFormat::kInt8, {.step = -1}, 4, ones), "");
  EXPECT_NE(WhatIsWrong(ValueFormat::kInt8, {.step = 3e38f}, 4, ones), "");
  const std::byte unused[1] = {std::byte{0x80}};
  EXPECT_NE(WhatIsWrong(ValueFormat::kInt8, good, 1, unused), "");
  EXPECT_NE(WhatIsWrong(ValueFormat::kSign, {.step = 0}, 32, ones), "");
  EXPECT_NE(WhatIsWrong(ValueFormat::kSign, good, 31, ones), "");
  EXPECT_EQ(WhatIsWrong(ValueFormat::kSign, good, 32, ones), "");
  EXPECT_NE(WhatIsWrong(ValueFormat::kSign, good, 0, {}), "");
  EXPECT_NE(WhatIsWrong(ValueFormat::kTwoBit, {.floor = 0, .step = 1}, 16, ones), "");
  EXPECT_NE(WhatIsWrong(ValueFormat::kTwoBit, {.floor = 1, .step = -1}, 16, ones), "");
  EXPECT_NE(WhatIsWrong(ValueFormat::kTwoBit, {.floor = 3e38f, .step = 3e38f}, 16, ones), "");
  EXPECT_NE(WhatIsWrong(ValueFormat::kTwoBit, good, 15, ones), "");
  EXPECT_EQ(WhatIsWrong(ValueFormat::kTwoBit, good, 16, ones), "");
}

class SimdSelect : public ::testing::TestWithParam<std::string> {
 protected:
  SimdSelect() { ForceSimdTarget(GetParam()); }
  ~SimdSelect() override { ForceSimdTarget(""); }
};

TEST_P(SimdSelect, KeepsWhatALoopKeeps) {
  for (size_t count = 0; count <= 300; ++count) {
    for (const float tau : {1e-9f, 1e-3f, 0.02f, 1e9f}) {
      const std::vector<float> gradient = HeavyTailed(count, count);
      std::vector<float> residual = HeavyTailed(count, count + 7);
      std::vector<uint32_t> expected_positions;
      std::vector<float> expected_values, acc(count);
      for (size_t i = 0; i < count; ++i) {
        acc[i] = gradient[i] + residual[i];
        if (std::abs(acc[i]) < tau) continue;
        expected_positions.push_back(static_cast<uint32_t>(10 + i));
        expected_values.push_back(acc[i]);
      }
      std::vector<uint32_t> positions(count + kSelectSlack);
      std::vector<float> values(count + kSelectSlack);
      const size_t kept = SelectAbove(gradient.data(), residual.data(), count, tau, 10,
                                      positions.data(), values.data());
      ASSERT_EQ(kept, expected_positions.size());
      EXPECT_EQ(residual, acc);
      std::vector<uint32_t> gaps(kept), expected_gaps;
      GapsOf(positions.data(), kept, gaps.data());
      for (size_t i = 0; i < kept; ++i) {
        EXPECT_EQ(positions[i], expected_positions[i]);
        EXPECT_EQ(values[i], expected_values[i]);
        expected_gaps.push_back(i == 0 ? positions[0] : positions[i] - positions[i - 1] - 1);
      }
      EXPECT_EQ(gaps, expected_gaps);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, SimdSelect, ::testing::ValuesIn(SimdTargets()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace sluice::compress
