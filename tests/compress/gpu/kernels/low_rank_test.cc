// SPDX-License-Identifier: Apache-2.0
// Tests that kernels encode matrices like the processor's powersgd, step by step.
#include "compress/gpu/kernels/low_rank.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <string>

#include "compress/gpu/kernels/largest.h"
#include "tests/compress/gpu/kernels/encoded.h"

namespace sluice::compress::gpu {
namespace {

// A matrix that both encoders encode, with or without residuals, in either order of threads.
class TwoEncoders {
 public:
  TwoEncoders(uint32_t rows, uint32_t columns, uint32_t rank, bool with_residual, ThreadOrder order)
      : codec_(MakeCodec(*ParseCodecSpec("powersgd:" + std::to_string(rank)))),
        rank_(rank),
        order_(order),
        residual_(with_residual ? rows * columns : 0),
        wanted_residual_(residual_),
        p_(rank * rows, 7.0f),
        q_(rank * columns),
        wanted_q_(q_) {
    matrix_ = {rows, columns, p_.data(), q_.data()};
    codec_->InitState(rows * columns, rows, 5, absl::MakeSpan(q_));
    wanted_q_ = q_;
  }

  void Step(const std::vector<float>& gradient, uint64_t key) {
    EncodeInput input;
    input.gradient = gradient;
    input.residual = absl::MakeSpan(wanted_residual_);
    input.state = absl::MakeSpan(wanted_q_);
    input.rows = matrix_.rows;
    input.shared_key = key;
    std::vector<std::byte> frame;
    ASSERT_TRUE(EncodeFrame(*codec_, input, &frame).ok());

    std::vector<uint8_t> payload(frame.size() - kFrameHeaderSize + 8, 0xEE);
    uint32_t largest = 0, replaced = 0;
    Chunk chunk;
    chunk.gradient = gradient.data();
    if (!residual_.empty()) chunk.residual = chunk.left = residual_.data();
    chunk.count = static_cast<uint32_t>(gradient.size());
    chunk.shared_key = key;
    chunk.payload = payload.data();
    std::vector<Tile> tiles, row_tiles, column_tiles;
    AppendTiles(0, chunk.count, kTile, &tiles);
    AppendTiles(0, matrix_.rows, kTileRows, &row_tiles);
    AppendTiles(0, matrix_.columns, kTileColumns, &column_tiles);
    const LowRankWork work{&chunk, &matrix_, &largest, &replaced, rank_};
    Run(Largest<Fp32, true>{&chunk, tiles.data(), &largest}, tiles.size());
    Run(MultiplyByColumns<Fp32>{work, row_tiles.data()}, row_tiles.size());
    Run(Orthonormalize{work}, 1);
    Run(MultiplyByRows<Fp32>{work, column_tiles.data()}, column_tiles.size());
    Run(RefreshColumns{work}, 1);
    Run(SubtractProduct{work, tiles.data()}, tiles.size());

    const size_t size = frame.size() - kFrameHeaderSize;
    ASSERT_EQ(std::memcmp(payload.data(), frame.data() + kFrameHeaderSize, size), 0);
    for (size_t i = size; i < payload.size(); ++i) ASSERT_EQ(payload[i], 0xEE) << i;
    ExpectSame(residual_, wanted_residual_, "residual");
    ExpectSame(q_, wanted_q_, "state");

    std::vector<float> sum = MadeUp(5, gradient.size(), key), wanted_sum = sum;
    chunk.sum = sum.data();
    Run(AddLowRank{&chunk, tiles.data()}, tiles.size());
    AddValidFrames(frame, absl::MakeSpan(wanted_sum));
    ExpectSame(sum, wanted_sum, "sum");
  }

 private:
  template <class Kernel>
  void Run(const Kernel& kernel, size_t blocks) const {
    RunOnHost(kernel, static_cast<uint32_t>(blocks), order_);
  }
  static void ExpectSame(const std::vector<float>& got, const std::vector<float>& wanted,
                         const char* what) {
    const auto same_bits = [](float a, float b) {
      return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
    };
    EXPECT_TRUE(std::equal(got.begin(), got.end(), wanted.begin(), wanted.end(), same_bits))
        << what;
  }

  std::unique_ptr<Codec> codec_;
  uint32_t rank_;
  ThreadOrder order_;
  LowRankMatrix matrix_;
  std::vector<float> residual_, wanted_residual_, p_, q_, wanted_q_;
};

using MakeGradient = std::function<std::vector<float>(uint32_t rows, uint32_t columns, uint64_t)>;

void ExpectSameSteps(uint32_t rows, uint32_t columns, uint32_t rank, const MakeGradient& make) {
  for (const bool with_residual : {true, false}) {
    for (const ThreadOrder order : kOrders) {
      TwoEncoders encoders(rows, columns, rank, with_residual, order);
      for (uint64_t step = 1; step <= 3; ++step) {
        ASSERT_NO_FATAL_FAILURE(encoders.Step(make(rows, columns, step), 50 + step))
            << rows << " x " << columns << ", rank " << rank << ", step " << step;
      }
    }
  }
}

TEST(CudaLowRank, ShapesAndRanks) {
  const auto any = [](uint32_t rows, uint32_t columns, uint64_t step) {
    return HeavyTailed(size_t{rows} * columns, step);
  };
  ExpectSameSteps(64, 64, 1, any);
  ExpectSameSteps(33, 257, 2, any);
  ExpectSameSteps(257, 31, 3, any);
  ExpectSameSteps(100, 300, 4, any);
  ExpectSameSteps(40, 500, 9, any);
  ExpectSameSteps(4, 2000, 1, any);
  ExpectSameSteps(2000, 5, 1, any);
  ExpectSameSteps(200, 180, 32, any);
}

TEST(CudaLowRank, Extremes) {
  for (uint32_t kind = 1; kind < 8; ++kind) {
    ExpectSameSteps(50, 90, 3, [kind](uint32_t rows, uint32_t columns, uint64_t step) {
      return MadeUp(kind, size_t{rows} * columns, step);
    });
  }
}

TEST(CudaLowRank, LessThanTheRank) {
  // First all elements are zero, then all outside one row, then all outside one row and one column.
  // Therefore most columns of P are replaced.
  const auto few = [](uint32_t rows, uint32_t columns, uint64_t step) {
    std::vector<float> gradient(size_t{rows} * columns);
    for (uint32_t i = 0; i < columns && step > 1; ++i) gradient[7 * columns + i] = 0.5f;
    for (uint32_t i = 0; i < rows && step > 2; ++i) gradient[i * columns + 3] = -2;
    return gradient;
  };
  ExpectSameSteps(60, 70, 5, few);
  ExpectSameSteps(17, 700, 8, few);
}

}  // namespace
}  // namespace sluice::compress::gpu
