// Kernels of blocktopk and randomk, and the sampled histogram, give what the processor makes.
#include "compress/cuda/placed.h"

#include "compress/cuda/magnitudes.h"
#include "compress/index_coding.h"
#include "compress/magnitude_histogram.h"
#include "compress/placed_values.h"
#include "tests/compress/cuda/encoded.h"

namespace sluice::gpu {
namespace {

struct Buffers {
  explicit Buffers(const Made& made)
      : positions(made.elements(), 7),
        packed_positions(positions),
        values(made.elements(), 7.0f),
        packed_values(values),
        presence(made.elements(), 7),
        results(made.chunk_count()) {}
  Slots slots() { return {positions.data(), values.data(), nullptr}; }
  Slots packed() { return {packed_positions.data(), packed_values.data(), nullptr}; }

  PlacedValues Placed(const Chunk& chunk, size_t index, ValueFormat format, uint32_t places) const {
    const SparseResult& result = results[index];
    PlacedValues placed;
    placed.format = format;
    placed.levels = {result.levels.floor, result.levels.step};
    placed.places = places;
    placed.kept = result.kept;
    placed.presence = absl::MakeConstSpan(
        reinterpret_cast<const std::byte*>(presence.data()) + chunk.first_element,
        (places + 7) / 8);
    placed.codes = absl::MakeConstSpan(reinterpret_cast<const std::byte*>(chunk.payload),
                                       ValueBytes(format, result.kept));
    return placed;
  }

  std::vector<uint32_t> positions, packed_positions;
  std::vector<float> values, packed_values;
  std::vector<uint8_t> presence;
  std::vector<SparseResult> results;
};

template <class Values>
void ExpectSameBlockTopK(const std::string& spec, uint32_t bits) {
  const CodecSpec parsed = *ParseCodecSpec(spec);
  ForEachMade(spec, [&](Made& made, ThreadOrder order) {
    Buffers buffers(made);
    std::vector<uint32_t> places;
    for (uint32_t i = 0; i < made.chunk_count(); ++i) {
      places.push_back((made.chunks()[i].count + (1u << bits) - 1) >> bits);
    }
    RunOnHost(PickLargest<Fp32>{made.chunks(), made.tiles(), bits, buffers.slots()},
              made.tile_count(), order);
    RunOnHost(
        FinishPlaced<Values, false>{made.chunks(), places.data(), buffers.slots(), buffers.packed(),
                                    buffers.presence.data(), buffers.results.data()},
        made.chunk_count(), order);
    for (uint32_t i = 0; i < made.chunk_count(); ++i) {
      const Chunk& chunk = made.chunks()[i];
      std::vector<std::byte> payload = {static_cast<std::byte>(bits)};
      AppendPlacedCodes(buffers.Placed(chunk, i, parsed.values, places[i]), &payload);
      std::vector<uint32_t> in_block;
      for (uint32_t j = 0; j < buffers.results[i].kept; ++j) {
        in_block.push_back(buffers.packed_positions[chunk.first_element + j] & ((1u << bits) - 1));
      }
      AppendRemainders(in_block, static_cast<int>(bits), &payload);
      ExpectSame(payload, made.made(i), i);
    }
    made.ExpectResiduals();
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
    Buffers buffers(made);
    std::vector<uint32_t> places;
    for (uint32_t i = 0; i < made.chunk_count(); ++i) {
      places.push_back(static_cast<uint32_t>(std::ceil(parsed.level * made.chunks()[i].count)));
    }
    RunOnHost(Accumulate<Fp32>{made.chunks(), made.tiles()}, made.tile_count(), order);
    RunOnHost(PickAtRandom<Fp32, kUnbiased>{made.chunks(), places.data(), buffers.slots()},
              made.chunk_count(), order);
    RunOnHost(FinishPlaced<Values, kUnbiased>{made.chunks(), places.data(), buffers.slots(),
                                              buffers.packed(), buffers.presence.data(),
                                              buffers.results.data()},
              made.chunk_count(), order);
    for (uint32_t i = 0; i < made.chunk_count(); ++i) {
      const Chunk& chunk = made.chunks()[i];
      std::vector<std::byte> payload;
      ByteWriter writer(&payload);
      writer.Write(places[i]);
      writer.Write(chunk.shared_key);
      AppendPlacedCodes(buffers.Placed(chunk, i, parsed.values, places[i]), &payload);
      ExpectSame(payload, made.made(i), i);
    }
    made.ExpectResiduals();
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
}  // namespace sluice::gpu
