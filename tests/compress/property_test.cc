// SPDX-License-Identifier: Apache-2.0
// Tests mathematical laws for every codec of the table with every compensator that it supports:
// laws of a single encoding (LoneCodec), and laws of steps from senders to the mean (OneChunk).
// Tests also check lower bounds if theory gives them, so a suspiciously good codec fails.

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/float_bits.h"
#include "compress/simd/targets.h"
#include "gtest/gtest.h"
#include "tests/compress/one_chunk.h"
#include "tests/compress/recorded.h"
#include "tests/compress/short_runs.h"

namespace sluice::compress {
namespace {

// Returns magnitudes from 1/16 to 16, evenly distributed over the exponents. The values are far
// from the limits of halves, so every codec must scale exactly with powers of two.
std::vector<float> Moderate(size_t count, uint64_t seed) {
  CounterRandom random(seed, 78);
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(std::exp2(8 * random.Uniform() - 4));
    if (random.Below(2) == 0) value = -value;
  }
  return values;
}

double PropertyEnergy(absl::Span<const float> values) {
  double energy = 0;
  for (const float x : values) energy += double{x} * x;
  return energy;
}

double SquaredError(absl::Span<const float> a, absl::Span<const float> b) {
  double error = 0;
  for (size_t i = 0; i < a.size(); ++i) error += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return error;
}

std::vector<float> Scaled(std::vector<float> values, float by) {
  for (float& x : values) x *= by;
  return values;
}

class CodecLaw : public ::testing::TestWithParam<std::string> {
 protected:
  // Returns true if the codec is unbiased with a compensator without feedback.
  bool Unbiased() const {
    const CompensatorId compensator = codec_.spec().compensator.id;
    return codec_.traits().unbiased && !codec_.codec().lossless() &&
           (compensator == CompensatorId::kNone || compensator == CompensatorId::kDiana);
  }
  bool Deterministic() const { return !codec_.traits().unbiased || codec_.codec().lossless(); }
  // Returns true if the codec's step is a share of the largest value of a block or a frame.
  bool GridFollowsLargest() const {
    switch (codec_.spec().codec) {
      case CodecId::kFp8:
      case CodecId::kInt8:
      case CodecId::kInt4:
      case CodecId::kInt2:
      case CodecId::kIntSum:
      case CodecId::kLsh:
        return true;
      default:
        return codec_.spec().values != ValueFormat::kFp16;
    }
  }
  std::vector<float> RoundTrip(absl::Span<const float> x, LoneKeys keys = {}) const {
    return codec_.Decoded(codec_.Encoded(x, keys), x.size());
  }

  const LoneCodec codec_{GetParam()};
};

std::vector<float> Uniform(size_t count, uint64_t seed) {
  CounterRandom random(seed, 79);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(2e-2 * random.Uniform() - 1e-2);
  return values;
}

// Values are encoded with N different keys. The squared error of the mean must be an N-th of a
// single draw's squared error. A larger error indicates a bias or repeated random numbers; a
// smaller error indicates that draws depend on each other.
TEST_P(CodecLaw, UnbiasedOnesAverageOut) {
  if (!Unbiased()) GTEST_SKIP() << "the codec is biased by design";
  constexpr size_t kDraws = kShortRuns ? 4 : 300;
  std::vector<std::vector<float>> inputs = {HeavyTailed(3072, 1), Gaussian(3072, 2), Recorded(0)};
  // These inputs have no outliers, so nothing is clipped.
  if (codec_.traits().clips) inputs = {Uniform(3072, 1), Uniform(3000, 2)};
  for (const std::vector<float>& x : inputs) {
    std::vector<double> sum(x.size()), squares(x.size());
    // Sums of the errors' components along x, which detect a bias of the scale soonest.
    double gain = 0, gain_squares = 0;
    for (uint64_t draw = 0; draw < kDraws; ++draw) {
      const std::vector<float> decoded = RoundTrip(x, {.own = draw + 1, .shared = draw + 100001});
      double along = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const double error = double{decoded[i]} - x[i];
        sum[i] += error;
        squares[i] += error * error;
        along += error * x[i];
      }
      gain += along / PropertyEnergy(x);
      gain_squares += along / PropertyEnergy(x) * along / PropertyEnergy(x);
    }
    if (kShortRuns) continue;
    const double gain_variance = gain_squares / kDraws - gain / kDraws * gain / kDraws;
    EXPECT_LE(std::abs(gain / kDraws), 5 * std::sqrt(gain_variance / kDraws) + 1e-5);
    double of_mean = 0, variance = 0, spread = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      of_mean += sum[i] * sum[i] / kDraws;
      variance += squares[i] / kDraws;
      spread += squares[i] / kDraws * squares[i] / kDraws;
    }
    ASSERT_GT(variance, 0);
    // The error of the mean is a sum of squares of approximately normal variables with unequal
    // weights. Errors within a block share a scale, so the limit has an additional tenth.
    const double deviation = std::sqrt(2 * spread) / variance;
    EXPECT_NEAR(of_mean / variance, 1, 6 * deviation + 0.1);
  }
}

TEST_P(CodecLaw, ContractiveOnesNeverAddEnergy) {
  if (!codec_.traits().contractive || Unbiased()) GTEST_SKIP() << "the error may exceed the input";
  std::vector<std::vector<float>> inputs;
  for (const size_t count : {1u, 2u, 3u, 17u, 256u, 300u, 1024u, 3072u}) {
    inputs.push_back(HeavyTailed(count, count));
    inputs.push_back(Gaussian(count, count));
    inputs.push_back(Moderate(count, count));
    inputs.emplace_back(count, 0.1f);
    std::vector<float> one_large(count, 0.004f);
    one_large[count / 2] = 1.0f;
    inputs.push_back(std::move(one_large));
    std::vector<float> rising(count);
    std::iota(rising.begin(), rising.end(), 1.0f);
    inputs.push_back(std::move(rising));
  }
  for (size_t step = 0; step < kRecordedSteps; ++step) inputs.push_back(Recorded(step));
  for (size_t k = 0; k < inputs.size(); ++k) {
    const std::vector<float>& x = inputs[k];
    for (uint64_t draw = 1; draw <= 3; ++draw) {
      const double error = SquaredError(RoundTrip(x, {.own = draw, .shared = draw + 50}), x);
      EXPECT_LE(error, PropertyEnergy(x) * (1 + 1e-6)) << "input " << k << " of " << x.size();
    }
  }
}

// If the input is multiplied by a power of two, the decoded values must be multiplied by exactly
// the same power. Codecs with a threshold in units of the gradient are excluded.
TEST_P(CodecLaw, ScalesExactlyWithPowersOfTwo) {
  if (codec_.entry().level == LevelKind::kPositive) GTEST_SKIP() << "the level is absolute";
  if (codec_.entry().aggregation == Aggregation::kVote) GTEST_SKIP() << "votes have no magnitude";
  const std::vector<float> x = Moderate(3072, 16);
  const std::vector<float> one = RoundTrip(x), many = RoundTrip(Scaled(x, 32));
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(one[i] * 32, many[i]) << i;
}

// If the input is negated, the decoded values must be negated. Stochastic codecs are excluded,
// because they obey this law only on average, which the test of unbiasedness covers. Minmax codecs
// are excluded, because one end of the range is rounded in the other direction.
TEST_P(CodecLaw, SignsAreSymmetric) {
  if (!Deterministic() || codec_.spec().has(kMinMax)) GTEST_SKIP() << "this law does not apply";
  const std::vector<float> x = HeavyTailed(3072, 17);
  const std::vector<float> one = RoundTrip(x), other = RoundTrip(Scaled(x, -1));
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(one[i], -other[i]) << i;
}

// Decoded values are on the codec's grid, so encoding them again must not change them. If the grid
// depends on the largest value, rounding may move the grid. Then the second error must only be
// comparable to the first. Codecs with random numbers are excluded, because these can move the grid
// anywhere.
TEST_P(CodecLaw, ASecondRoundTripChangesNothing) {
  if (!Deterministic()) GTEST_SKIP() << "this law does not apply";
  if (codec_.entry().aggregation == Aggregation::kSketch) GTEST_SKIP() << "sketches add collisions";
  for (const std::vector<float>& x : {Gaussian(3072, 19), Recorded(2)}) {
    const std::vector<float> once = RoundTrip(x), twice = RoundTrip(once);
    if (GridFollowsLargest()) {
      EXPECT_LE(SquaredError(once, twice), 1.5 * SquaredError(x, once));
      continue;
    }
    if (codec_.spec().codec == CodecId::kPowerSgd) {
      // The decoded matrix has the codec's rank, so only rounding factors to 8 bits changes it.
      EXPECT_LE(SquaredError(once, twice), 2e-5 * PropertyEnergy(once));
      continue;
    }
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(once[i], twice[i]) << i;
  }
}

// With a given threshold, a sparse codec must handle each value independently of its position.
TEST_P(CodecLaw, ThresholdsDoNotCareForOrder) {
  if (codec_.codec().density() == 0) GTEST_SKIP() << "the codec takes no threshold";
  std::vector<float> x = Recorded(3);
  x[7] = -ToShortFloat(0.01f);  // A value that exactly reaches the threshold must be kept.
  std::vector<float> turned(x.rbegin(), x.rend());
  std::vector<std::byte> frame, turned_frame;
  ASSERT_TRUE(codec_.Encode(x, {}, &frame, 0.01f).ok());
  ASSERT_TRUE(codec_.Encode(turned, {}, &turned_frame, 0.01f).ok());
  const std::vector<float> decoded = codec_.Decoded(frame, x.size());
  std::vector<float> other = codec_.Decoded(turned_frame, x.size());
  std::reverse(other.begin(), other.end());
  EXPECT_EQ(decoded, other);
  size_t kept = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(decoded[i] != 0, std::abs(x[i]) >= ToShortFloat(0.01f)) << i;
    kept += decoded[i] != 0 ? 1 : 0;
  }
  EXPECT_GT(kept, 10u);
}

TEST_P(CodecLaw, NoFrameCanBeMuchLargerThanTheValues) {
  for (const size_t count : {1024u, 3072u, 65536u}) {
    EXPECT_LE(codec_.MaxFrame(count), kFrameHeaderSize + 4 * count + 64);
  }
}

TEST_P(CodecLaw, KeysMatterToStochasticOnesOnly) {
  const std::vector<float> x = Gaussian(3072, 18);
  const std::vector<std::byte> first = codec_.Encoded(x, {.own = 1, .shared = 2});
  EXPECT_EQ(first, codec_.Encoded(x, {.own = 1, .shared = 2}));
  const bool own = first != codec_.Encoded(x, {.own = 3, .shared = 2});
  const bool shared = first != codec_.Encoded(x, {.own = 1, .shared = 4});
  if (!Deterministic()) {
    EXPECT_TRUE(own || shared);
  }
  if (codec_.spec().has(kStochastic)) {
    EXPECT_TRUE(own);
  }
}

TEST_P(CodecLaw, SameFrameOnEveryInstructionSet) {
  for (const size_t count : {0u, 1u, 15u, 16u, 17u, 255u, 256u, 257u, 1000u, 3072u, 20000u}) {
    const std::vector<float> gradient = HeavyTailed(count, count);
    const std::vector<float> before = HeavyTailed(count, count + 1, 3e-4f);
    std::vector<std::byte> wanted;
    std::vector<float> wanted_residual, wanted_decoded;
    for (const std::string& target : SimdTargets()) {
      ForceSimdTarget(target);
      std::vector<float> residual = before;
      std::vector<std::byte> frame;
      EXPECT_TRUE(codec_.Encode(gradient, absl::MakeSpan(residual), &frame).ok());
      const std::vector<float> decoded = codec_.Decoded(frame, count);
      if (target == SimdTargets().front()) {
        wanted = frame;
        wanted_residual = residual;
        wanted_decoded = decoded;
      }
      EXPECT_EQ(frame, wanted) << target << ", " << count << " elements";
      EXPECT_EQ(residual, wanted_residual) << target << ", " << count << " elements";
      EXPECT_EQ(decoded, wanted_decoded) << target << ", " << count << " elements";
    }
    ForceSimdTarget("");
  }
}

TEST_P(CodecLaw, PlacesInMemoryDoNotMatter) {
  constexpr size_t kCount = 1536;
  std::vector<float> values = HeavyTailed(kCount + 1, 30),
                     owed = HeavyTailed(kCount + 3, 31, 1e-4f);
  const std::vector<float> aligned(values.begin() + 1, values.end());
  std::vector<float> aligned_owed(owed.begin() + 3, owed.end());
  std::vector<std::byte> frame, other = {std::byte{0}};
  ASSERT_TRUE(codec_.Encode(aligned, absl::MakeSpan(aligned_owed), &frame).ok());
  ASSERT_TRUE(
      codec_.Encode(absl::MakeConstSpan(values).subspan(1), absl::MakeSpan(owed).subspan(3), &other)
          .ok());
  const absl::Span<const std::byte> odd = absl::MakeConstSpan(other).subspan(1);
  EXPECT_TRUE(std::equal(frame.begin(), frame.end(), odd.begin(), odd.end()));
  EXPECT_TRUE(std::equal(aligned_owed.begin(), aligned_owed.end(), owed.begin() + 3));
  EXPECT_EQ(codec_.Decoded(frame, kCount), codec_.Decoded(odd, kCount));
}

INSTANTIATE_TEST_SUITE_P(Codecs, CodecLaw, ::testing::ValuesIn(TestedSpecs()),
                         [](const auto& spec) { return SpecTestName(spec.param); });

class StepLaw : public ::testing::TestWithParam<CodecSpec> {
 protected:
  const CodecEntry& Entry() const { return FindCodec(GetParam().codec); }
  CodecTraits Traits() const { return TraitsOf(GetParam().codec, GetParam().options); }
  CompensatorId Feedback() const { return GetParam().compensator.id; }
  // Feedback with a decay forgets a part of what it owes.
  bool OwesAllItLeavesOut() const {
    return Feedback() == CompensatorId::kErrorFeedback && GetParam().compensator.level == 0;
  }

  static OneChunk::Gradients Gradients(uint32_t senders, size_t count, uint64_t step) {
    OneChunk::Gradients gradients;
    for (uint32_t rank = 0; rank < senders; ++rank) {
      gradients.push_back(HeavyTailed(count, step * 100 + rank));
    }
    return gradients;
  }
};

TEST_P(StepLaw, AnyInputGivesFramesThatAreTakenAndFiniteMeans) {
  constexpr float kMaxFloat = std::numeric_limits<float>::max();
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  // Receivers that accumulate differences accept only values that cannot overflow.
  const bool remembered = Feedback() == CompensatorId::kEf21 || Feedback() == CompensatorId::kDiana;
  const float large = remembered ? 0x1p100f : kMaxFloat / 64;
  for (const uint32_t senders : {1u, 2u, 8u}) {
    for (const size_t count : {0u, 1u, 15u, 16u, 17u, 255u, 256u, 257u, 768u}) {
      OneChunk chunk(GetParam(), count, senders);
      for (uint64_t step = 0; step < 7; ++step) {
        OneChunk::Gradients gradients = Gradients(senders, count, step);
        const float all[] = {0, -0.0f, kTiny, large, 1e-39f};
        if (step >= 1 && step <= 5) {
          for (auto& gradient : gradients)
            std::fill(gradient.begin(), gradient.end(), all[step - 1]);
        }
        const std::vector<float> mean = chunk.Step(gradients);
        for (size_t i = 0; i < count; ++i) ASSERT_TRUE(std::isfinite(mean[i])) << i;
        for (uint32_t rank = 0; rank < senders; ++rank) {
          EXPECT_LE(chunk.frames()[rank].size(), chunk.sender(rank).MaxFrameSize(0));
        }
      }
    }
  }
}

// Tests the additive conservation law over steps with absent senders, refused frames or no frames.
TEST_P(StepLaw, WhatIsAddedAndWhatIsOwedIsWhatWasGiven) {
  if (!OwesAllItLeavesOut()) GTEST_SKIP() << "only feedback without a decay conserves";
  if (Entry().aggregation == Aggregation::kSketch) GTEST_SKIP() << "the error stays in the sketch";
  constexpr size_t kCount = 1536;
  for (const uint32_t senders : {1u, 2u, 8u}) {
    OneChunk chunk(GetParam(), kCount, senders);
    std::vector<double> given(kCount), received(kCount);
    double size = 0;
    for (uint64_t step = 0; step < 20; ++step) {
      OneChunk::Gradients gradients = Gradients(senders, kCount, step);
      const uint32_t odd = static_cast<uint32_t>(step % senders);
      if (step % 4 == 1 && senders > 1) gradients[odd].clear();
      if (step % 5 == 2) std::fill(gradients.back().begin(), gradients.back().end(), 0.0f);
      std::vector<uint32_t> refused;
      if (step % 3 == 2) refused.push_back((odd + 1) % senders);
      const std::vector<float> mean = chunk.Step(gradients, refused);
      uint32_t taken = 0;
      for (uint32_t rank = 0; rank < senders; ++rank) {
        for (size_t i = 0; i < gradients[rank].size(); ++i) {
          given[i] += gradients[rank][i];
          size += std::abs(gradients[rank][i]);
        }
        const bool counted = !gradients[rank].empty() && (refused.empty() || refused[0] != rank);
        taken += counted ? 1 : 0;
      }
      for (size_t i = 0; i < kCount; ++i) received[i] += double{mean[i]} * taken;
    }
    for (uint32_t rank = 0; rank < senders; ++rank) {
      const absl::Span<const float> owed = chunk.sender(rank).residual(0);
      for (size_t i = 0; i < owed.size(); ++i) received[i] += owed[i];
    }
    double wrong = 0;
    for (size_t i = 0; i < kCount; ++i) wrong += std::abs(given[i] - received[i]);
    EXPECT_LE(wrong, size * 1e-6) << senders << " senders";
  }
}

// If the codec changes, the new codec must send the old codec's residual.
TEST(Feedback, ConservesAcrossSwitchesOfCodecs) {
  constexpr size_t kCount = 1536;
  std::vector<std::string> specs;
  for (const std::string& spec : TestedSpecs()) {
    const LoneCodec codec(spec);
    const CompensatorId feedback = CompensatorId::kErrorFeedback;
    if (!CompensatorRefusal(codec.spec().codec, codec.spec().options, feedback).empty()) continue;
    if (codec.entry().aggregation == Aggregation::kSketch) continue;
    specs.push_back(absl::StrCat(spec.substr(0, spec.find('/')), "/ef"));
  }
  std::vector<float> residual(kCount);
  std::vector<double> balance(kCount);
  double size = 0;
  for (uint64_t step = 0; step < 300; ++step) {
    const LoneCodec codec(specs[CounterRandom(40, step).Below(specs.size())]);
    const std::vector<float> gradient = HeavyTailed(kCount, step + 500);
    const float threshold = step % 3 == 0 ? 0 : 0.001f * static_cast<float>(step % 7);
    std::vector<std::byte> frame;
    ASSERT_TRUE(codec
                    .Encode(gradient, absl::MakeSpan(residual), &frame, threshold, nullptr,
                            {.own = step, .shared = step + 1})
                    .ok());
    const std::vector<float> decoded = codec.Decoded(frame, kCount);
    for (size_t i = 0; i < kCount; ++i) {
      balance[i] += double{gradient[i]} - decoded[i];
      size += std::abs(gradient[i]);
    }
  }
  double wrong = 0;
  for (size_t i = 0; i < kCount; ++i) wrong += std::abs(balance[i] - residual[i]);
  EXPECT_LE(wrong, size * 1e-6);
}

TEST_P(StepLaw, ConservesRecordedGradients) {
  if (!OwesAllItLeavesOut()) GTEST_SKIP() << "only feedback without a decay conserves";
  if (Entry().aggregation == Aggregation::kSketch) GTEST_SKIP() << "the error stays in the sketch";
  OneChunk chunk(GetParam(), kRecordedCount, 2);
  std::vector<double> balance(kRecordedCount);
  double size = 0;
  for (uint64_t step = 0; step < 2 * kRecordedSteps; ++step) {
    const OneChunk::Gradients gradients = {Recorded(step), Recorded(step + 3)};
    const std::vector<float> mean = chunk.Step(gradients);
    for (size_t i = 0; i < kRecordedCount; ++i) {
      balance[i] += double{gradients[0][i]} + gradients[1][i] - 2 * double{mean[i]};
      size += std::abs(gradients[0][i]) + std::abs(gradients[1][i]);
    }
  }
  double wrong = 0;
  for (size_t i = 0; i < kRecordedCount; ++i) {
    for (uint32_t rank = 0; rank < 2; ++rank) {
      const absl::Span<const float> owed = chunk.sender(rank).residual(0);
      if (!owed.empty()) balance[i] -= owed[i];
    }
    wrong += std::abs(balance[i]);
  }
  EXPECT_LE(wrong, size * 1e-6);
}

// Adding many frames at once must give the same result as adding them one by one. Codecs that add
// integers must therefore add exactly.
TEST_P(StepLaw, TheMeanIsTheMeanOfWhatEachFrameDecodesTo) {
  const bool plain = Feedback() == CompensatorId::kErrorFeedback ||
                     Feedback() == CompensatorId::kNone || Feedback() == CompensatorId::kDgc;
  if (Entry().aggregation != Aggregation::kAdditive || !plain ||
      FindFormat(MakeCodec(GetParam())->format())->decode_add == nullptr) {
    GTEST_SKIP() << "the receiver does not simply add decoded frames";
  }
  constexpr size_t kCount = 1536;
  for (const uint32_t senders : {1u, 2u, 8u}) {
    OneChunk chunk(GetParam(), kCount, senders);
    for (uint64_t step = 0; step < 4; ++step) {
      const std::vector<float> mean = chunk.Step(Gradients(senders, kCount, step));
      std::vector<float> sum(kCount);
      for (const std::vector<std::byte>& frame : chunk.frames()) {
        ASSERT_TRUE(DecodeAddFrame(frame, absl::MakeSpan(sum)).ok());
      }
      for (size_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(mean[i], sum[i] / static_cast<float>(senders)) << i;
      }
    }
  }
}

TEST_P(StepLaw, FramesTogetherAreFramesOneByOne) {
  constexpr size_t kCount = 1536;
  OneChunk together(GetParam(), kCount, 8), one_by_one(GetParam(), kCount, 8);
  one_by_one.set_one_by_one(true);
  for (uint64_t step = 0; step < 4; ++step) {
    const OneChunk::Gradients gradients = Gradients(8, kCount, step);
    EXPECT_EQ(together.Step(gradients), one_by_one.Step(gradients));
    EXPECT_EQ(together.frames(), one_by_one.frames());
  }
}

TEST_P(StepLaw, IsAFunctionOfItsSeedAndInputs) {
  constexpr size_t kCount = 1536;
  OneChunk first(GetParam(), kCount, 2), second(GetParam(), kCount, 2);
  for (uint64_t step = 0; step < 4; ++step) {
    const OneChunk::Gradients gradients = Gradients(2, kCount, step);
    EXPECT_EQ(first.Step(gradients), second.Step(gradients));
    EXPECT_EQ(first.frames(), second.frames());
  }
}

// Random numbers must differ by job, chunk and step, and also by sender unless all senders must
// draw the same numbers.
TEST_P(StepLaw, RandomNumbersAreDrawnOnce) {
  constexpr size_t kCount = 1536;
  const std::vector<float> x = Gaussian(kCount, 41);
  const LoneCodec lone(ToString(GetParam()));
  const std::vector<std::byte> frame = lone.Encoded(x, {.own = 1, .shared = 2});
  const bool own = frame != lone.Encoded(x, {.own = 3, .shared = 2});
  const bool shared = frame != lone.Encoded(x, {.own = 1, .shared = 4});
  if (!own && !shared) GTEST_SKIP() << "the codec draws no random numbers";
  const auto encode = [&](uint64_t seed, uint32_t id, uint64_t step, uint32_t sender) {
    const ChunkConfig config{.count = kCount, .spec = GetParam(), .id = id, .rows = RowsOf(kCount)};
    Compressor compressor(absl::MakeConstSpan(&config, 1), {.seed = seed, .sender = sender});
    std::vector<std::byte> encoded;
    EXPECT_TRUE(compressor.Encode(0, step, x, &encoded).ok());
    return encoded;
  };
  const std::vector<std::byte> first = encode(1, 2, 3, 4);
  EXPECT_EQ(first, encode(1, 2, 3, 4));
  EXPECT_NE(first, encode(9, 2, 3, 4));
  EXPECT_NE(first, encode(1, 9, 3, 4));
  // Random numbers for a state are drawn before the first step, so they do not depend on the step.
  if (lone.codec().StateSize(kCount, RowsOf(kCount)) == 0) {
    EXPECT_NE(first, encode(1, 2, 9, 4));
  }
  EXPECT_EQ(first == encode(1, 2, 3, 9), !own);
}

TEST_P(StepLaw, SameStepsOnEveryInstructionSet) {
  constexpr size_t kCount = 2304;
  std::vector<std::vector<float>> wanted;
  std::vector<std::vector<std::vector<std::byte>>> wanted_frames;
  for (const std::string& target : SimdTargets()) {
    ForceSimdTarget(target);
    OneChunk chunk(GetParam(), kCount, 2);
    for (uint64_t step = 0; step < 4; ++step) {
      const std::vector<float> mean = chunk.Step(Gradients(2, kCount, step));
      if (target == SimdTargets().front()) {
        wanted.push_back(mean);
        wanted_frames.push_back(chunk.frames());
      }
      EXPECT_EQ(mean, wanted[step]) << target << ", step " << step;
      EXPECT_EQ(chunk.frames(), wanted_frames[step]) << target << ", step " << step;
    }
  }
  ForceSimdTarget("");
}

TEST_P(StepLaw, AGradientThatIsNotFiniteChangesNothing) {
  constexpr size_t kCount = 768;
  OneChunk chunk(GetParam(), kCount, 1), twin(GetParam(), kCount, 1);
  for (uint64_t step = 0; step < 3; ++step) {
    std::vector<float> bad = HeavyTailed(kCount, 50 + step);
    bad[step * 300] = step == 0 ? std::numeric_limits<float>::quiet_NaN()
                                : std::numeric_limits<float>::infinity();
    std::vector<std::byte> frame = {std::byte{1}};
    EXPECT_EQ(chunk.sender(0).Encode(0, step, bad, &frame).code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(frame, std::vector<std::byte>{std::byte{1}});
    const OneChunk::Gradients gradients = Gradients(1, kCount, step);
    EXPECT_EQ(chunk.Step(gradients), twin.Step(gradients));
    EXPECT_EQ(chunk.frames(), twin.frames());
  }
}

// Senders have constant gradients. If dropped values are sent later or rounding is unbiased, the
// average of the received values over the steps must converge to the mean gradient. If dropped
// values are lost, it must not converge.
TEST_P(StepLaw, ConstantGradientsArriveUnlessTheyAreLost) {
  if (Entry().aggregation == Aggregation::kVote) GTEST_SKIP() << "a vote has no magnitude";
  if (Feedback() == CompensatorId::kErrorFeedback && !OwesAllItLeavesOut()) {
    GTEST_SKIP() << "values that stay small enough fade before they are sent";
  }
  constexpr size_t kCount = 1536;
  // If a step sends one element in a thousand, an element may wait for a thousand steps.
  double density = MakeCodec(GetParam())->density();
  // blocktopk sends one element per block.
  if (Traits().sparse && Entry().level == LevelKind::kPowerOfTwo) density = 1 / GetParam().level;
  const uint64_t steps =
      kShortRuns ? 40
      : Traits().sparse
          ? std::max<uint64_t>(2000, density > 0 ? static_cast<uint64_t>(10 / density) : 0)
          : 400;
  OneChunk chunk(GetParam(), kCount, 2);
  const OneChunk::Gradients gradients = {Gaussian(kCount, 1), Gaussian(kCount, 2)};
  std::vector<float> target(kCount);
  for (size_t i = 0; i < kCount; ++i) target[i] = (gradients[0][i] + gradients[1][i]) / 2;
  std::vector<double> sum(kCount);
  // Relative errors of the average, after a tenth of the steps and at the end.
  double early = 0, late = 0;
  double last = 0;  // Relative error of the last step alone.
  for (uint64_t step = 1; step <= steps; ++step) {
    const std::vector<float> mean = chunk.Step(gradients);
    double error = 0;
    last = SquaredError(mean, target) / PropertyEnergy(target);
    for (size_t i = 0; i < kCount; ++i) {
      sum[i] += mean[i];
      const double off = sum[i] / static_cast<double>(step) - target[i];
      error += off * off;
    }
    if (step == steps / 10) early = error / PropertyEnergy(target);
    if (step == steps) late = error / PropertyEnergy(target);
  }
  RecordProperty("early", absl::StrCat(early));
  RecordProperty("late", absl::StrCat(late));
  if (kShortRuns) return;
  const bool lost = Feedback() == CompensatorId::kNone && !Traits().unbiased && !Traits().lossless;
  if (lost) {
    EXPECT_GT(late, 1e-13);
    EXPECT_GT(late, early / 2);
  } else if (Feedback() != CompensatorId::kDgc) {
    // DGC multiplies constant gradients by 1 / (1 - momentum).
    EXPECT_LE(late, early / 4 + 1e-10);
    EXPECT_LE(late, 0.05);
  }
  // The memories of sender and receiver must converge to the gradient.
  const bool remembered = Feedback() == CompensatorId::kEf21 || Feedback() == CompensatorId::kDiana;
  if (remembered) {
    EXPECT_LE(last, Traits().sparse ? 5e-3 : 1e-3);
  }
}

TEST_P(StepLaw, DgcWithoutMomentumIsFeedback) {
  if (Feedback() != CompensatorId::kDgc) GTEST_SKIP() << "this law does not apply";
  CodecSpec without = GetParam(), feedback = GetParam();
  without.compensator = {.id = CompensatorId::kDgc};
  feedback.compensator = {.id = CompensatorId::kErrorFeedback};
  constexpr size_t kCount = 1536;
  OneChunk a(without, kCount, 2), b(feedback, kCount, 2);
  for (uint64_t step = 0; step < 8; ++step) {
    const OneChunk::Gradients gradients = Gradients(2, kCount, step);
    EXPECT_EQ(a.Step(gradients), b.Step(gradients));
    EXPECT_EQ(a.frames(), b.frames());
  }
}

INSTANTIATE_TEST_SUITE_P(Specs, StepLaw, ::testing::ValuesIn(CompensatedSpecs()), CompensatedName);

}  // namespace
}  // namespace sluice::compress
