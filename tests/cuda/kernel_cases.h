// The kernels that the GPU's test and benchmark run, by the codec that they belong to. Each case is
// what one step launches.
#pragma once

#include "compress/cuda/cast.h"
#include "compress/cuda/fp8.h"
#include "compress/cuda/intsum.h"
#include "compress/cuda/largest.h"
#include "compress/cuda/linear.h"
#include "compress/cuda/magnitudes.h"
#include "compress/cuda/minmax.h"
#include "compress/cuda/natural.h"
#include "compress/cuda/placed.h"
#include "compress/cuda/ternary.h"
#include "tests/cuda/kernel_inputs.h"

namespace sluice::gpu {

template <class Values, class S>
void RunSparse(S& step) {
  const auto* const taus = step.template At<float>(step.layout.thresholds);
  step.launch(SelectAbove<Fp32>{step.chunks, step.tiles, taus, step.slots()}, step.tile_count);
  step.launch(FinishSparse<Values>{step.chunks, taus, step.slots(), step.packed(),
                                   step.template At<uint32_t>(step.layout.gaps),
                                   step.template At<SparseResult>(step.layout.results)},
              step.chunk_count);
}

template <class Values, bool kSubtract, class S>
void FinishPlacedOf(S& step, const uint32_t* places) {
  step.launch(FinishPlaced<Values, kSubtract>{step.chunks, places, step.slots(), step.packed(),
                                              step.template At<uint8_t>(step.layout.presence),
                                              step.template At<SparseResult>(step.layout.results)},
              step.chunk_count);
}

template <class Values, class S>
void RunBlockTopK(S& step) {
  step.launch(PickLargest<Fp32>{step.chunks, step.tiles, 8, step.slots()}, step.tile_count);
  FinishPlacedOf<Values, false>(step, step.template At<uint32_t>(step.layout.block_places));
}

template <class Values, bool kUnbiased, class S>
void RunRandomK(S& step) {
  const auto* const places = step.template At<uint32_t>(step.layout.places);
  step.launch(Accumulate<Fp32>{step.chunks, step.tiles}, step.tile_count);
  step.launch(PickAtRandom<Fp32, kUnbiased>{step.chunks, places, step.slots()}, step.chunk_count);
  FinishPlacedOf<Values, kUnbiased>(step, places);
}

template <class S>
void RunSample(S& step) {
  step.launch(SampleMagnitudes<Fp32>{step.chunks, step.template At<uint32_t>(step.layout.strides),
                                     step.template At<uint32_t>(step.layout.counts_by_size)},
              step.chunk_count);
}

template <SignMeans kMeans, class S>
void RunSign(S& step) {
  auto* const zeros = step.template At<uint32_t>(step.layout.zeros);
  auto* const counts = step.template At<uint32_t>(step.layout.zero_counts);
  step.launch(EncodeSign<Fp32, kMeans>{step.chunks, step.tiles, zeros, counts}, step.tile_count);
  step.launch(FinishSign<kMeans>{step.chunks, zeros, counts,
                                 step.template At<uint32_t>(step.layout.totals)},
              step.chunk_count);
}

template <class S>
void RunNatural(S& step) {
  auto* const codes = step.template At<uint16_t>(step.layout.positions);
  step.launch(EncodeNatural<Fp32>{step.chunks, step.tiles, codes}, step.tile_count);
  step.launch(
      PackNatural{step.chunks, step.tiles, codes, step.template At<uint32_t>(step.layout.totals)},
      step.tile_count);
}

template <int kBits, class S>
void RunIntSum(S& step) {
  auto* const largest = step.template At<uint32_t>(step.layout.largest);
  step.launch(Largest<Fp32>{step.chunks, step.tiles, largest}, step.tile_count);
  step.launch(EncodeIntSum<kBits, Fp32>{step.chunks, step.tiles,
                                        step.template At<float>(step.layout.exponents), largest},
              step.tile_count);
}

template <class S>
void RunTernary(S& step) {
  step.launch(EncodeTernary<Fp32>{step.chunks, step.tiles, 0.5f, step.slots(),
                                  step.template At<uint32_t>(step.layout.scales)},
              step.tile_count);
  step.launch(FinishTernary{step.chunks, step.slots(),
                            step.template At<uint32_t>(step.layout.packed_positions),
                            step.template At<uint32_t>(step.layout.gaps),
                            step.template At<uint32_t>(step.layout.totals)},
              step.chunk_count);
}

// run(name, bytes of memory per element that the codec cannot do without, case). A case is called
// with a Step.
template <class Fn>
void ForEachCase(Fn run) {
  const auto tiles = [](auto make) {
    return [make](auto& step) { step.launch(make(step.chunks, step.tiles), step.tile_count); };
  };
  using C = const Chunk*;
  using T = const Tile*;
  run("fp16", 14, tiles([](C c, T t) { return EncodeCast<ToFp16, Fp32, false>{c, t}; }));
  run("bf16", 14, tiles([](C c, T t) { return EncodeCast<ToBf16, Fp32, false>{c, t}; }));
  run("bf16 of fp16", 12, tiles([](C c, T t) { return EncodeCast<ToBf16, Fp16, false>{c, t}; }));
  run("fp16:sr", 14, tiles([](C c, T t) { return EncodeCast<ToFp16, Fp32, true>{c, t}; }));
  run("bf16:sr", 14, tiles([](C c, T t) { return EncodeCast<ToBf16, Fp32, true>{c, t}; }));
  run("fp8", 13, tiles([](C c, T t) { return EncodeFp8<E4m3, Fp32, false>{c, t}; }));
  run("fp8:sr", 13, tiles([](C c, T t) { return EncodeFp8<E4m3, Fp32, true>{c, t}; }));
  run("fp8:e5m2", 13, tiles([](C c, T t) { return EncodeFp8<E5m2, Fp32, false>{c, t}; }));
  run("fp8:e5m2,sr", 13, tiles([](C c, T t) { return EncodeFp8<E5m2, Fp32, true>{c, t}; }));
  run("int8", 13, tiles([](C c, T t) { return EncodeLinear<8, Fp32, false>{c, t}; }));
  run("int4", 12.5, tiles([](C c, T t) { return EncodeLinear<4, Fp32, false>{c, t}; }));
  run("int4 of bf16", 10.5, tiles([](C c, T t) { return EncodeLinear<4, Bf16, false>{c, t}; }));
  run("int2", 12.25, tiles([](C c, T t) { return EncodeLinear<2, Fp32, false>{c, t}; }));
  run("int8:sr", 13, tiles([](C c, T t) { return EncodeLinear<8, Fp32, true>{c, t}; }));
  run("int4:sr", 12.5, tiles([](C c, T t) { return EncodeLinear<4, Fp32, true>{c, t}; }));
  run("int2:sr", 12.25, tiles([](C c, T t) { return EncodeLinear<2, Fp32, true>{c, t}; }));
  run("int8:minmax", 13, tiles([](C c, T t) { return EncodeMinMax<8, Fp32, false>{c, t}; }));
  run("int4:minmax", 12.5, tiles([](C c, T t) { return EncodeMinMax<4, Fp32, false>{c, t}; }));
  run("int8:minmax,sr", 13, tiles([](C c, T t) { return EncodeMinMax<8, Fp32, true>{c, t}; }));
  run("int4:minmax,sr", 12.5, tiles([](C c, T t) { return EncodeMinMax<4, Fp32, true>{c, t}; }));
  run("natural", 12.75, [](auto& step) { RunNatural(step); });
  run("intsum:8", 21, [](auto& step) { RunIntSum<8>(step); });
  run("intsum:4", 20.5, [](auto& step) { RunIntSum<4>(step); });
  run("intsum:2", 20.25, [](auto& step) { RunIntSum<2>(step); });
  run("sign", 12.125, [](auto& step) { RunSign<SignMeans::kOne>(step); });
  run("onebit", 12.125, [](auto& step) { RunSign<SignMeans::kTwo>(step); });
  run("signsgd", 12.125, [](auto& step) { RunSign<SignMeans::kNone>(step); });
  run("ternary:0.5", 12, [](auto& step) { RunTernary(step); });
  run("threshold", 12, [](auto& step) { RunSparse<Fp16Values>(step); });
  run("threshold+int8", 12, [](auto& step) { RunSparse<Int8Values>(step); });
  run("threshold+int4", 12, [](auto& step) { RunSparse<Int4Values>(step); });
  run("threshold+sign", 12, [](auto& step) { RunSparse<SignValues>(step); });
  run("magnitudes", 8.0 / 64, [](auto& step) { RunSample(step); });
  run("blocktopk:256", 12, [](auto& step) { RunBlockTopK<Fp16Values>(step); });
  run("randomk:5%", 12, [](auto& step) { RunRandomK<Fp16Values, false>(step); });
  run("randomk:5%,unb.", 12, [](auto& step) { RunRandomK<Fp16Values, true>(step); });
  run("add fp16", 10, tiles([](C c, T t) { return AddCast<ToFp16>{c, t}; }));
  run("add fp8", 9, tiles([](C c, T t) { return AddFp8<E4m3>{c, t}; }));
  run("add fp8:e5m2", 9, tiles([](C c, T t) { return AddFp8<E5m2>{c, t}; }));
  run("add int8", 9, tiles([](C c, T t) { return AddLinear<8>{c, t}; }));
  run("add int4", 8.5, tiles([](C c, T t) { return AddLinear<4>{c, t}; }));
  run("add int8:minmax", 9, tiles([](C c, T t) { return AddMinMax<8>{c, t}; }));
  run("add int4:minmax", 8.5, tiles([](C c, T t) { return AddMinMax<4>{c, t}; }));
  run("add intsum:8", 9, tiles([](C c, T t) { return AddIntSum<8>{c, t}; }));
  run("add onebit", 8.125, tiles([](C c, T t) { return AddSign<SignMeans::kTwo>{c, t}; }));
}

}  // namespace sluice::gpu
