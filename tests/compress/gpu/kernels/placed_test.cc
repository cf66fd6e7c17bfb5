// SPDX-License-Identifier: Apache-2.0
// Tests that the kernels of blocktopk and randomk, and the sampled histogram, give the processor's
// results.
#include "compress/gpu/kernels/placed.h"

#include "compress/coding/magnitude_histogram.h"
#include "compress/gpu/kernels/magnitudes.h"
#include "tests/compress/gpu/kernels/encoded.h"

namespace sluice::compress::gpu {
namespace {

struct PlacedBuffers {
  explicit PlacedBuffers(const Made& made)
      : positions(made.elements(), 7),
        packed_positions(positions),
        kept(made.chunk_count(), 7),
        sizes(kept),
        values(made.elements(), 7.0f),
        packed_values(values) {}
  Slots slots() { return {positions.data(), values.data(), nullptr}; }
  Slots packed() { return {packed_positions.data(), packed_values.data(), nullptr}; }

  std::vector<uint32_t> positions, packed_positions, kept, sizes;
  std::vector<float> values, packed_values;
};

// Checks payloads, their sizes, residuals and counts of kept elements. A kernel must already have
// selected the places.
template <class Values, Placed kHow>
void ExpectSamePlaced(const Made& made, const std::vector<uint32_t>& places, uint32_t bits,
                      ThreadOrder order, PlacedBuffers* buffers) {
  RunOnHost(
      FinishPlaced<Values, kHow>{made.chunks(), places.data(), bits, buffers->slots(),
                                 buffers->packed(), buffers->kept.data(), buffers->sizes.data()},
      made.chunk_count(), order);
  for (uint32_t i = 0; i < made.chunk_count(); ++i) {
    ASSERT_EQ(buffers->sizes[i], made.made(i).expected.size()) << "chunk " << i;
    EXPECT_EQ(buffers->kept[i], made.made(i).kept) << "chunk " << i;
  }
  made.ExpectPayloads();
  made.ExpectResiduals();
}

template <class Values>
void ExpectSameBlockTopK(const std::string& spec, uint32_t bits) {
  ForEachMade(spec, [&](Made& made, ThreadOrder order) {
    PlacedBuffers buffers(made);
    std::vector<uint32_t> places;
    for (uint32_t i = 0; i < made.chunk_count(); ++i) {
      places.push_back(PlacesOfBlocks(made.chunks()[i].count, static_cast<int>(bits)));
    }
    RunOnHost(PickLargest<Fp32>{made.chunks(), made.tiles(), bits, buffers.slots()},
              made.tile_count(), order);
    ExpectSamePlaced<Values, Placed::kOfBlocks>(made, places, bits, order, &buffers);
  });
}

TEST(CudaKernels, BlockTopK) {
  ExpectSameBlockTopK<Fp16Values>("blocktopk:256", 8);
  ExpectSameBlockTopK<Int4Values>("blocktopk:4+int4", 2);
  ExpectSameBlockTopK<Int8Values>("blocktopk:16+int8", 4);
  ExpectSameBlockTopK<SignValues>("blocktopk:32+sign", 5);
  ExpectSameBlockTopK<Fp16Values>("blocktopk:4096", 12);
}

template <class Values, bool kUnbiased>
void ExpectSameRandomK(const std::string& spec) {
  const CodecSpec parsed = *ParseCodecSpec(spec);
  ForEachMade(spec, [&](Made& made, ThreadOrder order) {
    PlacedBuffers buffers(made);
    std::vector<uint32_t> places;
    for (uint32_t i = 0; i < made.chunk_count(); ++i) {
      places.push_back(static_cast<uint32_t>(std::ceil(parsed.level * made.chunks()[i].count)));
    }
    RunOnHost(Accumulate<Fp32>{made.chunks(), made.tiles()}, made.tile_count(), order);
    RunOnHost(PickAtRandom<Fp32, kUnbiased>{made.chunks(), places.data(), buffers.slots()},
              made.chunk_count(), order);
    constexpr Placed kHow = kUnbiased ? Placed::kUnbiased : Placed::kAtRandom;
    ExpectSamePlaced<Values, kHow>(made, places, 0, order, &buffers);
  });
}

TEST(CudaKernels, RandomK) {
  ExpectSameRandomK<Fp16Values, false>("randomk:5%");
  ExpectSameRandomK<Int8Values, false>("randomk:10%+int8");
  ExpectSameRandomK<Int4Values, false>("randomk:100%+int4");
  ExpectSameRandomK<Fp16Values, true>("randomk:5%,unbiased");
  ExpectSameRandomK<SignValues, false>("randomk:30%+sign");
}

TEST(CudaKernels, SampledMagnitudes) {
  for (const bool with_residual : {true, false}) {
    Made made("topk:1%", with_residual, 0.5f);
    std::vector<uint32_t> strides, counts(MagnitudeHistogram::kBins);
    MagnitudeHistogram wanted;
    for (uint32_t i = 0; i < made.chunk_count(); ++i) {
      strides.push_back(1 + i % 64);
      const absl::Span<const float> residual = made.made(i).residual;
      wanted.Add(made.made(i).gradient, residual, strides.back());
    }
    RunOnHost(SampleMagnitudes<Fp32>{made.chunks(), strides.data(), counts.data()},
              made.chunk_count());
    MagnitudeHistogram counted;
    counted.AddCounts(counts);
    EXPECT_EQ(counted.total(), wanted.total());
    for (double density = 1; density > 1e-5; density *= 0.9) {
      ASSERT_EQ(counted.ThresholdFor(density), wanted.ThresholdFor(density)) << density;
    }
  }
}

}  // namespace
}  // namespace sluice::compress::gpu
