// SPDX-License-Identifier: Apache-2.0
// Compares codec `intsum` with a plain reference, compares its aggregator with a sum of floats, and
// tests both together over several steps.
#include "compress/codecs/intsum.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "compress/aggregator.h"
#include "compress/compressor.h"
#include "compress/simd/targets.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/test_data.h"

namespace sluice::compress {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using IntSumBytes = std::vector<std::byte>;

CodecSpec SpecOf(int bits) { return *ParseCodecSpec(absl::StrCat("intsum:", bits)); }

int Largest(int bits) { return (1 << (bits - 1)) - 1; }

// Returns the smallest exponent that fits `largest`, at least -126, as the exponent field of an
// fp32. Returns 0 for 0.
int ReferenceExponent(double largest, int bits) {
  if (largest == 0) return 0;
  const int most = bits == 8 ? 121 : bits == 4 ? 125 : 126;
  int e = -126;
  while (e < most && Largest(bits) * std::ldexp(1.0, e) < largest) ++e;
  return e + 127;
}

// Computes the payload as docs/wire-format.md defines, in doubles and plain loops.
IntSumBytes ReferencePayload(const std::vector<float>& acc, int bits,
                             const std::vector<float>& state) {
  const size_t blocks = (acc.size() + 255) / 256;
  double largest = 0;
  for (const float x : acc) largest = std::max(largest, std::fabs(double{x}));
  IntSumBytes payload(1 + 2 * blocks);
  payload[0] = static_cast<std::byte>(bits);
  for (size_t block = 0; block < blocks; ++block) {
    const size_t at = block * 256, count = std::min<size_t>(256, acc.size() - at);
    const bool shared = !state.empty() && state[block] > 0;
    const int used = shared ? static_cast<int>(state[block]) : ReferenceExponent(largest, bits);
    double own = 0;
    const size_t size = (count * static_cast<size_t>(bits) + 7) / 8;
    std::vector<unsigned> packed(size);
    for (size_t i = 0; i < count; ++i) {
      own = std::max(own, std::fabs(double{acc[at + i]}));
      const double code = std::nearbyint(std::ldexp(double{acc[at + i]}, 127 - used));
      const int clipped = static_cast<int>(std::clamp<double>(code, -Largest(bits), Largest(bits)));
      packed[i % size] |= (static_cast<unsigned>(clipped) & ((1u << bits) - 1))
                          << (static_cast<size_t>(bits) * (i / size));
    }
    payload[1 + block] = static_cast<std::byte>(used);
    payload[1 + blocks + block] = static_cast<std::byte>(ReferenceExponent(own, bits));
    for (const unsigned byte : packed) payload.push_back(static_cast<std::byte>(byte));
  }
  return payload;
}

IntSumBytes EncodeIntSum(int bits, const std::vector<float>& gradient, std::vector<float>* state,
                         absl::Span<float> residual = {}) {
  IntSumBytes frame;
  EncodeInput input = {.gradient = gradient, .residual = residual};
  if (state != nullptr) input.state = absl::MakeSpan(*state);
  EXPECT_TRUE(EncodeFrame(*MakeIntSum(SpecOf(bits)), input, &frame).ok());
  return frame;
}

class IntSumOnTarget : public ::testing::TestWithParam<std::string> {
 protected:
  IntSumOnTarget() { ForceSimdTarget(GetParam()); }
  ~IntSumOnTarget() override { ForceSimdTarget(""); }
};

TEST_P(IntSumOnTarget, MatchesTheReferenceAtEveryLength) {
  for (const int bits : {2, 4, 8}) {
    for (size_t count = 0; count <= 600; count += count < 530 ? 1 : 7) {
      const std::vector<float> gradient = HeavyTailed(count, count);
      std::vector<float> state((count + 255) / 256);
      for (size_t i = 0; i < state.size(); ++i) state[i] = i == 1 ? 0.0f : 117.0f;
      const IntSumBytes frame = EncodeIntSum(bits, gradient, &state);
      const IntSumBytes wanted = ReferencePayload(gradient, bits, state);
      ASSERT_EQ(IntSumBytes(frame.begin() + kFrameHeaderSize, frame.end()), wanted) << count;
    }
  }
}

TEST_P(IntSumOnTarget, MatchesTheReferenceOnSpecialValues) {
  constexpr float kMax = std::numeric_limits<float>::max();
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  const std::vector<std::vector<float>> inputs = {
      std::vector<float>(300, 0.0f),  std::vector<float>(300, 1.0f),
      std::vector<float>(300, -kMax), std::vector<float>(300, kTiny),
      {kMax, -kMax, 1, 0, kTiny},     {7, -7, 0.5f, 1.5f, 2.5f, -0.0f},
      {127, -127, 8, 1e-30f},         {1.0000001f, 0.5f, -0.5f}};
  for (const int bits : {2, 4, 8}) {
    for (const std::vector<float>& gradient : inputs) {
      const IntSumBytes frame = EncodeIntSum(bits, gradient, nullptr);
      EXPECT_EQ(IntSumBytes(frame.begin() + kFrameHeaderSize, frame.end()),
                ReferencePayload(gradient, bits, {}));
      EXPECT_TRUE(ValidateFrame(frame, gradient.size()).ok());
    }
  }
}

TEST_P(IntSumOnTarget, ResidualTakesWhatIsClipped) {
  for (const int bits : {2, 4, 8}) {
    const std::vector<float> gradient = HeavyTailed(700, 3);
    std::vector<float> residual = HeavyTailed(700, 4);
    std::vector<float> acc(700), state(3, 100.0f);
    for (size_t i = 0; i < acc.size(); ++i) acc[i] = gradient[i] + residual[i];
    const IntSumBytes frame = EncodeIntSum(bits, gradient, &state, absl::MakeSpan(residual));
    const std::vector<float> decoded = Decode(frame, 700);
    size_t clipped = 0;
    for (size_t i = 0; i < acc.size(); ++i) {
      const float wanted = acc[i] - decoded[i];
      EXPECT_EQ(std::memcmp(&wanted, &residual[i], sizeof(wanted)), 0) << i;
      clipped += std::fabs(decoded[i]) == std::ldexp(Largest(bits), 100 - 127) ? 1 : 0;
    }
    EXPECT_GT(clipped, 100u);
  }
}

// Checks that the aggregator for `bits` gives the same mean as a plain sum of floats.
void ExpectSameMean(int bits, uint32_t senders, const std::vector<IntSumBytes>& frames,
                    size_t count, size_t at_once) {
  const std::unique_ptr<Aggregator> integers =
      MakeAggregator({.count = count, .spec = SpecOf(bits)}, senders);
  const std::unique_ptr<Aggregator> floats = MakeAdditiveAggregator(count);
  // Two identical steps must give the same result, because a step must leave no state for the next.
  for (int step = 0; step < 2; ++step) {
    std::vector<float> a(count), b(count);
    std::vector<SenderFrame> all;
    for (uint32_t i = 0; i < frames.size(); ++i) {
      ASSERT_TRUE(integers->Validate(i, frames[i]).ok());
      all.push_back({i, frames[i]});
    }
    for (size_t i = 0; i < all.size(); i += at_once) {
      integers->Add(absl::MakeSpan(all).subspan(i, at_once), absl::MakeSpan(a));
    }
    floats->Add(all, absl::MakeSpan(b));
    integers->Close(static_cast<uint32_t>(frames.size()), absl::MakeSpan(a));
    floats->Close(static_cast<uint32_t>(frames.size()), absl::MakeSpan(b));
    ASSERT_EQ(std::memcmp(a.data(), b.data(), count * sizeof(float)), 0)
        << bits << " bits, " << senders << " senders, " << count << " elements";
  }
}

TEST_P(IntSumOnTarget, IntegersGiveTheBitsOfFloats) {
  for (const int bits : {2, 4, 8}) {
    for (const size_t count : {1u, 255u, 256u, 257u, 1000u}) {
      for (const uint32_t senders : {1u, 2u, 8u, 17u, 18u, 19u, 40u}) {
        std::vector<IntSumBytes> frames;
        std::vector<float> state((count + 255) / 256, 118.0f);
        for (uint32_t i = 0; i < senders; ++i) {
          // All values have the largest code, so that sums are as large as possible.
          const std::vector<float> gradient =
              i % 5 == 4 ? HeavyTailed(count, i) : std::vector<float>(count, i % 2 ? 1.0f : 2.0f);
          frames.push_back(EncodeIntSum(bits, gradient, &state));
        }
        for (const size_t at_once : {size_t{1}, size_t{3}, size_t{64}}) {
          ExpectSameMean(bits, senders, frames, count, at_once);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, IntSumOnTarget, ::testing::ValuesIn(SimdTargets()),
                         [](const auto& param) { return param.param; });

TEST(IntSumAggregator, MixedFramesGiveTheBitsOfFloats) {
  const size_t count = 1000;
  std::vector<float> shared(4, 118.0f), other(4, 118.0f), huge(4, 250.0f);
  other[3] = 119.0f;
  std::vector<IntSumBytes> frames;
  for (uint64_t i = 0; i < 4; ++i)
    frames.push_back(EncodeIntSum(4, HeavyTailed(count, i), &shared));
  frames.push_back(EncodeIntSum(4, HeavyTailed(count, 9), &other));
  frames.push_back(EncodeIntSum(8, HeavyTailed(count, 10), &shared));
  frames.emplace_back();
  const std::vector<float> gradient = HeavyTailed(count, 11);
  ASSERT_TRUE(EncodeFrame(*CodecFor("fp16"), {gradient, {}}, &frames.back()).ok());
  for (const size_t at_once : {1u, 2u, 7u}) ExpectSameMean(4, 8, frames, count, at_once);
  std::rotate(frames.begin(), frames.begin() + 4, frames.end());
  ExpectSameMean(4, 8, frames, count, 3);
  const std::vector<IntSumBytes> large = {
      EncodeIntSum(4, std::vector<float>(count, 1e37f), &huge),
      EncodeIntSum(4, std::vector<float>(count, -1e37f), &huge)};
  ExpectSameMean(4, 2, large, count, 2);
}

TEST(IntSumAggregator, MoreFramesThanIntegersCanHold) {
  std::vector<float> state(2, 118.0f);
  const IntSumBytes frame = EncodeIntSum(8, std::vector<float>(300, 1.0f), &state);
  ExpectSameMean(8, 300, std::vector<IntSumBytes>(300, frame), 300, 300);
  const IntSumBytes small = EncodeIntSum(4, std::vector<float>(300, 1.0f), &state);
  // There are more frames than the aggregator was created for.
  ExpectSameMean(4, 2, std::vector<IntSumBytes>(40, small), 300, 7);
}

TEST(IntSumAggregator, SharesTheLargestWantedExponents) {
  const size_t count = 600;
  const std::unique_ptr<Aggregator> aggregator =
      MakeAggregator({.count = count, .spec = SpecOf(4)}, 2);
  IntSumBytes shared;
  aggregator->AppendShared(&shared);
  EXPECT_TRUE(shared.empty()) << "nothing is known before the first step";
  std::vector<float> a(count, 0.0f), b(count, 0.0f), sum(count);
  a[0] = 7;     // This fits 7 x 2^0.
  b[1] = 7.5f;  // This needs 2^1.
  b[300] = 0.875f;
  const std::vector<IntSumBytes> frames = {EncodeIntSum(4, a, nullptr),
                                           EncodeIntSum(4, b, nullptr)};
  aggregator->Add({{0, frames[0]}, {1, frames[1]}}, absl::MakeSpan(sum));
  aggregator->Close(2, absl::MakeSpan(sum));
  aggregator->AppendShared(&shared);
  ASSERT_TRUE(ValidateFrame(shared, count).ok());
  EXPECT_EQ(FrameFormat(shared).id, FormatId::kExponents);
  const absl::Span<const std::byte> payload = FramePayload(shared);
  EXPECT_EQ(IntSumBytes(payload.begin(), payload.end()),
            (IntSumBytes{std::byte{128}, std::byte{124}, std::byte{0}}));
  std::vector<float> untouched = HeavyTailed(count, 1);
  const std::vector<float> before = untouched;
  ASSERT_TRUE(DecodeAddFrame(shared, absl::MakeSpan(untouched)).ok());
  EXPECT_EQ(untouched, before) << "exponents must add no values";

  std::vector<float> state(3);
  const std::unique_ptr<Codec> codec = MakeIntSum(SpecOf(4));
  codec->Observe(shared, absl::MakeSpan(state));
  EXPECT_THAT(state, ::testing::ElementsAre(128, 124, 128))
      << "a block of zeros starts with the largest exponent";
  // A shard that is the only sender observes its own frame.
  std::vector<float> own(3);
  codec->Observe(frames[1], absl::MakeSpan(own));
  EXPECT_THAT(own, ::testing::ElementsAre(128, 124, 128));
  // A worker observes that frame, and then the published exponents, which take precedence.
  IntSumBytes both = EncodeIntSum(4, a, nullptr);
  both.insert(both.end(), shared.begin(), shared.end());
  codec->Observe(both, absl::MakeSpan(own));
  EXPECT_EQ(own, state);
}

// Several workers, a receiver and its published frames, over several steps.
struct Job {
  Job(int bits, uint32_t senders, size_t elements) : count(elements) {
    const ChunkConfig chunk = {.count = elements, .spec = SpecOf(bits)};
    aggregator = MakeAggregator(chunk, senders);
    for (uint32_t i = 0; i < senders; ++i) {
      workers.emplace_back(absl::MakeSpan(&chunk, 1), Compressor::Options{.sender = i});
    }
  }

  // Runs a step and returns its frames. `*mean` receives their mean.
  std::vector<IntSumBytes> Step(uint64_t step, float scale, std::vector<float>* mean) {
    std::vector<IntSumBytes> frames(workers.size());
    std::vector<SenderFrame> all;
    for (uint32_t i = 0; i < workers.size(); ++i) {
      const std::vector<float> gradient = HeavyTailed(count, 100 * step + i, scale);
      EXPECT_TRUE(workers[i].Encode(0, step, gradient, &frames[i]).ok());
      all.push_back({i, frames[i]});
    }
    mean->assign(count, 0.0f);
    aggregator->Add(all, absl::MakeSpan(*mean));
    aggregator->Close(static_cast<uint32_t>(workers.size()), absl::MakeSpan(*mean));
    IntSumBytes published;
    EXPECT_TRUE(EncodeFrame(*CodecFor("none"), {*mean, {}}, &published).ok());
    aggregator->AppendShared(&published);
    for (Compressor& worker : workers) {
      EXPECT_TRUE(worker.observes(0));
      worker.Observe(0, published);
    }
    return frames;
  }

  size_t count;
  std::unique_ptr<Aggregator> aggregator;
  std::vector<Compressor> workers;
};

TEST(IntSum, SendersAgreeFromTheSecondStepAndNothingIsLost) {
  for (const int bits : {2, 4, 8}) {
    Job job(bits, 4, 1000);
    std::vector<double> sent(1000), wanted(1000);
    for (uint64_t step = 0; step < 40; ++step) {
      const float scale = step < 20 ? 1e-3f : 1e-4f;
      std::vector<float> mean;
      const std::vector<IntSumBytes> frames = job.Step(step, scale, &mean);
      for (size_t i = 1; i < frames.size() && step > 0; ++i) {
        EXPECT_TRUE(std::equal(frames[0].begin() + kFrameHeaderSize,
                               frames[0].begin() + kFrameHeaderSize + 5,
                               frames[i].begin() + kFrameHeaderSize))
            << "exponents of sender " << i << " in step " << step;
      }
      for (uint32_t w = 0; w < 4; ++w) {
        const std::vector<float> gradient = HeavyTailed(1000, 100 * step + w, scale);
        for (size_t i = 0; i < 1000; ++i) wanted[i] += gradient[i];
      }
      for (size_t i = 0; i < 1000; ++i) sent[i] += 4.0 * mean[i];
    }
    for (size_t i = 0; i < 1000; ++i) {
      double residual = 0;
      for (Compressor& worker : job.workers) residual += worker.residual(0)[i];
      EXPECT_NEAR(sent[i] + residual, wanted[i], 2e-5) << i;
    }
  }
}

// Returns |residual|^2 / |acc|^2 of one step with fitting exponents and Gaussian values.
double ErrorOf(int bits) {
  const size_t count = 64 * 256;
  CounterRandom random(5);
  std::vector<float> gradient(count);
  for (float& x : gradient) {
    x = static_cast<float>(std::sqrt(-2 * std::log(1 - random.Uniform())) *
                           std::cos(6.283185307179586 * random.Uniform()));
  }
  std::vector<float> state(64), residual(count);
  IntSumBytes first = EncodeIntSum(bits, gradient, nullptr);
  MakeIntSum(SpecOf(bits))->Observe(first, absl::MakeSpan(state));
  EncodeIntSum(bits, gradient, &state, absl::MakeSpan(residual));
  double lost = 0, all = 0;
  for (size_t i = 0; i < count; ++i) {
    lost += double{residual[i]} * residual[i];
    all += double{gradient[i]} * gradient[i];
  }
  return lost / all;
}

TEST(IntSum, ErrorIsThatOfItsStep) {
  // The largest of 256 Gaussian values is usually between 2 and 4. The steps are then 2^-1
  // (sometimes 2^0) with 4 bits and 2^-5 (sometimes 2^-4) with 8 bits, and the errors are the
  // squares of the steps over 12. With 2 bits, hardly any value is sent.
  EXPECT_GT(ErrorOf(8), 0.8e-4);
  EXPECT_LT(ErrorOf(8), 1.2e-4);
  EXPECT_GT(ErrorOf(4), 0.02);
  EXPECT_LT(ErrorOf(4), 0.05);
  EXPECT_GT(ErrorOf(2), 0.4);
  EXPECT_LT(ErrorOf(2), 1.0);
}

TEST(IntSum, StateOfAnyKindIsSafe) {
  for (const float value : {-1.0f, 0.5f, 1e30f, std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity()}) {
    std::vector<float> state(2, value);
    const IntSumBytes frame = EncodeIntSum(8, HeavyTailed(300, 1), &state);
    for (const float decoded : Decode(frame, 300)) EXPECT_TRUE(std::isfinite(decoded)) << value;
  }
}

TEST(IntSum, RefusesOtherBits) {
  EXPECT_THAT(std::string(ParseCodecSpec("intsum:3").status().message()),
              AllOf(HasSubstr("power of two"), HasSubstr("from 2 to 8")));
  EXPECT_FALSE(ParseCodecSpec("intsum:16").ok());
  EXPECT_FALSE(ParseCodecSpec("intsum:1").ok());
  EXPECT_FALSE(ParseCodecSpec("intsum").ok());
}

TEST(IntSum, RefusesWhatNoEncoderWrites) {
  const auto message = [](const std::vector<int>& bytes, size_t count) {
    IntSumBytes payload;
    for (const int byte : bytes) payload.push_back(static_cast<std::byte>(byte));
    return std::string(ValidateIntSum(payload, count).message());
  };
  EXPECT_EQ(message({4, 127, 127, 0x71, 0x0F}, 3), "");  // The codes 1, -1 and 7.
  EXPECT_EQ(message({2, 127, 127, 0x1D}, 3), "");        // The codes 1, -1 and 1.
  EXPECT_THAT(message({}, 3), HasSubstr("has 0 bytes"));
  EXPECT_THAT(message({3, 127, 127, 0, 0}, 3), HasSubstr("codes of 3 bits"));
  EXPECT_THAT(message({4, 127, 127, 0}, 3), HasSubstr("should have 5"));
  EXPECT_THAT(message({4, 127, 127, 0x81, 0x0F}, 3), HasSubstr("unused code"));
  EXPECT_THAT(message({2, 127, 127, 0x02}, 3), HasSubstr("unused code"));
  EXPECT_THAT(message({4, 127, 127, 0x71, 0x1F}, 3), HasSubstr("bits after its last code"));
  EXPECT_THAT(message({2, 127, 127, 0x40}, 3), HasSubstr("bits after its last code"));
  EXPECT_THAT(message({4, 253, 127, 0, 0}, 3), HasSubstr("too large"));
  EXPECT_THAT(message({8, 249, 127, 0, 0, 0}, 3), HasSubstr("too large"));
  EXPECT_THAT(message({8, 127, 255, 0, 0, 0}, 3), HasSubstr("too large"));
  EXPECT_THAT(message({4, 0, 127, 1, 0}, 3), HasSubstr("without an exponent"));
  EXPECT_THAT(message({4, 127, 0, 1, 0}, 3), HasSubstr("without an exponent"));
  EXPECT_FALSE(ValidateExponents({}, 3).ok());
  EXPECT_FALSE(ValidateExponents({std::byte{254}}, 3).ok());
  EXPECT_TRUE(ValidateExponents({std::byte{253}}, 256).ok());
  EXPECT_FALSE(ValidateExponents({std::byte{253}}, 257).ok());
}

}  // namespace
}  // namespace sluice::compress
