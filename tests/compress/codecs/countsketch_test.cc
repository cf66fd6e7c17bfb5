// SPDX-License-Identifier: Apache-2.0
// Compares countsketch with a plain reference, and tests the conservation law of its receiver.

#include "compress/codecs/countsketch.h"

#include <cmath>

#include "base/float_bits.h"
#include "compress/coding/payload.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/one_chunk.h"

namespace sluice::compress {
namespace {

using ::testing::HasSubstr;

constexpr size_t kHeader = 5;

// Computes the table as in docs/wire-format.md, one element at a time.
std::vector<float> Table(absl::Span<const float> values, size_t lines) {
  if (values.size() < 1024) return {values.begin(), values.end()};
  std::vector<float> cells(48 * lines);
  for (size_t i = 0; i < values.size(); ++i) {
    for (size_t row = 0; row < 3; ++row) {
      const uint64_t hash = MixBits((3 * (i / 16) + row + 1) * 0x9E3779B97F4A7C15u);
      const size_t line = ((hash >> 32) * lines) >> 32;
      const size_t place = (i + hash) % 16;
      const bool negative = ((hash >> (4 + i % 16)) & 1) != 0;
      cells[(row * lines + line) * 16 + place] += negative ? -values[i] : values[i];
    }
  }
  return cells;
}

std::vector<float> CellsOf(absl::Span<const std::byte> frame) {
  const absl::Span<const std::byte> payload = FramePayload(frame);
  std::vector<float> cells((payload.size() - kHeader) / 2);
  for (size_t i = 0; i < cells.size(); ++i) {
    cells[i] = FromBfloat(LoadAt<uint16_t>(payload.data() + kHeader, i));
  }
  return cells;
}

size_t LinesOf(absl::Span<const std::byte> frame) {
  return LoadAt<uint32_t>(FramePayload(frame).data() + 1, 0);
}

TEST(CountSketch, TableIsThatOfTheReference) {
  for (const size_t count : {0u, 1u, 15u, 1023u, 1024u, 1025u, 1039u, 5000u, 65537u}) {
    for (const char* spec : {"countsketch:2x", "countsketch:10x", "countsketch:100x"}) {
      const std::vector<float> x = HeavyTailed(count, count + 3);
      const std::vector<std::byte> frame = LoneCodec(spec).Encoded(x);
      const std::vector<float> cells = CellsOf(frame);
      const std::vector<float> wanted = Table(x, LinesOf(frame));
      ASSERT_EQ(cells.size(), wanted.size()) << spec << " " << count;
      for (size_t i = 0; i < cells.size(); ++i) {
        ASSERT_EQ(cells[i], FromBfloat(ToBfloat(wanted[i]))) << spec << " " << i;
      }
    }
  }
}

TEST(CountSketch, BytesFollowTheRatio) {
  constexpr size_t kCount = 65536;
  const std::vector<float> x = HeavyTailed(kCount, 1);
  for (const double ratio : {2.0, 3.5, 10.0, 50.0}) {
    const LoneCodec codec(absl::StrCat("countsketch:", ratio, "x"));
    const double bytes = static_cast<double>(codec.Encoded(x).size());
    EXPECT_NEAR(4 * kCount / bytes, ratio, 0.05 * ratio) << ratio;
  }
}

// Tests that a small chunk, for which a sketch would save nothing, is sent as bf16 and published
// completely.
TEST(CountSketch, SmallChunksAreSentWhole) {
  OneChunk chunk(*ParseCodecSpec("countsketch:10x"), 1023, 2);
  const std::vector<float> a = HeavyTailed(1023, 1), b = HeavyTailed(1023, 2);
  const std::vector<float> mean = chunk.Step({a, b});
  for (size_t i = 0; i < mean.size(); ++i) {
    EXPECT_EQ(mean[i], (FromBfloat(ToBfloat(a[i])) + FromBfloat(ToBfloat(b[i]))) / 2);
  }
}

// If a few elements have nearly all of the energy, the receiver must find them and recover their
// values.
TEST(CountSketch, FindsHeavyHitters) {
  constexpr size_t kCount = 65536;
  std::vector<float> x = Gaussian(kCount, 5, 1e-3f);
  CounterRandom random(6);
  std::vector<size_t> heavy;
  for (int i = 0; i < 40; ++i) {
    heavy.push_back(random.Below(kCount));
    x[heavy.back()] = i % 2 == 0 ? 1.0f + static_cast<float>(i) / 40 : -1.5f;
  }
  OneChunk chunk(*ParseCodecSpec("countsketch:10x"), kCount, 1);
  const std::vector<float> found = chunk.Step({x});
  int exact = 0;
  for (const size_t i : heavy) {
    if (std::abs(found[i] - x[i]) < 0.03f * std::abs(x[i])) ++exact;
  }
  // In rare cases, another heavy element shares cells in two of the three rows, and the value is
  // wrong.
  EXPECT_GE(exact, 38);
  double noise = 0;
  for (size_t i = 0; i < kCount; ++i) {
    if (std::abs(x[i]) < 0.5f) noise += double{found[i]} * found[i];
  }
  EXPECT_LT(noise, 0.1);
  EXPECT_GT(noise, 0);  // The test would be too easy without visible collisions.
}

// Tests the conservation law: sketch(published) + the receiver's table = sum of the mean tables.
TEST(CountSketch, WhatIsPublishedAndWhatIsOwedIsWhatCame) {
  constexpr size_t kCount = 4000;
  constexpr uint32_t kSenders = 3;
  OneChunk chunk(*ParseCodecSpec("countsketch:4x"), kCount, kSenders);
  std::vector<float> published(kCount);
  std::vector<double> came;
  double size = 0;
  size_t lines = 0;
  for (uint64_t step = 0; step < 100; ++step) {
    OneChunk::Gradients gradients;
    for (uint32_t rank = 0; rank < kSenders; ++rank) {
      gradients.push_back(HeavyTailed(kCount, 10 * step + rank));
    }
    // The sender is absent in this step, so the mean is over the others.
    if (step % 3 == 1) gradients[1].clear();
    const std::vector<float> mean = chunk.Step(gradients);
    for (size_t i = 0; i < kCount; ++i) published[i] += mean[i];
    double senders = 0;
    for (const std::vector<std::byte>& frame : chunk.frames()) senders += frame.empty() ? 0 : 1;
    for (const std::vector<std::byte>& frame : chunk.frames()) {
      if (frame.empty()) continue;
      const std::vector<float> cells = CellsOf(frame);
      lines = LinesOf(frame);
      came.resize(cells.size());
      for (size_t i = 0; i < cells.size(); ++i) {
        came[i] += cells[i] / senders;
        size += std::abs(cells[i]) / senders;
      }
    }
  }
  const std::vector<float> out = Table(published, lines);
  const std::vector<float>& owed = *chunk.aggregator().State().at(0).values;
  ASSERT_EQ(owed.size(), out.size());
  double wrong = 0, debt = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    wrong += std::abs(came[i] - out[i] - owed[i]);
    debt += std::abs(owed[i]);
  }
  EXPECT_LT(wrong, 1e-5 * size);
  EXPECT_GT(debt, 1e-2 * size);  // If the table were almost empty, the law would hold trivially.
}

// Subtracting an estimate must never increase the table. Therefore, if senders send only zeros, the
// amount in the receiver's table must never grow, and it must shrink over the steps.
TEST(CountSketch, DebtNeverGrowsByItself) {
  constexpr size_t kCount = 4000;
  OneChunk chunk(*ParseCodecSpec("countsketch:10x"), kCount, 1);
  const auto debt = [&] {
    double squares = 0;
    for (const float x : *chunk.aggregator().State().at(0).values) squares += double{x} * x;
    return squares;
  };
  for (uint64_t step = 0; step < 20; ++step) chunk.Step({Gaussian(kCount, step)});
  double before = debt();
  const double first = before;
  ASSERT_GT(first, 0);
  for (int step = 0; step < 200; ++step) {
    chunk.Step({std::vector<float>(kCount, 0.0f)});
    ASSERT_LE(debt(), before) << step;
    before = debt();
  }
  EXPECT_LT(before, 0.2 * first);
}

TEST(CountSketch, HostileSizesStayFinite) {
  constexpr size_t kCount = 2000;
  OneChunk chunk(*ParseCodecSpec("countsketch:10x"), kCount, 3);
  const std::vector<float> huge(kCount, 3e38f), minus(kCount, -3e38f);
  for (int step = 0; step < 5; ++step) {
    for (const float x : chunk.Step({huge, step % 2 == 0 ? huge : minus, huge})) {
      ASSERT_TRUE(std::isfinite(x));
    }
  }
}

TEST(CountSketch, ReceiverTakesItsOwnRatioAlone) {
  const std::vector<float> x = HeavyTailed(5000, 1);
  const std::unique_ptr<Aggregator> receiver =
      MakeAggregator({.count = 5000, .spec = *ParseCodecSpec("countsketch:10x")}, 2);
  EXPECT_TRUE(receiver->Validate(0, LoneCodec("countsketch:10x").Encoded(x)).ok());
  const absl::Status ratio = receiver->Validate(0, LoneCodec("countsketch:20x").Encoded(x));
  EXPECT_THAT(std::string(ratio.message()), HasSubstr("all senders need the same ratio"));
  const absl::Status other = receiver->Validate(0, LoneCodec("fp16").Encoded(x));
  EXPECT_THAT(std::string(other.message()), HasSubstr("send countsketch"));
}

TEST(CountSketch, MalformedPayloadsAreRefused) {
  const std::vector<std::byte> frame = LoneCodec("countsketch:10x").Encoded(HeavyTailed(5000, 1));
  const absl::Span<const std::byte> good = FramePayload(frame);
  ASSERT_TRUE(ValidateSketch(good, 5000).ok());
  const auto changed = [&](size_t at, uint8_t value) {
    std::vector<std::byte> payload(good.begin(), good.end());
    payload[at] = static_cast<std::byte>(value);
    return ValidateSketch(payload, 5000);
  };
  EXPECT_FALSE(changed(0, 1).ok());
  EXPECT_FALSE(changed(0, 5).ok());
  EXPECT_FALSE(changed(1, 0).ok());
  EXPECT_FALSE(changed(4, 255).ok());
  EXPECT_FALSE(changed(kHeader + 1, 0x7F).ok() && changed(kHeader, 0x80).ok());
  EXPECT_FALSE(ValidateSketch(good, 900).ok());
  EXPECT_FALSE(ValidateSketch(good.first(4), 5000).ok());
  EXPECT_FALSE(ValidateSketch({}, 5000).ok());
}

}  // namespace
}  // namespace sluice::compress
