// SPDX-License-Identifier: Apache-2.0
// Maps each work to its kernels. RunWork(work, launch) calls launch(kernel, blocks) for each
// kernel, in order. Every source file that includes this header compiles all kernels.
#pragma once

#include <type_traits>

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
#include "compress/gpu/kernels/sign.h"
#include "compress/gpu/kernels/sparse.h"
#include "compress/gpu/kernels/ternary.h"
#include "compress/gpu/kernels/work.h"

namespace sluice::compress::gpu {

// Calls fn with the type that kernels use for gradients of this element type.
template <class Fn>
void WithGradient(ElementType type, Fn fn) {
  switch (type) {
    case ElementType::kFloat32:
      return fn(Fp32{});
    case ElementType::kBfloat16:
      return fn(Bf16{});
    case ElementType::kFloat16:
      return fn(Fp16{});
  }
}

// Calls fn with the constant 2, 4 or 8.
template <class Fn>
void WithCodeBits(uint8_t bits, Fn fn) {
  if (bits == 2) return fn(std::integral_constant<int, 2>());
  if (bits == 4) return fn(std::integral_constant<int, 4>());
  fn(std::integral_constant<int, 8>());
}

template <class Gradient, class Launch>
class EncodeLaunches {
 public:
  EncodeLaunches(const EncodeWork& work, Launch launch) : work_(work), launch_(launch) {}

  void Run() {
    const uint8_t bits = work_.coding.bits;
    switch (work_.coding.algorithm) {
      case Algorithm::kFp32:
        return OfTiles(EncodeCast<ToFp32, Gradient, false>{work_.chunks, work_.tiles});
      case Algorithm::kFp16:
        return RunCast<ToFp16>();
      case Algorithm::kBf16:
        return RunCast<ToBf16>();
      case Algorithm::kFp8:
        return RunFp8<E4m3>();
      case Algorithm::kFp8E5m2:
        return RunFp8<E5m2>();
      case Algorithm::kLinear:
        return WithCodeBits(bits, [&](auto of) { RunLinear<decltype(of)::value>(); });
      case Algorithm::kMinMax:
        if (bits == 8) return RunMinMax<8>();
        return RunMinMax<4>();
      case Algorithm::kQsgd:
        return RunQsgd<2>();
      case Algorithm::kNatural:
        return RunNatural();
      case Algorithm::kIntSum:
        return WithCodeBits(bits, [&](auto of) { RunIntSum<decltype(of)::value>(); });
      case Algorithm::kSign:
        return RunSign<SignMeans::kOne>();
      case Algorithm::kOneBit:
        return RunSign<SignMeans::kTwo>();
      case Algorithm::kSignSgd:
        return RunSign<SignMeans::kNone>();
      case Algorithm::kTernary:
        return RunTernary();
      case Algorithm::kThreshold:
        return RunThreshold();
      case Algorithm::kBlockTopK:
        return RunBlockTopK();
      case Algorithm::kRandomK:
        if (work_.coding.unbiased) return RunRandomK<true>();
        return RunRandomK<false>();
      case Algorithm::kEden:
        return RunEden<1>();
      case Algorithm::kPowerSgd:
        return RunPowerSgd();
    }
  }

 private:
  Slots slots() const {
    return {work_.scratch.positions, work_.scratch.values, work_.scratch.kept};
  }
  Slots packed() const {
    return {work_.scratch.packed_positions, work_.scratch.packed_values, nullptr};
  }
  template <class Kernel>
  void OfTiles(const Kernel& kernel) {
    launch_(kernel, work_.tile_count);
  }
  template <class Kernel>
  void OfChunks(const Kernel& kernel) {
    launch_(kernel, work_.chunk_count);
  }

  // Calls fn with a constant that is true if codes are rounded at random.
  template <class Fn>
  void Rounded(Fn fn) {
    if (work_.coding.stochastic) return fn(std::true_type());
    fn(std::false_type());
  }
  // Calls fn with the format of the kept elements' values.
  template <class Fn>
  void WithValues(Fn fn) {
    switch (work_.coding.values) {
      case Fp16Values::kFormat:
        return fn(Fp16Values());
      case Int4Values::kFormat:
        return fn(Int4Values());
      case Int8Values::kFormat:
        return fn(Int8Values());
      default:
        return fn(SignValues());
    }
  }

  template <class Format>
  void RunCast() {
    Rounded([this](auto random) {
      OfTiles(EncodeCast<Format, Gradient, decltype(random)::value>{work_.chunks, work_.tiles});
    });
  }
  template <class Format>
  void RunFp8() {
    Rounded([this](auto random) {
      OfTiles(EncodeFp8<Format, Gradient, decltype(random)::value>{work_.chunks, work_.tiles});
    });
  }
  template <int kBits>
  void RunLinear() {
    Rounded([this](auto random) {
      OfTiles(EncodeLinear<kBits, Gradient, decltype(random)::value>{work_.chunks, work_.tiles});
    });
  }
  template <int kBits>
  void RunMinMax() {
    Rounded([this](auto random) {
      OfTiles(EncodeMinMax<kBits, Gradient, decltype(random)::value>{work_.chunks, work_.tiles});
    });
  }

  template <int kBits>
  void RunQsgd() {
    if constexpr (kBits < 8) {
      if (work_.coding.bits > kBits) return RunQsgd<kBits + 1>();
    }
    OfTiles(EncodeQsgd<kBits, Gradient>{work_.chunks, work_.tiles});
  }

  template <int kBits>
  void RunEden() {
    if constexpr (kBits < 4) {
      if (work_.coding.bits > kBits) return RunEden<kBits + 1>();
    }
    OfTiles(EncodeEden<kBits, Gradient>{work_.chunks, work_.tiles});
  }

  void RunNatural() {
    auto* const codes = reinterpret_cast<uint16_t*>(work_.scratch.positions);
    OfTiles(EncodeNatural<Gradient>{work_.chunks, work_.tiles, codes});
    OfTiles(PackNatural{work_.chunks, work_.tiles, codes, work_.sizes});
  }

  template <int kBits>
  void RunIntSum() {
    if (work_.largest != nullptr) {
      OfTiles(Largest<Gradient>{work_.chunks, work_.tiles, work_.largest});
    }
    OfTiles(
        EncodeIntSum<kBits, Gradient>{work_.chunks, work_.tiles, work_.exponents, work_.largest});
  }

  template <SignMeans kMeans>
  void RunSign() {
    // A block of 1,024 elements has 32 words.
    uint32_t* const zeros = work_.scratch.positions;
    uint32_t* const counts = work_.scratch.kept;
    OfTiles(EncodeSign<Gradient, kMeans>{work_.chunks, work_.tiles, zeros, counts});
    OfChunks(FinishSign<kMeans>{work_.chunks, zeros, counts, work_.sizes});
  }

  void RunTernary() {
    OfTiles(EncodeTernary<Gradient>{work_.chunks, work_.tiles, work_.coding.share, slots(),
                                    work_.scratch.scales});
    OfChunks(FinishTernary{work_.chunks, work_.coding.index, slots(), work_.scratch.scales,
                           work_.scratch.packed_positions, work_.scratch.gaps, work_.kept,
                           work_.sizes});
  }

  void RunThreshold() {
    OfTiles(SelectAbove<Gradient>{work_.chunks, work_.tiles, work_.thresholds, slots()});
    WithValues([this](auto values) {
      OfChunks(FinishSparse<decltype(values)>{work_.chunks, work_.thresholds, work_.coding.index,
                                              slots(), packed(), work_.scratch.gaps, work_.kept,
                                              work_.sizes});
    });
  }

  void RunBlockTopK() {
    OfTiles(PickLargest<Gradient>{work_.chunks, work_.tiles, work_.coding.bits, slots()});
    WithValues([&](auto values) { FinishPlaces<decltype(values), Placed::kOfBlocks>(); });
  }

  template <bool kUnbiased>
  void RunRandomK() {
    OfTiles(Accumulate<Gradient>{work_.chunks, work_.tiles});
    OfChunks(PickAtRandom<Gradient, kUnbiased>{work_.chunks, work_.places, slots()});
    // Other formats round to nearest, which is biased.
    if constexpr (kUnbiased) return FinishPlaces<Fp16Values, Placed::kUnbiased>();
    WithValues([&](auto values) { FinishPlaces<decltype(values), Placed::kAtRandom>(); });
  }

  template <class Values, Placed kHow>
  void FinishPlaces() {
    OfChunks(FinishPlaced<Values, kHow>{work_.chunks, work_.places, work_.coding.bits, slots(),
                                        packed(), work_.kept, work_.sizes});
  }

  void RunPowerSgd() {
    const LowRankWork of{work_.chunks, work_.matrices, work_.largest, work_.scratch.kept,
                         work_.coding.bits};
    OfTiles(Largest<Gradient, true>{work_.chunks, work_.tiles, work_.largest});
    launch_(MultiplyByColumns<Gradient>{of, work_.row_tiles}, work_.row_tile_count);
    OfChunks(Orthonormalize{of});
    launch_(MultiplyByRows<Gradient>{of, work_.column_tiles}, work_.column_tile_count);
    OfChunks(RefreshColumns{of});
    OfTiles(SubtractProduct{of, work_.tiles});
  }

  const EncodeWork& work_;
  const Launch launch_;
};

template <class Launch>
void RunWork(const EncodeWork& work, Launch launch) {
  WithGradient(work.gradient, [&](auto gradient) {
    EncodeLaunches<decltype(gradient), Launch>(work, launch).Run();
  });
}

template <int kBits, class Launch>
void RunAddQsgd(const AddWork& work, Launch launch) {
  if constexpr (kBits < 8) {
    if (work.bits > kBits) return RunAddQsgd<kBits + 1>(work, launch);
  }
  launch(AddQsgd<kBits>{work.chunks, work.tiles}, work.tile_count);
}

template <class Launch>
void RunWork(const AddWork& work, Launch launch) {
  const Chunk* const chunks = work.chunks;
  const Tile* const tiles = work.tiles;
  const AddScratch scratch{work.ends, work.offsets, work.positions};
  switch (work.addend) {
    case Addend::kNothing:
      return launch(ClearSum{chunks, tiles}, work.tile_count);
    case Addend::kFp32:
      return launch(AddCast<ToFp32>{chunks, tiles}, work.tile_count);
    case Addend::kFp16:
      return launch(AddCast<ToFp16>{chunks, tiles}, work.tile_count);
    case Addend::kBf16:
      return launch(AddCast<ToBf16>{chunks, tiles}, work.tile_count);
    case Addend::kFp8:
      return launch(AddFp8<E4m3>{chunks, tiles}, work.tile_count);
    case Addend::kFp8E5m2:
      return launch(AddFp8<E5m2>{chunks, tiles}, work.tile_count);
    case Addend::kLinear:
      return WithCodeBits(work.bits, [&](auto of) {
        launch(AddLinear<decltype(of)::value>{chunks, tiles}, work.tile_count);
      });
    case Addend::kMinMax:
      if (work.bits == 8) return launch(AddMinMax<8>{chunks, tiles}, work.tile_count);
      return launch(AddMinMax<4>{chunks, tiles}, work.tile_count);
    case Addend::kQsgd:
      return RunAddQsgd<2>(work, launch);
    case Addend::kNatural:
      return launch(AddNatural{chunks, tiles}, work.tile_count);
    case Addend::kIntSum:
      return WithCodeBits(work.bits, [&](auto of) {
        launch(AddIntSum<decltype(of)::value>{chunks, tiles}, work.tile_count);
      });
    case Addend::kSign:
      return launch(AddSign<SignMeans::kOne>{chunks, tiles}, work.tile_count);
    case Addend::kOneBit:
      return launch(AddSign<SignMeans::kTwo>{chunks, tiles}, work.tile_count);
    case Addend::kTernary:
      return launch(AddTernary{chunks, work.sizes, scratch}, work.chunk_count);
    case Addend::kSparse:
      return launch(AddSparse{chunks, work.sizes, scratch}, work.chunk_count);
    case Addend::kBlockTopK:
      return launch(AddBlockTopK{chunks}, work.chunk_count);
    case Addend::kRandomK:
      return launch(AddRandomK{chunks}, work.chunk_count);
    case Addend::kRotated:
      return launch(AddRotated{chunks, tiles}, work.tile_count);
    case Addend::kLowRank:
      return launch(AddLowRank{chunks, tiles}, work.tile_count);
  }
}

template <class Launch>
void RunWork(const SampleWork& work, Launch launch) {
  WithGradient(work.gradient, [&](auto gradient) {
    launch(SampleMagnitudes<decltype(gradient)>{work.chunks, work.strides, work.counts},
           work.chunk_count);
  });
}

}  // namespace sluice::compress::gpu
