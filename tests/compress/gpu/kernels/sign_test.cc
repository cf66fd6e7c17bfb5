// SPDX-License-Identifier: Apache-2.0
// Tests that the kernels of the sign codecs give the processor's payloads and residuals.
#include "compress/gpu/kernels/sign.h"

#include "compress/format_table.h"
#include "tests/compress/gpu/kernels/encoded.h"

namespace sluice::compress::gpu {
namespace {

template <SignMeans kMeans>
void ExpectSameSigns(const std::string& spec) {
  ForEachMade(spec, [&](Made& made, ThreadOrder order) {
    std::vector<uint32_t> zeros(kSignWords * made.blocks() / 4, 7), counts(made.blocks() / 4, 7);
    std::vector<uint32_t> sizes(made.chunk_count());
    RunOnHost(EncodeSign<Fp32, kMeans>{made.chunks(), made.tiles(), zeros.data(), counts.data()},
              made.tile_count(), order);
    RunOnHost(FinishSign<kMeans>{made.chunks(), zeros.data(), counts.data(), sizes.data()},
              made.chunk_count(), order);
    made.ExpectPayloads();
    made.ExpectResiduals();
    for (uint32_t i = 0; i < made.chunk_count(); ++i) {
      EXPECT_EQ(sizes[i], made.made(i).expected.size()) << i;
    }
  });
}

TEST(CudaKernels, Sign) { ExpectSameSigns<SignMeans::kOne>("sign"); }
TEST(CudaKernels, OneBit) { ExpectSameSigns<SignMeans::kTwo>("onebit"); }
TEST(CudaKernels, SignSgd) { ExpectSameSigns<SignMeans::kNone>("signsgd"); }

// The marks of all blocks fill about one word or more. Some are set and some are not.
template <SignMeans kMeans>
void ExpectSameSumOfManyBlocks(const std::string& spec) {
  const std::unique_ptr<Codec> codec = MakeCodec(*ParseCodecSpec(spec));
  for (const uint32_t blocks : {31u, 32u, 33u, 35u, 36u, 65u, 301u}) {
    for (const uint32_t last : {1u, 77u, kSignElements}) {
      std::vector<float> gradient = MadeUp(0, (blocks - 1) * kSignElements + last, blocks);
      for (size_t i = 0; i < gradient.size(); ++i) {
        const size_t block = i / kSignElements;
        const bool some = block % 3 == 0 || block % 7 == 2;
        if ((some && i % 5 == 0) || block % 11 == 5) gradient[i] = 0;
      }
      std::vector<std::byte> frame;
      ASSERT_TRUE(EncodeFrame(*codec, {.gradient = gradient}, &frame).ok());
      const auto payload = absl::MakeConstSpan(frame).subspan(kFrameHeaderSize);
      // The buffer's type ensures an even address.
      std::vector<uint16_t> bytes((payload.size() + 1) / 2);
      std::memcpy(bytes.data(), payload.data(), payload.size());
      std::vector<float> wanted = MadeUp(5, gradient.size(), 3);
      FindFormat(codec->format())->decode_add(payload, absl::MakeSpan(wanted));
      for (const ThreadOrder order : kOrders) {
        std::vector<float> sum = MadeUp(5, gradient.size(), 3);
        Chunk chunk;
        chunk.sum = sum.data();
        chunk.count = static_cast<uint32_t>(sum.size());
        chunk.payload = reinterpret_cast<uint8_t*>(bytes.data());
        const std::vector<Tile> tiles = MakeTiles({chunk});
        RunOnHost(AddSign<kMeans>{&chunk, tiles.data()}, static_cast<uint32_t>(tiles.size()),
                  order);
        ASSERT_EQ(std::memcmp(sum.data(), wanted.data(), 4 * sum.size()), 0)
            << spec << ", " << sum.size() << " elements";
      }
    }
  }
}

TEST(CudaKernels, SumsOfManyBlocksOfSigns) {
  ExpectSameSumOfManyBlocks<SignMeans::kOne>("sign");
  ExpectSameSumOfManyBlocks<SignMeans::kTwo>("onebit");
  ExpectSameSumOfManyBlocks<SignMeans::kNone>("signsgd");
}

}  // namespace
}  // namespace sluice::compress::gpu
