// SPDX-License-Identifier: Apache-2.0
// Tests that kernels of codecs with a fixed number of bits produce the processor's bytes.
#include "base/float_bits.h"
#include "compress/format_table.h"
#include "compress/gpu/kernels/cast.h"
#include "compress/gpu/kernels/eden.h"
#include "compress/gpu/kernels/fp8.h"
#include "compress/gpu/kernels/intsum.h"
#include "compress/gpu/kernels/largest.h"
#include "compress/gpu/kernels/linear.h"
#include "compress/gpu/kernels/minmax.h"
#include "compress/gpu/kernels/natural.h"
#include "compress/gpu/kernels/qsgd.h"
#include "compress/gpu/kernels/sign.h"
#include "tests/compress/gpu/kernels/encoded.h"

namespace sluice::compress::gpu {
namespace {

template <class Kernel>
void ExpectSamePayloads(const std::string& spec) {
  ForEachMade(spec, [&](Made& made, ThreadOrder order) {
    RunOnHost(Kernel{made.chunks(), made.tiles()}, made.tile_count(), order);
    made.ExpectPayloads();
    made.ExpectResiduals();
  });
}

TEST(CudaKernels, Casts) {
  ExpectSamePayloads<EncodeCast<ToFp16, Fp32, false>>("fp16");
  ExpectSamePayloads<EncodeCast<ToBf16, Fp32, false>>("bf16");
  ExpectSamePayloads<EncodeCast<ToFp16, Fp32, true>>("fp16:sr");
  ExpectSamePayloads<EncodeCast<ToBf16, Fp32, true>>("bf16:sr");
}

TEST(CudaKernels, Fp8) {
  ExpectSamePayloads<EncodeFp8<E4m3, Fp32, false>>("fp8");
  ExpectSamePayloads<EncodeFp8<E5m2, Fp32, false>>("fp8:e5m2");
  ExpectSamePayloads<EncodeFp8<E4m3, Fp32, true>>("fp8:sr");
  ExpectSamePayloads<EncodeFp8<E5m2, Fp32, true>>("fp8:e5m2,sr");
}

TEST(CudaKernels, Linear) {
  ExpectSamePayloads<EncodeLinear<8, Fp32, false>>("int8");
  ExpectSamePayloads<EncodeLinear<4, Fp32, false>>("int4");
  ExpectSamePayloads<EncodeLinear<2, Fp32, false>>("int2");
  ExpectSamePayloads<EncodeLinear<8, Fp32, true>>("int8:sr");
  ExpectSamePayloads<EncodeLinear<4, Fp32, true>>("int4:sr");
  ExpectSamePayloads<EncodeLinear<2, Fp32, true>>("int2:sr");
}

TEST(CudaKernels, MinMax) {
  ExpectSamePayloads<EncodeMinMax<8, Fp32, false>>("int8:minmax");
  ExpectSamePayloads<EncodeMinMax<4, Fp32, false>>("int4:minmax");
  ExpectSamePayloads<EncodeMinMax<8, Fp32, true>>("int8:minmax,sr");
  ExpectSamePayloads<EncodeMinMax<4, Fp32, true>>("int4:minmax,sr");
}

TEST(CudaKernels, Qsgd) {
  ExpectSamePayloads<EncodeQsgd<2, Fp32>>("qsgd:2");
  ExpectSamePayloads<EncodeQsgd<4, Fp32>>("qsgd:4");
  ExpectSamePayloads<EncodeQsgd<5, Fp32>>("qsgd:5");
  ExpectSamePayloads<EncodeQsgd<8, Fp32>>("qsgd:8");
}

TEST(CudaKernels, None) { ExpectSamePayloads<EncodeCast<ToFp32, Fp32, false>>("none"); }

TEST(CudaKernels, Eden) {
  ExpectSamePayloads<EncodeEden<1, Fp32>>("eden:1");
  ExpectSamePayloads<EncodeEden<2, Fp32>>("eden:2");
  ExpectSamePayloads<EncodeEden<3, Fp32>>("eden:3");
  ExpectSamePayloads<EncodeEden<4, Fp32>>("eden:4");
}

TEST(CudaKernels, Natural) {
  ForEachMade("natural", [](Made& made, ThreadOrder order) {
    std::vector<uint16_t> codes(made.elements());
    std::vector<uint32_t> sizes(made.chunk_count());
    RunOnHost(EncodeNatural<Fp32>{made.chunks(), made.tiles(), codes.data()}, made.tile_count(),
              order);
    RunOnHost(PackNatural{made.chunks(), made.tiles(), codes.data(), sizes.data()},
              made.tile_count(), order);
    made.ExpectPayloads();
    made.ExpectResiduals();
    for (uint32_t i = 0; i < made.chunk_count(); ++i) {
      EXPECT_EQ(sizes[i], made.made(i).expected.size()) << i;
    }
  });
}

template <int kBits>
void ExpectSameIntSum(const std::string& spec) {
  for (const ThreadOrder order : kOrders) {
    Made made(spec, true);
    std::vector<float> exponents(made.blocks());
    std::vector<uint32_t> largest(made.chunk_count());
    RunOnHost(Largest<Fp32>{made.chunks(), made.tiles(), largest.data()}, made.tile_count(), order);
    RunOnHost(
        EncodeIntSum<kBits, Fp32>{made.chunks(), made.tiles(), exponents.data(), largest.data()},
        made.tile_count(), order);
    made.ExpectPayloads();
    made.ExpectResiduals();
    // Some shared exponents do not fit the values, and some blocks have none yet.
    for (uint32_t i = 0; i < exponents.size(); ++i) exponents[i] = static_cast<float>(i * 37 % 260);
    uint32_t compared = 0;
    for (uint32_t i = 0; i < made.chunk_count(); ++i) {
      Chunk& chunk = made.mutable_chunks()[i];
      std::vector<float> residual = made.made(i).residual;
      std::vector<float> state(made.codec().StateSize(chunk.count, 0));
      std::copy_n(exponents.begin() + chunk.first_block, state.size(), state.begin());
      std::vector<std::byte> frame;
      EncodeInput input;
      input.gradient = made.made(i).gradient;
      input.residual = absl::MakeSpan(residual);
      input.state = absl::MakeSpan(state);
      // With clipped values in the residual, sums may become infinite; such frames are skipped.
      if (!EncodeFrame(made.codec(), input, &frame).ok()) continue;
      ++compared;
      largest.assign(largest.size(), 0);
      RunOnHost(Largest<Fp32>{made.chunks(), made.tiles(), largest.data()}, made.tile_count());
      const std::vector<Chunk> one = {chunk};
      const std::vector<Tile> tiles = MakeTiles(one);
      RunOnHost(
          EncodeIntSum<kBits, Fp32>{one.data(), tiles.data(), exponents.data(), largest.data() + i},
          static_cast<uint32_t>(tiles.size()), order);
      ASSERT_EQ(std::memcmp(chunk.payload, frame.data() + kFrameHeaderSize,
                            frame.size() - kFrameHeaderSize),
                0)
          << i;
      ASSERT_EQ(std::memcmp(chunk.residual, residual.data(), residual.size() * sizeof(float)), 0);
    }
    EXPECT_GT(compared, made.chunk_count() * 2 / 3);
  }
}

TEST(CudaKernels, IntSum) {
  ExpectSameIntSum<8>("intsum:8");
  ExpectSameIntSum<4>("intsum:4");
  ExpectSameIntSum<2>("intsum:2");
}

// Checks that the kernel adds the same values as a receiver.
template <class Kernel>
void ExpectSameSumDense(const std::string& spec, bool with_residual = false) {
  Made made(spec, with_residual);
  std::vector<std::vector<float>> sums(made.chunk_count()), wanted(made.chunk_count());
  for (uint32_t i = 0; i < made.chunk_count(); ++i) {
    Chunk& chunk = made.mutable_chunks()[i];
    const MadeChunk& one = made.made(i);
    sums[i] = wanted[i] = MadeUp(i / 3, chunk.count, i);  // The sums include zeros of both signs.
    std::memcpy(chunk.payload, one.expected.data(), one.expected.size());
    chunk.sum = sums[i].data();
    FindFormat(made.codec().format())->decode_add(one.expected, absl::MakeSpan(wanted[i]));
  }
  RunOnHost(Kernel{made.chunks(), made.tiles()}, made.tile_count());
  for (uint32_t i = 0; i < made.chunk_count(); ++i) {
    ASSERT_EQ(std::memcmp(sums[i].data(), wanted[i].data(), 4 * sums[i].size()), 0) << i;
  }
}

TEST(CudaKernels, DecodeAdd) {
  ExpectSameSumDense<AddCast<ToFp16>>("fp16");
  ExpectSameSumDense<AddCast<ToBf16>>("bf16");
  ExpectSameSumDense<AddFp8<E4m3>>("fp8");
  ExpectSameSumDense<AddFp8<E5m2>>("fp8:e5m2");
  ExpectSameSumDense<AddLinear<8>>("int8");
  ExpectSameSumDense<AddLinear<4>>("int4");
  ExpectSameSumDense<AddLinear<2>>("int2");
  ExpectSameSumDense<AddMinMax<8>>("int8:minmax");
  ExpectSameSumDense<AddMinMax<4>>("int4:minmax");
  ExpectSameSumDense<AddQsgd<2>>("qsgd:2");
  ExpectSameSumDense<AddQsgd<4>>("qsgd:4");
  ExpectSameSumDense<AddQsgd<8>>("qsgd:8");
  ExpectSameSumDense<AddNatural>("natural");
  for (const bool with_residual : {false, true}) {  // One rotation with a residual, two without.
    ExpectSameSumDense<AddRotated>("eden:1", with_residual);
    ExpectSameSumDense<AddRotated>("eden:3", with_residual);
    ExpectSameSumDense<AddRotated>("eden:4", with_residual);
  }
  ExpectSameSumDense<AddIntSum<8>>("intsum:8");
  ExpectSameSumDense<AddIntSum<4>>("intsum:4");
  ExpectSameSumDense<AddIntSum<2>>("intsum:2");
  ExpectSameSumDense<AddSign<SignMeans::kOne>>("sign");
  ExpectSameSumDense<AddSign<SignMeans::kTwo>>("onebit");
  ExpectSameSumDense<AddSign<SignMeans::kNone>>("signsgd");
}

// Gradients of 16 bits must be encoded like their fp32 values.
template <class Kernel, class Gradient>
void ExpectSameOfHalves(const std::string& spec, uint16_t (*narrow)(float)) {
  const std::vector<float> values = MadeUp(6, 5000, 5);
  std::vector<uint16_t> halves(values.size());
  std::vector<float> wide(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    halves[i] = narrow(values[i]);
    wide[i] = Gradient::Widen(halves[i]);
  }
  std::vector<float> residual(values.size(), 0.25f), wanted = residual;
  std::vector<std::byte> frame;
  ASSERT_TRUE(EncodeFrame(*MakeCodec(*ParseCodecSpec(spec)),
                          {.gradient = wide, .residual = absl::MakeSpan(wanted)}, &frame)
                  .ok());
  std::vector<uint8_t> payload(frame.size());
  Chunk chunk;
  chunk.gradient = halves.data();
  chunk.residual = chunk.left = residual.data();
  chunk.count = static_cast<uint32_t>(values.size());
  chunk.payload = payload.data();
  const std::vector<Tile> tiles = MakeTiles({chunk});
  RunOnHost(Kernel{&chunk, tiles.data()}, static_cast<uint32_t>(tiles.size()));
  EXPECT_EQ(
      std::memcmp(payload.data(), frame.data() + kFrameHeaderSize, frame.size() - kFrameHeaderSize),
      0);
  EXPECT_EQ(residual, wanted);
}

TEST(CudaKernels, GradientsOfSixteenBits) {
  const auto half = [](float x) { return ToHalf(x); };
  const auto bfloat = [](float x) { return ToBfloat(x); };
  ExpectSameOfHalves<EncodeLinear<4, Fp16, false>, Fp16>("int4", half);
  ExpectSameOfHalves<EncodeLinear<4, Bf16, false>, Bf16>("int4", bfloat);
  ExpectSameOfHalves<EncodeMinMax<8, Fp16, false>, Fp16>("int8:minmax", half);
  ExpectSameOfHalves<EncodeMinMax<8, Bf16, false>, Bf16>("int8:minmax", bfloat);
  ExpectSameOfHalves<EncodeQsgd<4, Fp16>, Fp16>("qsgd:4", half);
  ExpectSameOfHalves<EncodeQsgd<4, Bf16>, Bf16>("qsgd:4", bfloat);
  ExpectSameOfHalves<EncodeEden<2, Fp16>, Fp16>("eden:2", half);
  ExpectSameOfHalves<EncodeEden<2, Bf16>, Bf16>("eden:2", bfloat);
  ExpectSameOfHalves<EncodeFp8<E4m3, Fp16, false>, Fp16>("fp8", half);
  ExpectSameOfHalves<EncodeFp8<E4m3, Bf16, false>, Bf16>("fp8", bfloat);
}

TEST(CudaKernels, WhatIsNotFiniteIsSeenAnywhere) {
  for (const uint32_t count : {1u, 257u, 5000u}) {
    for (const float bad : {INFINITY, -INFINITY, NAN}) {
      for (const uint32_t at : {0u, count / 2, count - 1}) {
        std::vector<float> gradient(count, 1.5f), left(count);
        const std::vector<float> residual(count, -3.5f);
        std::vector<uint8_t> payload(2 * count);
        uint32_t refused = 0;
        Chunk chunk;
        chunk.gradient = gradient.data();
        chunk.residual = residual.data();
        chunk.left = left.data();
        chunk.count = count;
        chunk.payload = payload.data();
        chunk.refused = &refused;
        const std::vector<Tile> tiles = MakeTiles({chunk});
        const EncodeCast<ToFp16, Fp32, false> encode{&chunk, tiles.data()};
        RunOnHost(encode, static_cast<uint32_t>(tiles.size()));
        EXPECT_EQ(refused, 0u);
        gradient[at] = bad;
        RunOnHost(encode, static_cast<uint32_t>(tiles.size()));
        EXPECT_EQ(refused, 1u);
        EXPECT_TRUE(std::isfinite(left[at]));
      }
    }
  }
}

TEST(CudaKernels, GradientsAreScaledAsTheyAreRead) {
  const std::vector<float> gradient = MadeUp(0, 5000, 1), residual = MadeUp(0, 5000, 2);
  std::vector<float> scaled = gradient, wanted = residual, left(5000);
  for (float& x : scaled) x *= 0.3f;
  std::vector<std::byte> frame;
  ASSERT_TRUE(EncodeFrame(*MakeCodec(*ParseCodecSpec("int8")),
                          {.gradient = scaled, .residual = absl::MakeSpan(wanted)}, &frame)
                  .ok());
  std::vector<uint8_t> payload(frame.size());
  Chunk chunk;
  chunk.gradient = gradient.data();
  chunk.residual = residual.data();
  chunk.left = left.data();
  chunk.scale = 0.3f;
  chunk.count = 5000;
  chunk.payload = payload.data();
  const std::vector<Tile> tiles = MakeTiles({chunk});
  RunOnHost(EncodeLinear<8, Fp32, false>{&chunk, tiles.data()},
            static_cast<uint32_t>(tiles.size()));
  EXPECT_EQ(
      std::memcmp(payload.data(), frame.data() + kFrameHeaderSize, frame.size() - kFrameHeaderSize),
      0);
  EXPECT_EQ(left, wanted);
}

TEST(CudaKernels, HalvesThatAreNotFiniteStayThat) {
  EXPECT_EQ(WidenHalf(0x7C00), INFINITY);
  EXPECT_EQ(WidenHalf(0xFC00), -INFINITY);
  EXPECT_TRUE(std::isnan(WidenHalf(0x7E01)));
  EXPECT_EQ(WidenHalf(0x7BFF), 65504.0f);
}

}  // namespace
}  // namespace sluice::compress::gpu
