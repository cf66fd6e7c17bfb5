// Kernels of the codecs of signs give the processor's payloads and residuals.
#include "compress/cuda/sign.h"

#include "tests/compress/cuda/encoded.h"

namespace sluice::gpu {
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

}  // namespace
}  // namespace sluice::gpu
