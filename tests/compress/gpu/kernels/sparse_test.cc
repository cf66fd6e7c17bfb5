// SPDX-License-Identifier: Apache-2.0
// Tests the kernels of codecs that send positions: selection, compaction in order, and values must
// give the processor's payloads and residuals.
#include "compress/gpu/kernels/sparse.h"

#include <cstring>

#include "compress/coding/position_coding.h"
#include "compress/gpu/kernels/ternary.h"
#include "tests/compress/gpu/kernels/encoded.h"

namespace sluice::compress::gpu {
namespace {

// Buffers that kernels share. Their initial contents are undefined.
struct SparseBuffers {
  explicit SparseBuffers(const Made& made)
      : positions(made.elements(), 7),
        packed_positions(positions),
        gaps(positions),
        kept(made.blocks(), 7),
        scales(kept),
        totals(made.chunk_count(), 7),
        sizes(totals),
        values(made.elements(), 7.0f),
        packed_values(values) {}

  Slots slots() { return {positions.data(), values.data(), kept.data()}; }
  Slots packed() { return {packed_positions.data(), packed_values.data(), nullptr}; }

  std::vector<uint32_t> positions, packed_positions, gaps, kept, scales, totals, sizes;
  std::vector<float> values, packed_values;
};

// Checks all results of a step. `kept_at` is the offset of the number of values within a payload.
void ExpectSameStep(const Made& made, const SparseBuffers& buffers, size_t kept_at) {
  made.ExpectPayloads();
  made.ExpectResiduals();
  for (uint32_t i = 0; i < made.chunk_count(); ++i) {
    const std::vector<std::byte>& expected = made.made(i).expected;
    ASSERT_EQ(buffers.sizes[i], expected.size()) << i;
    uint32_t kept;
    std::memcpy(&kept, expected.data() + kept_at, sizeof(kept));
    ASSERT_EQ(buffers.totals[i], kept) << i;
  }
}

template <class Values>
void ExpectSameSparse(const std::string& spec, float threshold) {
  const CodecSpec parsed = *ParseCodecSpec(spec);
  ForEachMade(spec, threshold, [&](Made& made, ThreadOrder order) {
    SparseBuffers buffers(made);
    const std::vector<float> taus(made.chunk_count(),
                                  threshold > 0 ? threshold : static_cast<float>(parsed.level));
    RunOnHost(SelectAbove<Fp32>{made.chunks(), made.tiles(), taus.data(), buffers.slots()},
              made.tile_count(), order);
    RunOnHost(FinishSparse<Values>{made.chunks(), taus.data(), IndexModeOf(parsed), buffers.slots(),
                                   buffers.packed(), buffers.gaps.data(), buffers.totals.data(),
                                   buffers.sizes.data()},
              made.chunk_count(), order);
    ExpectSameStep(made, buffers, 2);
  });
}

TEST(CudaKernels, Sparse) {
  for (const char* threshold : {"0.5", "0.003", "0.00001"}) {
    const std::string spec = std::string("threshold:") + threshold;
    // The threshold is rounded as in a frame, as ThresholdCodec does.
    const float tau = ToShortFloat(std::stof(threshold));
    ExpectSameSparse<Fp16Values>(spec, tau);
    ExpectSameSparse<Int8Values>(spec + "+int8", tau);
    ExpectSameSparse<Int4Values>(spec + "+int4", tau);
    ExpectSameSparse<SignValues>(spec + "+sign", tau);
  }
  ExpectSameSparse<Int4Values>("topk:1%+int4", 0.75f);
  for (const char* index : {"rice", "packed", "bytes", "bitmap"}) {
    const std::string spec = std::string("topk:1%,index=") + index;
    for (const float tau : {1.0f, 0.0078125f, 0.00001525878906f}) {
      ExpectSameSparse<Fp16Values>(spec, tau);
    }
  }
}

void ExpectSameTernary(const std::string& spec) {
  const CodecSpec parsed = *ParseCodecSpec(spec);
  ForEachMade(spec, [&](Made& made, ThreadOrder order) {
    SparseBuffers buffers(made);
    RunOnHost(EncodeTernary<Fp32>{made.chunks(), made.tiles(), static_cast<float>(parsed.level),
                                  buffers.slots(), buffers.scales.data()},
              made.tile_count(), order);
    RunOnHost(FinishTernary{made.chunks(), IndexModeOf(parsed), buffers.slots(),
                            buffers.scales.data(), buffers.packed_positions.data(),
                            buffers.gaps.data(), buffers.totals.data(), buffers.sizes.data()},
              made.chunk_count(), order);
    ExpectSameStep(made, buffers, 2);
  });
}

TEST(CudaKernels, Ternary) {
  ExpectSameTernary("ternary:0.5");
  ExpectSameTernary("ternary:0.9");
  ExpectSameTernary("ternary:1");
  // At this level, nearly all elements are kept.
  ExpectSameTernary("ternary:0.0000001");
  for (const char* index : {"rice", "packed", "bytes", "bitmap"}) {
    ExpectSameTernary(std::string("ternary:0.7,index=") + index);
  }
}

}  // namespace
}  // namespace sluice::compress::gpu
