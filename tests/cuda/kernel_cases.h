// The kernels that the GPU's test and benchmark run, by the codec that they belong to. Each case is
// what one step launches.
#pragma once

#include "compress/cuda/add_sparse.h"
#include "compress/cuda/cast.h"
#include "compress/cuda/intsum.h"
#include "compress/cuda/largest.h"
#include "compress/cuda/linear.h"
#include "compress/cuda/magnitudes.h"
#include "compress/cuda/placed.h"
#include "tests/cuda/kernel_inputs.h"

namespace sluice::gpu {

template <class Values, IndexMode kIndex = IndexMode::kAuto, class S>
void RunSparse(S& step) {
  const auto* const taus = step.template At<float>(step.layout.thresholds);
  step.launch(SelectAbove<Fp32>{step.chunks, step.tiles, taus, step.slots()}, step.tile_count);
  step.launch(FinishSparse<Values>{step.chunks, taus, kIndex, step.slots(), step.packed(),
                                   step.template At<uint32_t>(step.layout.gaps),
                                   step.template At<uint32_t>(step.layout.totals),
                                   step.template At<uint32_t>(step.layout.sizes)},
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

template <int kBits, class S>
void RunIntSum(S& step) {
  auto* const largest = step.template At<uint32_t>(step.layout.largest);
  step.launch(Largest<Fp32>{step.chunks, step.tiles, largest}, step.tile_count);
  step.launch(EncodeIntSum<kBits, Fp32>{step.chunks, step.tiles,
                                        step.template At<float>(step.layout.exponents), largest},
              step.tile_count);
}

template <IndexMode kIndex = IndexMode::kAuto, class S>
void RunTernary(S& step) {
  auto* const scales = step.template At<uint32_t>(step.layout.scales);
  step.launch(EncodeTernary<Fp32>{step.chunks, step.tiles, 0.5f, step.slots(), scales},
              step.tile_count);
  step.launch(FinishTernary{step.chunks, kIndex, step.slots(), scales,
                            step.template At<uint32_t>(step.layout.packed_positions),
                            step.template At<uint32_t>(step.layout.gaps),
                            step.template At<uint32_t>(step.layout.totals),
                            step.template At<uint32_t>(step.layout.sizes)},
              step.chunk_count);
}

// Adds what was encoded just before.
template <class Kernel, class S>
void RunAddOfPositions(S& step) {
  step.launch(Kernel{step.chunks,
                     step.template At<uint32_t>(step.layout.sizes),
                     {step.template At<uint32_t>(step.layout.gaps),
                      step.template At<uint32_t>(step.layout.offsets),
                      step.template At<uint32_t>(step.layout.positions)}},
              step.chunk_count);
}

template <class S>
void RunAddEntries(S& step) {
  Slots entries = step.packed();
  entries.kept = step.template At<uint32_t>(step.layout.totals);
  step.launch(AddEntries{step.chunks, entries}, step.chunk_count);
}

// use(name, bytes of memory per element that the codec cannot do without, before, case): `case` is
// called with a Step, and `before` is what it needs to have been run once.
template <class Use>
void ForEachCase(Use use) {
  const auto run = [&](const char* name, double bytes, auto launch) {
    use(
        name, bytes, [](auto&) {}, launch);
  };
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
  run("int8", 13, tiles([](C c, T t) { return EncodeLinear<8, Fp32, false>{c, t}; }));
  run("int4", 12.5, tiles([](C c, T t) { return EncodeLinear<4, Fp32, false>{c, t}; }));
  run("int4 of bf16", 10.5, tiles([](C c, T t) { return EncodeLinear<4, Bf16, false>{c, t}; }));
  run("int2", 12.25, tiles([](C c, T t) { return EncodeLinear<2, Fp32, false>{c, t}; }));
  run("int8:sr", 13, tiles([](C c, T t) { return EncodeLinear<8, Fp32, true>{c, t}; }));
  run("int4:sr", 12.5, tiles([](C c, T t) { return EncodeLinear<4, Fp32, true>{c, t}; }));
  run("int2:sr", 12.25, tiles([](C c, T t) { return EncodeLinear<2, Fp32, true>{c, t}; }));
  run("intsum:8", 21, [](auto& step) { RunIntSum<8>(step); });
  run("intsum:4", 20.5, [](auto& step) { RunIntSum<4>(step); });
  run("intsum:2", 20.25, [](auto& step) { RunIntSum<2>(step); });
  run("sign", 12.125, [](auto& step) { RunSign<SignMeans::kOne>(step); });
  run("onebit", 12.125, [](auto& step) { RunSign<SignMeans::kTwo>(step); });
  run("signsgd", 12.125, [](auto& step) { RunSign<SignMeans::kNone>(step); });
  run("ternary:0.5", 12, [](auto& step) { RunTernary(step); });
  run("threshold", 12, [](auto& step) { RunSparse<Fp16Values>(step); });
  run("threshold rice", 12, [](auto& step) { RunSparse<Fp16Values, IndexMode::kRice>(step); });
  run("threshold packed", 12, [](auto& step) { RunSparse<Fp16Values, IndexMode::kPacked>(step); });
  run("threshold bytes", 12, [](auto& step) { RunSparse<Fp16Values, IndexMode::kBytes>(step); });
  run("threshold bitmap", 12, [](auto& step) { RunSparse<Fp16Values, IndexMode::kBitmap>(step); });
  run("threshold+int8", 12, [](auto& step) { RunSparse<Int8Values>(step); });
  run("threshold+int4", 12, [](auto& step) { RunSparse<Int4Values>(step); });
  run("threshold+sign", 12, [](auto& step) { RunSparse<SignValues>(step); });
  run("magnitudes", 8.0 / 64, [](auto& step) { RunSample(step); });
  run("blocktopk:256", 12, [](auto& step) { RunBlockTopK<Fp16Values>(step); });
  run("randomk:5%", 12, [](auto& step) { RunRandomK<Fp16Values, false>(step); });
  run("randomk:5%,unb.", 12, [](auto& step) { RunRandomK<Fp16Values, true>(step); });
  use("add fp16", 10, tiles([](C c, T t) {
        return EncodeCast<ToFp16, Fp32, false>{c, t};
      }),
      tiles([](C c, T t) {
        return AddCast<ToFp16>{c, t};
      }));
  use("add int8", 9, tiles([](C c, T t) {
        return EncodeLinear<8, Fp32, false>{c, t};
      }),
      tiles([](C c, T t) {
        return AddLinear<8>{c, t};
      }));
  use("add int4", 8.5, tiles([](C c, T t) {
        return EncodeLinear<4, Fp32, false>{c, t};
      }),
      tiles([](C c, T t) {
        return AddLinear<4>{c, t};
      }));
  use(
      "add intsum:8", 9, [](auto& step) { RunIntSum<8>(step); }, tiles([](C c, T t) {
        return AddIntSum<8>{c, t};
      }));
  use(
      "add onebit", 8.125, [](auto& step) { RunSign<SignMeans::kTwo>(step); }, tiles([](C c, T t) {
        return AddSign<SignMeans::kTwo>{c, t};
      }));
  use(
      "add threshold", 8, [](auto& step) { RunSparse<Fp16Values>(step); },
      [](auto& step) { RunAddOfPositions<AddSparse>(step); });
  use(
      "add ternary:0.5", 8, [](auto& step) { RunTernary(step); },
      [](auto& step) { RunAddOfPositions<AddTernary>(step); });
  use(
      "add entries", 8, [](auto& step) { RunSparse<Fp16Values>(step); },
      [](auto& step) { RunAddEntries(step); });
}

}  // namespace sluice::gpu
