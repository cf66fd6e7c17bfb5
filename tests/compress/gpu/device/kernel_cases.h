// SPDX-License-Identifier: Apache-2.0
// All kernels of compress/gpu/kernels, grouped by codec, as the test and the benchmark on a GPU run
// them. Each case has the launches of one step.
#pragma once

#include "compress/gpu/kernels/add_placed.h"
#include "compress/gpu/kernels/add_sparse.h"
#include "compress/gpu/kernels/cast.h"
#include "compress/gpu/kernels/clear_sum.h"
#include "compress/gpu/kernels/eden.h"
#include "compress/gpu/kernels/fp8.h"
#include "compress/gpu/kernels/intsum.h"
#include "compress/gpu/kernels/largest.h"
#include "compress/gpu/kernels/linear.h"
#include "compress/gpu/kernels/low_rank.h"
#include "compress/gpu/kernels/magnitudes.h"
#include "compress/gpu/kernels/minmax.h"
#include "compress/gpu/kernels/natural.h"
#include "compress/gpu/kernels/placed.h"
#include "compress/gpu/kernels/qsgd.h"
#include "tests/compress/gpu/device/kernel_inputs.h"

namespace sluice::compress::gpu {

template <class Values, IndexMode kIndex = IndexMode::kAuto, class Gradient = Fp32, class S>
void RunSparse(S& step) {
  const auto* const taus = step.template At<float>(step.layout.thresholds);
  step.launch(SelectAbove<Gradient>{step.chunks, step.tiles, taus, step.slots()}, step.tile_count);
  step.launch(FinishSparse<Values>{step.chunks, taus, kIndex, step.slots(), step.packed(),
                                   step.template At<uint32_t>(step.layout.gaps),
                                   step.template At<uint32_t>(step.layout.totals),
                                   step.template At<uint32_t>(step.layout.sizes)},
              step.chunk_count);
}

template <class Values, Placed kHow, class S>
void FinishPlacedOf(S& step, const uint32_t* places, uint32_t bits) {
  step.launch(FinishPlaced<Values, kHow>{step.chunks, places, bits, step.slots(), step.packed(),
                                         step.template At<uint32_t>(step.layout.totals),
                                         step.template At<uint32_t>(step.layout.sizes)},
              step.chunk_count);
}

template <class Values, class Gradient = Fp32, class S>
void RunBlockTopK(S& step) {
  step.launch(PickLargest<Gradient>{step.chunks, step.tiles, 8, step.slots()}, step.tile_count);
  FinishPlacedOf<Values, Placed::kOfBlocks>(
      step, step.template At<uint32_t>(step.layout.block_places), 8);
}

// Runs with blocks of 4 elements, so a single thread handles a whole block.
template <class S>
void RunSmallBlockTopK(S& step) {
  step.launch(PickLargest<Fp32>{step.chunks, step.tiles, 2, step.slots()}, step.tile_count);
  FinishPlacedOf<Fp16Values, Placed::kOfBlocks>(
      step, step.template At<uint32_t>(step.layout.small_block_places), 2);
}

template <class Values, bool kUnbiased, class Gradient = Fp32, class S>
void RunRandomK(S& step) {
  const auto* const places = step.template At<uint32_t>(step.layout.places);
  step.launch(Accumulate<Gradient>{step.chunks, step.tiles}, step.tile_count);
  step.launch(PickAtRandom<Gradient, kUnbiased>{step.chunks, places, step.slots()},
              step.chunk_count);
  FinishPlacedOf<Values, kUnbiased ? Placed::kUnbiased : Placed::kAtRandom>(step, places, 0);
}

template <class Gradient = Fp32, class S>
void RunSample(S& step) {
  step.launch(
      SampleMagnitudes<Gradient>{step.chunks, step.template At<uint32_t>(step.layout.strides),
                                 step.template At<uint32_t>(step.layout.counts_by_size)},
      step.chunk_count);
}

template <SignMeans kMeans, class Gradient = Fp32, class S>
void RunSign(S& step) {
  auto* const zeros = step.template At<uint32_t>(step.layout.zeros);
  auto* const counts = step.template At<uint32_t>(step.layout.zero_counts);
  step.launch(EncodeSign<Gradient, kMeans>{step.chunks, step.tiles, zeros, counts},
              step.tile_count);
  step.launch(FinishSign<kMeans>{step.chunks, zeros, counts,
                                 step.template At<uint32_t>(step.layout.totals)},
              step.chunk_count);
}

template <class Gradient = Fp32, class S>
void RunNatural(S& step) {
  auto* const codes = step.template At<uint16_t>(step.layout.positions);
  step.launch(EncodeNatural<Gradient>{step.chunks, step.tiles, codes}, step.tile_count);
  step.launch(
      PackNatural{step.chunks, step.tiles, codes, step.template At<uint32_t>(step.layout.totals)},
      step.tile_count);
}

template <int kBits, class Gradient = Fp32, class S>
void RunIntSum(S& step) {
  auto* const largest = step.template At<uint32_t>(step.layout.largest);
  step.launch(Largest<Gradient>{step.chunks, step.tiles, largest}, step.tile_count);
  step.launch(
      EncodeIntSum<kBits, Gradient>{step.chunks, step.tiles,
                                    step.template At<float>(step.layout.exponents), largest},
      step.tile_count);
}

template <IndexMode kIndex = IndexMode::kAuto, class Gradient = Fp32, class S>
void RunTernary(S& step) {
  auto* const scales = step.template At<uint32_t>(step.layout.scales);
  step.launch(EncodeTernary<Gradient>{step.chunks, step.tiles, 0.5f, step.slots(), scales},
              step.tile_count);
  step.launch(FinishTernary{step.chunks, kIndex, step.slots(), scales,
                            step.template At<uint32_t>(step.layout.packed_positions),
                            step.template At<uint32_t>(step.layout.gaps),
                            step.template At<uint32_t>(step.layout.totals),
                            step.template At<uint32_t>(step.layout.sizes)},
              step.chunk_count);
}

template <class Format, class Gradient = Fp32, bool kStochastic = false, class S>
void RunCast(S& step) {
  step.launch(EncodeCast<Format, Gradient, kStochastic>{step.chunks, step.tiles}, step.tile_count);
}

template <int kBits, class Gradient = Fp32, bool kStochastic = false, class S>
void RunLinear(S& step) {
  step.launch(EncodeLinear<kBits, Gradient, kStochastic>{step.chunks, step.tiles}, step.tile_count);
}

template <class Format, class Gradient = Fp32, bool kStochastic = false, class S>
void RunFp8(S& step) {
  step.launch(EncodeFp8<Format, Gradient, kStochastic>{step.chunks, step.tiles}, step.tile_count);
}

template <int kBits, class Gradient = Fp32, bool kStochastic = false, class S>
void RunMinMax(S& step) {
  step.launch(EncodeMinMax<kBits, Gradient, kStochastic>{step.chunks, step.tiles}, step.tile_count);
}

template <int kBits, class Gradient = Fp32, class S>
void RunQsgd(S& step) {
  step.launch(EncodeQsgd<kBits, Gradient>{step.chunks, step.tiles}, step.tile_count);
}

template <int kBits, class Gradient = Fp32, class S>
void RunEden(S& step) {
  step.launch(EncodeEden<kBits, Gradient>{step.chunks, step.tiles}, step.tile_count);
}

template <uint32_t kRank, class Gradient = Fp32, class S>
void RunPowerSgd(S& step) {
  static_assert(kRank <= StepLayout::kRank);
  auto* const largest = step.template At<uint32_t>(step.layout.largest);
  const LowRankWork work{step.chunks, step.matrices, largest,
                         step.template At<uint32_t>(step.layout.totals), kRank};
  step.launch(Largest<Gradient, true>{step.chunks, step.tiles, largest}, step.tile_count);
  step.launch(MultiplyByColumns<Gradient>{work, step.row_tiles}, step.row_tile_count);
  step.launch(Orthonormalize{work}, step.chunk_count);
  step.launch(MultiplyByRows<Gradient>{work, step.column_tiles}, step.column_tile_count);
  step.launch(RefreshColumns{work}, step.chunk_count);
  step.launch(SubtractProduct{work, step.tiles}, step.tile_count);
}

// These cases add payloads that the previous cases encoded.
template <class Kernel, class S>
void RunAdd(S& step) {
  step.launch(Kernel{step.chunks, step.tiles}, step.tile_count);
}

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
void RunClearAndAdd(S& step) {
  step.launch(ClearSum{step.chunks, step.tiles}, step.tile_count);
  step.launch(AddCast<ToFp32>{step.chunks, step.tiles}, step.tile_count);
}

template <class Kernel, class S>
void RunAddOfPlaces(S& step) {
  step.launch(Kernel{step.chunks}, step.chunk_count);
}

// Calls run(name, bytes, case). `bytes` is the memory per element that the codec must access. Here
// and in the functions below, `case` is called with a Step.
template <class Run>
void ForEachDenseCase(Run run) {
  run("none", 16, [](auto& step) { RunCast<ToFp32>(step); });
  run("fp16", 14, [](auto& step) { RunCast<ToFp16>(step); });
  run("fp16:sr", 14, [](auto& step) { RunCast<ToFp16, Fp32, true>(step); });
  run("bf16", 14, [](auto& step) { RunCast<ToBf16>(step); });
  run("bf16:sr", 14, [](auto& step) { RunCast<ToBf16, Fp32, true>(step); });
  run("fp16 of bf16", 12, [](auto& step) { RunCast<ToFp16, Bf16>(step); });
  run("bf16 of fp16", 12, [](auto& step) { RunCast<ToBf16, Fp16>(step); });
  run("fp8", 13, [](auto& step) { RunFp8<E4m3>(step); });
  run("fp8:sr", 13, [](auto& step) { RunFp8<E4m3, Fp32, true>(step); });
  run("fp8:e5m2", 13, [](auto& step) { RunFp8<E5m2>(step); });
  run("fp8:e5m2,sr", 13, [](auto& step) { RunFp8<E5m2, Fp32, true>(step); });
  run("fp8 of bf16", 11, [](auto& step) { RunFp8<E4m3, Bf16>(step); });
  run("int8", 13, [](auto& step) { RunLinear<8>(step); });
  run("int8:sr", 13, [](auto& step) { RunLinear<8, Fp32, true>(step); });
  run("int4", 12.5, [](auto& step) { RunLinear<4>(step); });
  run("int4:sr", 12.5, [](auto& step) { RunLinear<4, Fp32, true>(step); });
  run("int2", 12.25, [](auto& step) { RunLinear<2>(step); });
  run("int2:sr", 12.25, [](auto& step) { RunLinear<2, Fp32, true>(step); });
  run("int8 of fp16", 11, [](auto& step) { RunLinear<8, Fp16>(step); });
  run("int4 of bf16", 10.5, [](auto& step) { RunLinear<4, Bf16>(step); });
  run("int8:minmax", 13, [](auto& step) { RunMinMax<8>(step); });
  run("int8:minmax,sr", 13, [](auto& step) { RunMinMax<8, Fp32, true>(step); });
  run("int4:minmax", 12.5, [](auto& step) { RunMinMax<4>(step); });
  run("int4:minmax,sr", 12.5, [](auto& step) { RunMinMax<4, Fp32, true>(step); });
  run("minmax of fp16", 11, [](auto& step) { RunMinMax<8, Fp16>(step); });
  run("qsgd:2", 12.25, [](auto& step) { RunQsgd<2>(step); });
  run("qsgd:4", 12.5, [](auto& step) { RunQsgd<4>(step); });
  run("qsgd:8", 13, [](auto& step) { RunQsgd<8>(step); });
  run("qsgd:4 of bf16", 10.5, [](auto& step) { RunQsgd<4, Bf16>(step); });
  run("natural", 12.75, [](auto& step) { RunNatural(step); });
  run("natural of bf16", 10.75, [](auto& step) { RunNatural<Bf16>(step); });
  run("eden:1", 12.125, [](auto& step) { RunEden<1>(step); });
  run("eden:2", 12.25, [](auto& step) { RunEden<2>(step); });
  run("eden:4", 12.5, [](auto& step) { RunEden<4>(step); });
  run("eden:2 of bf16", 10.25, [](auto& step) { RunEden<2, Bf16>(step); });
  run("powersgd:1", 28, [](auto& step) { RunPowerSgd<1>(step); });
  run("powersgd:2", 28, [](auto& step) { RunPowerSgd<2>(step); });
  run("powersgd:5", 28, [](auto& step) { RunPowerSgd<5>(step); });
  run("powersgd:2 of bf16", 26, [](auto& step) { RunPowerSgd<2, Bf16>(step); });
  run("intsum:8", 21, [](auto& step) { RunIntSum<8>(step); });
  run("intsum:4", 20.5, [](auto& step) { RunIntSum<4>(step); });
  run("intsum:2", 20.25, [](auto& step) { RunIntSum<2>(step); });
  run("intsum:8 of bf16", 17, [](auto& step) { RunIntSum<8, Bf16>(step); });
  run("sign", 12.125, [](auto& step) { RunSign<SignMeans::kOne>(step); });
  run("onebit", 12.125, [](auto& step) { RunSign<SignMeans::kTwo>(step); });
  run("signsgd", 12.125, [](auto& step) { RunSign<SignMeans::kNone>(step); });
  run("sign of fp16", 10.125, [](auto& step) { RunSign<SignMeans::kOne, Fp16>(step); });
}

template <class Run>
void ForEachSparseCase(Run run) {
  run("ternary:0.5", 12, [](auto& step) { RunTernary(step); });
  run("ternary rice", 12, [](auto& step) { RunTernary<IndexMode::kRice>(step); });
  run("ternary packed", 12, [](auto& step) { RunTernary<IndexMode::kPacked>(step); });
  run("ternary of bf16", 10, [](auto& step) { RunTernary<IndexMode::kAuto, Bf16>(step); });
  run("threshold", 12, [](auto& step) { RunSparse<Fp16Values>(step); });
  run("threshold rice", 12, [](auto& step) { RunSparse<Fp16Values, IndexMode::kRice>(step); });
  run("threshold packed", 12, [](auto& step) { RunSparse<Fp16Values, IndexMode::kPacked>(step); });
  run("threshold bytes", 12, [](auto& step) { RunSparse<Fp16Values, IndexMode::kBytes>(step); });
  run("threshold bitmap", 12, [](auto& step) { RunSparse<Fp16Values, IndexMode::kBitmap>(step); });
  run("threshold+int8", 12, [](auto& step) { RunSparse<Int8Values>(step); });
  run("threshold+int4", 12, [](auto& step) { RunSparse<Int4Values>(step); });
  run("threshold+sign", 12, [](auto& step) { RunSparse<SignValues>(step); });
  run("thresh. of fp16", 10,
      [](auto& step) { RunSparse<Fp16Values, IndexMode::kAuto, Fp16>(step); });
  run("magnitudes", 8.0 / 64, [](auto& step) { RunSample(step); });
  run("magn. of bf16", 6.0 / 64, [](auto& step) { RunSample<Bf16>(step); });
  run("blocktopk:256", 12, [](auto& step) { RunBlockTopK<Fp16Values>(step); });
  run("blocktopk:4", 12, [](auto& step) { RunSmallBlockTopK(step); });
  run("blocktopk+int8", 12, [](auto& step) { RunBlockTopK<Int8Values>(step); });
  run("blocktopk+int4", 12, [](auto& step) { RunBlockTopK<Int4Values>(step); });
  run("blocktopk+sign", 12, [](auto& step) { RunBlockTopK<SignValues>(step); });
  run("blockt. of fp16", 10, [](auto& step) { RunBlockTopK<Fp16Values, Fp16>(step); });
  run("randomk:5%", 12, [](auto& step) { RunRandomK<Fp16Values, false>(step); });
  run("randomk:5%,unb.", 12, [](auto& step) { RunRandomK<Fp16Values, true>(step); });
  run("randomk+int8", 12, [](auto& step) { RunRandomK<Int8Values, false>(step); });
  run("randomk+int4", 12, [](auto& step) { RunRandomK<Int4Values, false>(step); });
  run("randomk+sign", 12, [](auto& step) { RunRandomK<SignValues, false>(step); });
  run("randomk of bf16", 10, [](auto& step) { RunRandomK<Fp16Values, false, Bf16>(step); });
}

// Calls add(name, bytes, before, case). `before` must run once before `case`.
template <class Add>
void ForEachDenseSumCase(Add add) {
  add(
      "add fp16", 10, [](auto& step) { RunCast<ToFp16>(step); },
      [](auto& step) { RunAdd<AddCast<ToFp16>>(step); });
  add(
      "add bf16", 10, [](auto& step) { RunCast<ToBf16>(step); },
      [](auto& step) { RunAdd<AddCast<ToBf16>>(step); });
  add(
      "add fp8", 9, [](auto& step) { RunFp8<E4m3>(step); },
      [](auto& step) { RunAdd<AddFp8<E4m3>>(step); });
  add(
      "add fp8:e5m2", 9, [](auto& step) { RunFp8<E5m2>(step); },
      [](auto& step) { RunAdd<AddFp8<E5m2>>(step); });
  add(
      "add int8", 9, [](auto& step) { RunLinear<8>(step); },
      [](auto& step) { RunAdd<AddLinear<8>>(step); });
  add(
      "add int4", 8.5, [](auto& step) { RunLinear<4>(step); },
      [](auto& step) { RunAdd<AddLinear<4>>(step); });
  add(
      "add int2", 8.25, [](auto& step) { RunLinear<2>(step); },
      [](auto& step) { RunAdd<AddLinear<2>>(step); });
  add(
      "add int8:minmax", 9, [](auto& step) { RunMinMax<8>(step); },
      [](auto& step) { RunAdd<AddMinMax<8>>(step); });
  add(
      "add int4:minmax", 8.5, [](auto& step) { RunMinMax<4>(step); },
      [](auto& step) { RunAdd<AddMinMax<4>>(step); });
  add(
      "add qsgd:4", 8.5, [](auto& step) { RunQsgd<4>(step); },
      [](auto& step) { RunAdd<AddQsgd<4>>(step); });
  add(
      "add natural", 8.75, [](auto& step) { RunNatural(step); },
      [](auto& step) { RunAdd<AddNatural>(step); });
  add(
      "add eden:2", 8.25, [](auto& step) { RunEden<2>(step); },
      [](auto& step) { RunAdd<AddRotated>(step); });
  add(
      "add powersgd:2", 8, [](auto& step) { RunPowerSgd<2>(step); },
      [](auto& step) { RunAdd<AddLowRank>(step); });
  add(
      "add intsum:8", 9, [](auto& step) { RunIntSum<8>(step); },
      [](auto& step) { RunAdd<AddIntSum<8>>(step); });
  add(
      "add intsum:4", 8.5, [](auto& step) { RunIntSum<4>(step); },
      [](auto& step) { RunAdd<AddIntSum<4>>(step); });
  add(
      "add intsum:2", 8.25, [](auto& step) { RunIntSum<2>(step); },
      [](auto& step) { RunAdd<AddIntSum<2>>(step); });
  add(
      "add sign", 8.125, [](auto& step) { RunSign<SignMeans::kOne>(step); },
      [](auto& step) { RunAdd<AddSign<SignMeans::kOne>>(step); });
  add(
      "add onebit", 8.125, [](auto& step) { RunSign<SignMeans::kTwo>(step); },
      [](auto& step) { RunAdd<AddSign<SignMeans::kTwo>>(step); });
  add(
      "add signsgd", 8.125, [](auto& step) { RunSign<SignMeans::kNone>(step); },
      [](auto& step) { RunAdd<AddSign<SignMeans::kNone>>(step); });
  add(
      "add fp32", 16, [](auto& step) { RunCast<ToFp32>(step); },
      [](auto& step) { RunClearAndAdd(step); });
}

// Calls add in the same way for sparse codecs.
template <class Add>
void ForEachSparseSumCase(Add add) {
  add(
      "add thresh.+fp16", 8, [](auto& step) { RunSparse<Fp16Values>(step); },
      [](auto& step) { RunAddOfPositions<AddSparse>(step); });
  add(
      "add thresh.+int8", 8, [](auto& step) { RunSparse<Int8Values>(step); },
      [](auto& step) { RunAddOfPositions<AddSparse>(step); });
  add(
      "add thresh.+int4", 8, [](auto& step) { RunSparse<Int4Values>(step); },
      [](auto& step) { RunAddOfPositions<AddSparse>(step); });
  add(
      "add thresh.+sign", 8, [](auto& step) { RunSparse<SignValues>(step); },
      [](auto& step) { RunAddOfPositions<AddSparse>(step); });
  add(
      "add thr. rice", 8, [](auto& step) { RunSparse<Fp16Values, IndexMode::kRice>(step); },
      [](auto& step) { RunAddOfPositions<AddSparse>(step); });
  add(
      "add thr. packed", 8, [](auto& step) { RunSparse<Fp16Values, IndexMode::kPacked>(step); },
      [](auto& step) { RunAddOfPositions<AddSparse>(step); });
  add(
      "add thr. bytes", 8, [](auto& step) { RunSparse<Fp16Values, IndexMode::kBytes>(step); },
      [](auto& step) { RunAddOfPositions<AddSparse>(step); });
  add(
      "add thr. bitmap", 8, [](auto& step) { RunSparse<Fp16Values, IndexMode::kBitmap>(step); },
      [](auto& step) { RunAddOfPositions<AddSparse>(step); });
  add(
      "add ternary:0.5", 8, [](auto& step) { RunTernary(step); },
      [](auto& step) { RunAddOfPositions<AddTernary>(step); });
  add(
      "add ternary packed", 8, [](auto& step) { RunTernary<IndexMode::kPacked>(step); },
      [](auto& step) { RunAddOfPositions<AddTernary>(step); });
  add(
      "add blocktopk:256", 8, [](auto& step) { RunBlockTopK<Fp16Values>(step); },
      [](auto& step) { RunAddOfPlaces<AddBlockTopK>(step); });
  add(
      "add blocktopk:4", 8, [](auto& step) { RunSmallBlockTopK(step); },
      [](auto& step) { RunAddOfPlaces<AddBlockTopK>(step); });
  add(
      "add randomk:5%", 8, [](auto& step) { RunRandomK<Fp16Values, false>(step); },
      [](auto& step) { RunAddOfPlaces<AddRandomK>(step); });
}

template <class Add>
void ForEachCase(Add add) {
  const auto run = [&](const char* name, double bytes, auto launch) {
    add(
        name, bytes, [](auto&) {}, launch);
  };
  ForEachDenseCase(run);
  ForEachSparseCase(run);
  ForEachDenseSumCase(add);
  ForEachSparseSumCase(add);
}

}  // namespace sluice::compress::gpu
