// Kernels of codecs that send positions: selection, compaction in order and values give the
// processor's payloads and residuals.
#include "compress/cuda/sparse.h"

#include <cstring>

#include "compress/cuda/ternary.h"
#include "compress/sparse.h"
#include "compress/ternary.h"
#include "tests/compress/cuda/encoded.h"

namespace sluice::gpu {
namespace {

// Buffers that kernels share; what is in them before means nothing.
struct Buffers {
  explicit Buffers(const Made& made)
      : positions(made.elements(), 7),
        packed_positions(positions),
        gaps(positions),
        kept(made.blocks(), 7),
        scales(kept),
        totals(made.chunk_count(), 7),
        values(made.elements(), 7.0f),
        packed_values(values),
        results(made.chunk_count()) {}

  Slots slots() { return {positions.data(), values.data(), kept.data()}; }
  Slots packed() { return {packed_positions.data(), packed_values.data(), nullptr}; }

  std::vector<uint32_t> positions, packed_positions, gaps, kept, scales, totals;
  std::vector<float> values, packed_values;
  std::vector<SparseResult> results;
};

template <class Values>
void ExpectSameSparse(const std::string& spec, float threshold) {
  const CodecSpec parsed = *ParseCodecSpec(spec);
  ForEachMade(spec, threshold, [&](Made& made, ThreadOrder order) {
    Buffers buffers(made);
    const std::vector<float> taus(made.chunk_count(),
                                  threshold > 0 ? threshold : static_cast<float>(parsed.level));
    RunOnHost(SelectAbove<Fp32>{made.chunks(), made.tiles(), taus.data(), buffers.slots()},
              made.tile_count(), order);
    RunOnHost(FinishSparse<Values>{made.chunks(), taus.data(), buffers.slots(), buffers.packed(),
                                   buffers.gaps.data(), buffers.results.data()},
              made.chunk_count(), order);
    for (uint32_t i = 0; i < made.chunk_count(); ++i) {
      const SparseResult& result = buffers.results[i];
      const Chunk& chunk = made.chunks()[i];
      std::vector<std::byte> payload;
      AppendSparsePayload(
          parsed.values, IndexModeOf(parsed), {result.levels.floor, result.levels.step},
          absl::MakeConstSpan(buffers.gaps).subspan(chunk.first_element, result.kept),
          {reinterpret_cast<const std::byte*>(chunk.payload),
           ValueBytes(parsed.values, result.kept)},
          &payload);
      ExpectSame(payload, made.made(i), i);
    }
    made.ExpectResiduals();
  });
}

TEST(CudaKernels, Sparse) {
  for (const char* threshold : {"0.5", "0.003", "0.00001"}) {
    const std::string spec = std::string("threshold:") + threshold;
    // What a frame can hold, as ThresholdCodec makes it.
    const float tau = ToShortFloat(std::stof(threshold));
    ExpectSameSparse<Fp16Values>(spec, tau);
    ExpectSameSparse<Int8Values>(spec + "+int8", tau);
    ExpectSameSparse<Int4Values>(spec + "+int4", tau);
    ExpectSameSparse<SignValues>(spec + "+sign", tau);
  }
  ExpectSameSparse<Int4Values>("topk:1%+int4", 0.75f);
  ExpectSameSparse<Fp16Values>("topk:1%,index=bytes", 0.0078125f);
}

void ExpectSameTernary(const std::string& spec) {
  const CodecSpec parsed = *ParseCodecSpec(spec);
  ForEachMade(spec, [&](Made& made, ThreadOrder order) {
    Buffers buffers(made);
    RunOnHost(EncodeTernary<Fp32>{made.chunks(), made.tiles(), static_cast<float>(parsed.level),
                                  buffers.slots(), buffers.scales.data()},
              made.tile_count(), order);
    RunOnHost(FinishTernary{made.chunks(), buffers.slots(), buffers.packed_positions.data(),
                            buffers.gaps.data(), buffers.totals.data()},
              made.chunk_count(), order);
    for (uint32_t i = 0; i < made.chunk_count(); ++i) {
      const Chunk& chunk = made.chunks()[i];
      const uint32_t kept = buffers.totals[i];
      std::vector<std::byte> payload;
      AppendTernaryPayload(
          IndexModeOf(parsed), absl::MakeConstSpan(buffers.gaps).subspan(chunk.first_element, kept),
          {reinterpret_cast<const std::byte*>(chunk.payload), (kept + 7) / 8},
          absl::MakeSpan(buffers.scales).subspan(chunk.first_block, (chunk.count + 255) / 256),
          &payload);
      ExpectSame(payload, made.made(i), i);
    }
    made.ExpectResiduals();
  });
}

TEST(CudaKernels, Ternary) {
  ExpectSameTernary("ternary:0.5");
  ExpectSameTernary("ternary:0.9");
  ExpectSameTernary("ternary:1");
  // Nearly all are kept.
  ExpectSameTernary("ternary:0.0000001");
}

TEST(CudaKernels, AddSparse) {
  std::vector<float> sum = {1, 2, 3, 4, 5};
  std::vector<uint32_t> positions = {9, 9, 0, 3}, kept = {2};
  std::vector<float> values = {9, 9, 0.5f, -1};
  Chunk chunk;
  chunk.residual = sum.data();
  chunk.count = 5;
  chunk.first_element = 2;
  RunOnHost(AddSparse{&chunk, {positions.data(), values.data(), kept.data()}}, 1);
  EXPECT_EQ(sum, (std::vector<float>{1.5f, 2, 3, 3, 5}));
}

}  // namespace
}  // namespace sluice::gpu
