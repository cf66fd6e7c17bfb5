// SPDX-License-Identifier: Apache-2.0
// Compares momentum correction, factor masking, clipping and warm-up with a plain reference.
#include "compress/feedback/dgc.h"

#include <cmath>
#include <limits>

#include "compress/compressor.h"
#include "compress/simd/compensate.h"
#include "compress/simd/targets.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/test_data.h"

namespace sluice::compress {
namespace {

using ::testing::HasSubstr;

constexpr CompensatorSpec Spec(double momentum, double clip = 0) {
  return {.id = CompensatorId::kDgc, .level = momentum, .clip = clip};
}

std::vector<std::byte> EncodeOne(Compensator* compensator, const Codec& codec,
                                 const std::vector<float>& gradient) {
  std::vector<std::byte> frame;
  EXPECT_TRUE(compensator->Check(gradient).ok());
  EXPECT_TRUE(compensator->Encode(codec, {.gradient = gradient}, &frame).ok());
  return frame;
}

TEST(Dgc, WithoutMomentumItIsErrorFeedback) {
  for (const char* spec : {"topk:1%+int4", "ternary:0.5"}) {
    const std::unique_ptr<Codec> codec = CodecFor(spec);
    const std::unique_ptr<Compensator> dgc = MakeDgc(Spec(0), 900), plain = MakeErrorFeedback(900);
    for (uint64_t step = 0; step < 10; ++step) {
      const std::vector<float> gradient = HeavyTailed(900, step);
      EXPECT_EQ(EncodeOne(dgc.get(), *codec, gradient), EncodeOne(plain.get(), *codec, gradient));
    }
  }
}

TEST(Dgc, DeliversEveryMomentumAndMasksWhatWasSent) {
  const size_t count = 1500;
  const float beta = 0.9f;
  for (const char* spec : {"topk:1%", "topk:5%+int4", "ternary:0.5"}) {
    const std::unique_ptr<Codec> codec = CodecFor(spec);
    const std::unique_ptr<Compensator> dgc = MakeDgc(Spec(0.9), count);
    std::vector<float> u(count);
    std::vector<double> wanted(count), sent(count);
    double unmasked = 0, masked = 0;
    std::vector<double> plain(count);
    for (uint64_t step = 0; step < 80; ++step) {
      const std::vector<float> gradient = HeavyTailed(count, step);
      const std::vector<std::byte> frame = EncodeOne(dgc.get(), *codec, gradient);
      const std::vector<float> decoded = Decode(frame, count);
      for (size_t i = 0; i < count; ++i) {
        u[i] = beta * u[i] + gradient[i];
        plain[i] = beta * plain[i] + gradient[i];
        wanted[i] += u[i];
        masked += std::abs(u[i]);
        unmasked += std::abs(plain[i]);
        if (step % 7 != 3) sent[i] += decoded[i];
        if (decoded[i] != 0) u[i] = 0;
      }
      if (step % 7 == 3) {
        ASSERT_TRUE(dgc->ReturnFrame(frame).ok());
      }
      ASSERT_EQ(SaveFields(dgc->State()).at("momentum"), u) << step;
    }
    // Masking must have affected some elements, but not all.
    EXPECT_LT(masked, 0.999 * unmasked);
    EXPECT_GT(masked, 0.3 * unmasked);
    for (size_t i = 0; i < count; ++i) {
      EXPECT_NEAR(sent[i] + dgc->residual()[i], wanted[i], 1e-4) << i;
    }
  }
}

TEST(Dgc, ClipsToTheUsualNorm) {
  const size_t count = 400;
  const std::unique_ptr<Codec> codec = CodecFor("topk:1%");
  const std::unique_ptr<Compensator> dgc = MakeDgc(Spec(0, 2), count);
  const std::vector<float> zeros(count), usual(count, 1.0f);
  std::vector<float> spike(count, 100.0f);
  EncodeOne(dgc.get(), *codec, zeros);
  EXPECT_EQ(SaveFields(dgc->State()).at("norm"), std::vector<float>{0});
  EncodeOne(dgc.get(), *codec, usual);
  EXPECT_EQ(SaveFields(dgc->State()).at("norm"), std::vector<float>{20});
  EncodeOne(dgc.get(), *codec, spike);
  const SavedState state = SaveFields(dgc->State());
  // The gradient's elements were clipped from 100 to 2, and the average norm moved a tenth of the
  // way from 20 to 40.
  EXPECT_NEAR(state.at("momentum").back() + state.at("residual").back(), 2 + 3, 2.01);
  EXPECT_NEAR(state.at("norm")[0], 22, 1e-4);
  double total = 0;
  for (const float x : state.at("residual")) total = std::max(total, double{x});
  EXPECT_LE(total, 4);
}

TEST(Dgc, RefusesWhatWouldNotBeFinite) {
  const std::unique_ptr<Compensator> dgc = MakeDgc(Spec(0.9), 4);
  const float large = 3e38f;
  EncodeOne(dgc.get(), *CodecFor("topk:30%+sign"), {1, 2, 3, 4});
  const SavedState before = SaveFields(dgc->State());
  EXPECT_FALSE(dgc->Check({1.0f}).ok());
  EXPECT_THAT(std::string(dgc->Check({0, std::nanf(""), 0, 0}).message()), HasSubstr("element 1"));
  const std::unique_ptr<Compensator> full = MakeDgc(Spec(0.9), 2);
  ASSERT_TRUE(
      RestoreFields({{"momentum", {0, large}}, {"residual", {0, large}}}, full->State()).ok());
  EXPECT_THAT(std::string(full->Check({1.0f, large}).message()), HasSubstr("element 1"));
  EXPECT_EQ(SaveFields(dgc->State()), before);
}

TEST(Dgc, WarmupFallsByEqualFactors) {
  EXPECT_EQ(WarmupDensity(0.01, 1, 4), 0.25);
  EXPECT_EQ(WarmupDensity(0.01, 5, 4), 0.01);
  EXPECT_EQ(WarmupDensity(0.01, 7, 0), 0.01);
  EXPECT_EQ(WarmupDensity(0.5, 1, 9), 0.5);
  for (const uint32_t warmup : {1u, 3u, 400u, 1000000u}) {
    for (uint64_t step = 1; step <= warmup; step += 1 + warmup / 50) {
      const double exact = 0.25 * std::pow(0.001 / 0.25, (step - 1.0) / warmup);
      EXPECT_NEAR(WarmupDensity(0.001, step, warmup) / exact, 1, 1e-8) << step;
    }
  }
}

TEST(Dgc, WarmupIsWhatACompressorSends) {
  const size_t count = 16384;
  Compressor compressor(
      std::vector<ChunkConfig>{{count, *ParseCodecSpec("topk:1%/dgc:0,warmup=10")}}, {});
  for (uint64_t step = 1; step <= 14; ++step) {
    std::vector<std::byte> frame;
    ASSERT_TRUE(compressor.Encode(0, step, HeavyTailed(count, step), &frame).ok());
    compressor.EndStep(step);
    const std::vector<float> sent = Decode(frame, count);
    const auto kept = static_cast<double>(
        count - static_cast<size_t>(std::count(sent.begin(), sent.end(), 0.0f)));
    const double wanted = WarmupDensity(0.01, step, 10) * count;
    EXPECT_GT(kept, 0.6 * wanted) << step;
    EXPECT_LT(kept, 1.6 * wanted) << step;
  }
  EXPECT_FALSE(ParseCodecSpec("ternary:0.5/dgc:0.9,warmup=10").ok());
  EXPECT_FALSE(ParseCodecSpec("topk:1%/dgc:0.9,clip=1").ok());
  EXPECT_FALSE(ParseCodecSpec("int8/dgc:0.9").ok());
}

TEST(Dgc, GoesOnFromSavedStateBitForBit) {
  const size_t count = 700;
  const std::unique_ptr<Codec> codec = CodecFor("topk:2%+int4");
  const std::unique_ptr<Compensator> first = MakeDgc(Spec(0.9, 1.5), count);
  for (uint64_t step = 0; step < 9; ++step)
    EncodeOne(first.get(), *codec, HeavyTailed(count, step));
  const std::unique_ptr<Compensator> second = MakeDgc(Spec(0.9, 1.5), count);
  ASSERT_TRUE(RestoreFields(SaveFields(first->State()), second->State()).ok());
  for (uint64_t step = 9; step < 20; ++step) {
    const std::vector<float> gradient = HeavyTailed(count, step);
    EXPECT_EQ(EncodeOne(first.get(), *codec, gradient), EncodeOne(second.get(), *codec, gradient));
  }
  EXPECT_FALSE(RestoreFields({{"memory", {1}}}, second->State()).ok());
  EXPECT_FALSE(RestoreFields({{"norm", {1, 2}}}, second->State()).ok());
  EXPECT_FALSE(
      RestoreFields({{"norm", {std::numeric_limits<float>::infinity()}}}, second->State()).ok());
}

TEST(Dgc, KernelsGiveTheSameBitsOnEveryTarget) {
  for (const std::string& target : SimdTargets()) {
    ForceSimdTarget(target);
    for (size_t count = 0; count < 70; ++count) {
      const std::vector<float> g = HeavyTailed(count, 1), u = HeavyTailed(count, 2),
                               v = HeavyTailed(count, 3);
      std::vector<float> out(count), less(count), sum = v, cleared = u, sent = v;
      for (size_t i = 0; i < count; i += 3) sent[i] = i % 2 == 0 ? 0.0f : -0.0f;
      const uint32_t largest =
          StepMomentum(0.9f, 0.7f, g.data(), u.data(), v.data(), count, out.data());
      const uint32_t apart = Subtract(g.data(), u.data(), count, less.data());
      AddScaled(0.3f, g.data(), count, sum.data());
      ClearWhereSent(sent.data(), count, cleared.data());
      uint32_t wanted_largest = 0, wanted_apart = 0;
      double lanes[16] = {}, squares = 0;
      for (size_t i = 0; i < count; ++i) {
        const float moved = 0.9f * u[i] + 0.7f * g[i];
        EXPECT_EQ(out[i], moved);
        EXPECT_EQ(less[i], g[i] - u[i]);
        EXPECT_EQ(sum[i], v[i] + 0.3f * g[i]);
        EXPECT_EQ(cleared[i], sent[i] != 0 ? 0.0f : u[i]);
        wanted_largest = std::max(wanted_largest, std::bit_cast<uint32_t>(std::abs(moved + v[i])));
        wanted_apart = std::max(wanted_apart, std::bit_cast<uint32_t>(std::abs(g[i] - u[i])));
        lanes[i % 16] += double{g[i]} * g[i];
      }
      for (const double lane : lanes) squares += lane;
      EXPECT_EQ(largest, wanted_largest) << target << " " << count;
      EXPECT_EQ(apart, wanted_apart) << target << " " << count;
      EXPECT_EQ(SumOfSquares(g.data(), count), squares) << target << " " << count;
    }
  }
  ForceSimdTarget("");
}

}  // namespace
}  // namespace sluice::compress
