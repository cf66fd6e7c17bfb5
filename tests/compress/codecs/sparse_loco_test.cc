// SPDX-License-Identifier: Apache-2.0
// The parts of SparseLoCo (Sarfi et al. 2025, arXiv:2508.15706): bytes per kept element, the 2-bit
// values against the quantizer of the paper's code, and the decay of the residual.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "compress/compressor.h"
#include "gtest/gtest.h"
#include "tests/compress/test_data.h"

namespace sluice::compress {
namespace {

std::vector<float> NormalValues(size_t count, uint64_t seed) {
  CounterRandom random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(std::sqrt(-2 * std::log(1 - random.Uniform())) *
                               std::cos(2 * M_PI * random.Uniform()));
  }
  return values;
}

std::vector<float> KeptValues(const std::string& spec, const std::vector<float>& values,
                              uint32_t rows, std::vector<std::byte>* frame) {
  EncodeScratch scratch;
  EXPECT_TRUE(
      EncodeFrame(*CodecFor(spec), {.gradient = values, .rows = rows, .scratch = &scratch}, frame)
          .ok());
  return Decode(*frame, values.size());
}

TEST(SparseLoCo, AKeptElementTakesAsFewBitsAsPromised) {
  // The 32 bytes of headers and levels count, so a smaller chunk takes more: 9.73 and 11.0 bits at
  // 65,536 elements.
  struct Case {
    double density, bits;
    size_t count;
  };
  for (const Case& test : {Case{64.0 / 4096, 9.7, 81920}, {32.0 / 4096, 10.7, 196608}}) {
    const std::string spec =
        ToString(*ParseCodecSpec(absl::StrCat("topk_exact:", test.density, ",scope=block+2bit")));
    for (const uint32_t rows : {0u, 256u, 128u}) {
      std::vector<std::byte> frame;
      const std::vector<float> decoded =
          KeptValues(spec, NormalValues(test.count, 3), rows, &frame);
      const auto kept = static_cast<double>(
          std::count_if(decoded.begin(), decoded.end(), [](float x) { return x != 0; }));
      EXPECT_EQ(kept, test.density * static_cast<double>(test.count));
      const double bits = 8 * static_cast<double>(frame.size()) / kept;
      std::printf("%s in %u rows: %.2f bits per kept element\n", spec.c_str(), rows, bits);
      EXPECT_LE(bits, test.bits);
    }
  }
}

// The quantizer of the paper's code: four bins between mean ± 2 steps of 1.5 standard deviations,
// and the mean of each bin. Positive and negative values of small magnitude share a bin.
std::vector<float> QuantizedAsInThePaper(const std::vector<float>& values) {
  const auto count = static_cast<double>(values.size());
  double mean = 0, squares = 0;
  for (const float value : values) mean += value / count;
  for (const float value : values) squares += (value - mean) * (value - mean);
  const double step = 1.5 * std::sqrt(squares / (count - 1));
  const auto bin_of = [&](float value) {
    return static_cast<size_t>(std::clamp(std::round((value - mean) / step + 2), 0.0, 3.0));
  };
  std::array<double, 4> sums{}, counts{};
  for (const float value : values) {
    sums[bin_of(value)] += value;
    counts[bin_of(value)] += 1;
  }
  std::vector<float> decoded;
  for (const float value : values) {
    decoded.push_back(static_cast<float>(sums[bin_of(value)] / counts[bin_of(value)]));
  }
  return decoded;
}

double RelativeError(const std::vector<float>& values, const std::vector<float>& decoded) {
  double error = 0, energy = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    error += std::pow(values[i] - decoded[i], 2);
    energy += std::pow(values[i], 2);
  }
  return error / energy;
}

// The kept values have two humps, because no small value is kept.
TEST(SparseLoCo, TwoBitsLoseLessThanThePapersQuantizer) {
  for (const bool heavy_tailed : {false, true}) {
    const std::vector<float> values = heavy_tailed ? HeavyTailed(65536, 9) : NormalValues(65536, 9);
    std::vector<std::byte> frame;
    const std::vector<float> exact =
        KeptValues("topk_exact:1.5625%,scope=block/noef", values, 256, &frame);
    frame.clear();
    const std::vector<float> two_bits =
        KeptValues("topk_exact:1.5625%,scope=block+2bit/noef", values, 256, &frame);
    std::vector<float> kept, decoded;
    for (size_t i = 0; i < values.size(); ++i) {
      if (exact[i] == 0) continue;
      kept.push_back(values[i]);
      decoded.push_back(two_bits[i]);
      EXPECT_EQ(std::signbit(decoded.back()), std::signbit(kept.back()));
    }
    const double ours = RelativeError(kept, decoded);
    const double papers = RelativeError(kept, QuantizedAsInThePaper(kept));
    std::printf("%s values: relative error %.4f with 2bit, %.4f with the paper's quantizer\n",
                heavy_tailed ? "heavy-tailed" : "normal", ours, papers);
    EXPECT_LT(ours, papers / 1.5);
  }
}

TEST(SparseLoCo, TheResidualDecaysBeforeEachEncoding) {
  const size_t count = 5000;
  const float decay = 0.95f;
  Compressor compressor({{.count = count, .spec = *ParseCodecSpec("topk_exact:1%/ef:0.95")}}, {});
  std::vector<float> left(count);
  for (uint64_t step = 1; step <= 5; ++step) {
    const std::vector<float> gradient = HeavyTailed(count, step);
    std::vector<std::byte> frame;
    ASSERT_TRUE(compressor.Encode(0, step, gradient, &frame).ok());
    compressor.EndStep(step);
    const std::vector<float> decoded = Decode(frame, count);
    for (size_t i = 0; i < count; ++i) left[i] = gradient[i] + decay * left[i] - decoded[i];
    ASSERT_EQ(compressor.residual(0), absl::MakeConstSpan(left));
  }
}

}  // namespace
}  // namespace sluice::compress
