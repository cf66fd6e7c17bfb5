// SPDX-License-Identifier: Apache-2.0
#include "worker/core/gradient_view.h"

#include <bit>
#include <cmath>
#include <limits>

#include "compress/gpu/gpu_encoder.h"
#include "compress/gpu/kernels/host_device.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/gpu/breaking_device.h"
#include "tests/compress/gpu/lazy_device.h"
#include "worker/core/bundle_encoder.h"

namespace sluice::worker {
namespace {

using testing::ElementsAre;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<uint16_t> AllCodes() {
  std::vector<uint16_t> codes(1 << 16);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint16_t>(i);
  return codes;
}

void ExpectSame(float got, float want, size_t code) {
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(got)) << code;
  } else {
    EXPECT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(want)) << code;
  }
}

// Decodes an fp16 number by definition: a sign, 5 bits of exponent and 10 bits of mantissa.
float OfFp16(uint16_t code) {
  const int exponent = (code >> 10) & 31;
  const int mantissa = code & 1023;
  float value = 0;
  if (exponent == 31) {
    value = mantissa == 0 ? kInfinity : std::numeric_limits<float>::quiet_NaN();
  } else {
    value = std::ldexp(static_cast<float>(exponent == 0 ? mantissa : mantissa + 1024),
                       std::max(exponent, 1) - 25);
  }
  return (code & 0x8000) != 0 ? -value : value;
}

float OfBf16(uint16_t code) { return std::bit_cast<float>(uint32_t{code} << 16); }

TEST(GradientViewTest, EveryShortFloatIsWidenedExactly) {
  const std::vector<uint16_t> codes = AllCodes();
  GradientReader reader;
  for (const float scale : {1.0f, 0.25f, 1.0f / 3}) {
    const auto fp16 =
        reader.Read({codes.data(), codes.size(), compress::ElementType::kFloat16, scale});
    for (size_t i = 0; i < codes.size(); ++i) ExpectSame(fp16[i], OfFp16(codes[i]) * scale, i);
    const auto bf16 =
        reader.Read({codes.data(), codes.size(), compress::ElementType::kBfloat16, scale});
    for (size_t i = 0; i < codes.size(); ++i) ExpectSame(bf16[i], OfBf16(codes[i]) * scale, i);
  }
  // A span shorter than a SIMD vector must be read correctly too.
  const auto few = reader.Read({codes.data() + 0x3C00, 3, compress::ElementType::kFloat16});
  EXPECT_THAT(few, ElementsAre(1.0f, OfFp16(0x3C01), OfFp16(0x3C02)));
}

TEST(GradientViewTest, PlainFloatsAreReadWhereTheyLie) {
  const std::vector<float> values = {1, -2, 3};
  GradientReader reader;
  EXPECT_EQ(reader.Read(values).data(), values.data());
  EXPECT_THAT(reader.Read({values.data(), 3, compress::ElementType::kFloat32, 0.5f}),
              ElementsAre(0.5f, -1.0f, 1.5f));
}

TEST(GradientViewTest, FiniteIsWhatHasNoInfinityAndNoNan) {
  for (const size_t at : {0, 7, 99}) {
    for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
      std::vector<float> values(100, std::numeric_limits<float>::max());
      EXPECT_TRUE(IsFinite(values));
      values[at] = bad;
      EXPECT_FALSE(IsFinite(values)) << at;
    }
    for (const uint16_t bad : {0x7C00, 0xFC00, 0x7C01}) {
      std::vector<uint16_t> values(100, 0xFBFF);
      EXPECT_TRUE(IsFinite({values.data(), 100, compress::ElementType::kFloat16}));
      values[at] = bad;
      EXPECT_FALSE(IsFinite({values.data(), 100, compress::ElementType::kFloat16})) << at;
    }
    for (const uint16_t bad : {0x7F80, 0xFF80, 0x7FC0}) {
      std::vector<uint16_t> values(100, 0xFF7F);
      EXPECT_TRUE(IsFinite({values.data(), 100, compress::ElementType::kBfloat16}));
      values[at] = bad;
      EXPECT_FALSE(IsFinite({values.data(), 100, compress::ElementType::kBfloat16})) << at;
    }
  }
}

// A tensor of four chunks in one bundle.
class ShortGradientTest : public testing::Test {
 protected:
  static constexpr size_t kChunk = 256;
  static constexpr size_t kElements = 4 * kChunk;

  ShortGradientTest() {
    compression_.uplink = *compress::ParseCodecSpec("topk:10%+int4");
    compression_.min_elements = 0;
    compression_.layout = {.chunk_elements = kChunk, .bundle_elements = kElements};
    layout_ = *protocol::BuildLayout(table_, 1, compression_.layout);
  }

  BundleEncoder Encoder(compress::EncodingDevice* device = nullptr, size_t threads = 1) const {
    return {table_,
            layout_,
            compression_,
            0,
            {.quality_interval = 2, .device = device, .threads = threads}};
  }
  EncodedBundle Encode(uint64_t step, const GradientView& gradient, BundleEncoder* encoder) const {
    EncodeTask task;
    task.step = step;
    task.last_of_step = true;
    task.chunks = layout_.bundles[0][0].chunks;
    for (const uint32_t id : task.chunks) {
      const protocol::Chunk& chunk = layout_.chunks[id];
      task.gradients.push_back(gradient.Part(chunk.offset, chunk.count));
    }
    return encoder->Encode(task);
  }

  const protocol::TensorTable table_ = {{.name = "w", .shape = {kElements}, .strides = {}}};
  protocol::CompressionSpec compression_;
  protocol::Layout layout_;
};

TEST_F(ShortGradientTest, IsEncodedAsItsFloatsWouldBe) {
  BundleEncoder of_floats = Encoder();
  BundleEncoder of_halves = Encoder(/*device=*/nullptr, /*threads=*/3);
  for (uint64_t step = 0; step <= 5; ++step) {
    std::vector<uint16_t> halves(kElements);
    std::vector<float> floats(kElements);
    for (size_t i = 0; i < kElements; ++i) {
      halves[i] = static_cast<uint16_t>((i * 7919 + step * 104729) % 0x7C00 | (i % 2) << 15);
      floats[i] = OfFp16(halves[i]) * 0.125f;
    }
    const EncodedBundle want = Encode(step, floats, &of_floats);
    const EncodedBundle got = Encode(
        step, {halves.data(), kElements, compress::ElementType::kFloat16, 0.125f}, &of_halves);
    EXPECT_EQ(got.frames, want.frames) << "step " << step;
  }
}

TEST_F(ShortGradientTest, OneThatIsNotFiniteIsNamedAndKeepsItsResidual) {
  BundleEncoder encoder = Encoder();
  std::vector<uint16_t> halves(kElements, 0x3C00);
  ASSERT_FALSE(
      Encode(1, {halves.data(), kElements, compress::ElementType::kFloat16}, &encoder).skipped);
  const uint32_t bad = layout_.bundles[0][0].chunks[2];
  const absl::Span<const float> residual = encoder.compressor().residual(bad);
  const std::vector<float> before(residual.begin(), residual.end());
  halves[layout_.chunks[bad].offset + 5] = 0x7C00;
  const EncodedBundle skipped =
      Encode(2, {halves.data(), kElements, compress::ElementType::kFloat16}, &encoder);
  EXPECT_TRUE(skipped.skipped);
  EXPECT_EQ(skipped.skipped_tensor, 0u);
  EXPECT_EQ(encoder.compressor().residual(bad), absl::MakeConstSpan(before));
}

// Returns a GPU view. In this test, GPU memory is host memory.
GradientView OnGpu(const std::vector<uint16_t>& halves) {
  GradientView view(halves.data(), halves.size(), compress::ElementType::kFloat16, 0.125f);
  view.on_gpu = true;
  return view;
}

TEST_F(ShortGradientTest, IsEncodedOnAGpuAsItIsOnTheHost) {
  const auto device = compress::gpu::MakeEncodingDevice(
      std::make_unique<compress::gpu::LazyDevice>(compress::gpu::MakeHostDevice(1 << 24)));
  // The second codec has no kernel, so the host reads the gradient from the device.
  for (const char* const uplink : {"topk:10%+int4", "topk:10%/dgc:0.9"}) {
    compression_.uplink = *compress::ParseCodecSpec(uplink);
    BundleEncoder of_host = Encoder();
    BundleEncoder of_gpu = Encoder(device.get());
    for (uint64_t step = 1; step <= 6; ++step) {
      std::vector<uint16_t> halves(kElements);
      for (size_t i = 0; i < kElements; ++i) {
        halves[i] = static_cast<uint16_t>((i * 7919 + step * 104729) % 0x7C00 | (i % 2) << 15);
      }
      if (step == 4) halves[700] = 0x7C00;
      const EncodedBundle want = Encode(
          step, {halves.data(), kElements, compress::ElementType::kFloat16, 0.125f}, &of_host);
      const EncodedBundle got = Encode(step, OnGpu(halves), &of_gpu);
      EXPECT_TRUE(got.failure.ok()) << got.failure;
      EXPECT_EQ(got.skipped, step == 4);
      EXPECT_EQ(got.frames, want.frames) << uplink << ", step " << step;
    }
    EXPECT_GT(of_host.quality().chunks, 0u);
    EXPECT_EQ(of_gpu.quality().chunks, of_host.quality().chunks);
    EXPECT_EQ(of_gpu.quality().Cosine(), of_host.quality().Cosine());
    ASSERT_TRUE(of_gpu.Settle({}).ok());
    EXPECT_TRUE(of_gpu.Save() == of_host.Save());
  }
}

TEST_F(ShortGradientTest, WhatTheHostEncodesComesFromTheGpuAllAtOnce) {
  compress::gpu::DeviceCalls calls;
  const auto device =
      compress::gpu::MakeEncodingDevice(std::make_unique<compress::gpu::BreakingDevice>(
          compress::gpu::MakeHostDevice(1 << 24), 1000, &calls));
  compression_.uplink = *compress::ParseCodecSpec("topk:10%/dgc:0.9");
  BundleEncoder encoder = Encoder(device.get());
  int event = 0;
  for (uint64_t step = 0; step <= 2; ++step) {
    calls = {};
    const std::vector<uint16_t> halves(kElements, 0x3C00);
    GradientView gradient = OnGpu(halves);
    gradient.ready = &event;
    const EncodedBundle encoded = Encode(step, gradient, &encoder);
    EXPECT_TRUE(encoded.failure.ok()) << encoded.failure;
    EXPECT_EQ(encoded.frames.size(), 4u);
    EXPECT_EQ(calls.waits, 1) << "step " << step;
    EXPECT_EQ(calls.events, std::vector<void*>{&event});
  }
}

TEST_F(ShortGradientTest, AGpuThatFailsIsSaidSo) {
  for (const char* const uplink : {"topk:10%+int4", "topk:10%/dgc:0.9"}) {
    compress::gpu::DeviceCalls calls;
    const auto device =
        compress::gpu::MakeEncodingDevice(std::make_unique<compress::gpu::BreakingDevice>(
            compress::gpu::MakeHostDevice(1 << 24), 0, &calls));
    compression_.uplink = *compress::ParseCodecSpec(uplink);
    BundleEncoder encoder = Encoder(device.get());
    const EncodedBundle encoded = Encode(1, OnGpu(std::vector<uint16_t>(kElements)), &encoder);
    EXPECT_EQ(encoded.failure.code(), absl::StatusCode::kInternal) << uplink;
    EXPECT_TRUE(encoded.frames.empty());
  }
}

}  // namespace
}  // namespace sluice::worker
