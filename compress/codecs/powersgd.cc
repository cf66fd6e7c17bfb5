// SPDX-License-Identifier: Apache-2.0
#include "compress/codecs/powersgd.h"

#include <algorithm>
#include <cmath>

#include "base/float_bits.h"
#include "compress/codecs/half.h"
#include "compress/coding/accumulator.h"
#include "compress/coding/low_rank.h"
#include "compress/coding/payload.h"
#include "compress/simd/accumulate.h"
#include "compress/simd/low_rank.h"

namespace sluice::compress {
namespace {

constexpr size_t kFactorsAt = LowRankShape::kFactorsAt;

void FillRandom(uint64_t key, size_t column, absl::Span<float> out) {
  for (size_t i = 0; i < out.size(); ++i) out[i] = RandomOfColumn(key, column, i);
}

// Consecutive columns of `size` elements each.
struct Columns {
  float* values;
  size_t size;
  size_t rank;

  float* at(size_t k) const { return values + k * size; }
  absl::Span<float> column(size_t k) const { return absl::MakeSpan(at(k), size); }
};

// Removes from column `k` its components along the first `k` columns, which are orthonormal. The
// function makes two passes, because one pass leaves rounding errors that can be as large as a
// small remainder. Returns the squared norm of the remainder.
float Orthogonalize(const Columns& columns, size_t k) {
  float* const column = columns.at(k);
  for (int pass = 0; pass < 2; ++pass) {
    for (size_t j = 0; j < k; ++j) {
      const float along = DotProduct(columns.at(j), column, columns.size);
      AddScaled(columns.at(j), -along, column, columns.size);
    }
  }
  return DotProduct(column, column, columns.size);
}

// Performs modified Gram-Schmidt. A column that depends linearly on earlier columns is replaced by
// a random one, because the matrix may have a component in the new direction. Returns the replaced
// columns, one bit for each.
uint32_t Orthonormalize(const Columns& columns, uint64_t key) {
  uint32_t replaced = 0;
  for (size_t k = 0; k < columns.rank; ++k) {
    const absl::Span<float> column = columns.column(k);
    float before = DotProduct(column.data(), column.data(), column.size());
    float left = Orthogonalize(columns, k);
    if (!(left > kLostColumn * before)) {
      replaced |= uint32_t{1} << k;
      FillRandom(key, kRankMax + k, column);
      before = DotProduct(column.data(), column.data(), column.size());
      left = Orthogonalize(columns, k);
    }
    const float factor = left > kLostColumn * before ? 1 / std::sqrt(left) : 0;
    for (float& x : column) x *= factor;
  }
  return replaced;
}

// Adds sign * (the product of the factors at `factors`, P then Q) to `sum`.
void AddProduct(const std::byte* factors, const LowRankShape& shape, size_t rank, float sign,
                float* sum) {
  constexpr size_t kTile = 256;
  float q[kRankMax * kTile];
  float p[kRankMax];
  const size_t q_at = rank * shape.rows;
  for (size_t at = 0; at < shape.columns; at += kTile) {
    const size_t size = std::min(kTile, shape.columns - at);
    for (size_t k = 0; k < rank; ++k) {
      for (size_t j = 0; j < size; ++j) {
        q[k * kTile + j] = FromBfloat(LoadAt<uint16_t>(factors, q_at + k * shape.columns + at + j));
      }
    }
    for (size_t row = 0; row < shape.rows; ++row) {
      for (size_t k = 0; k < rank; ++k) {
        p[k] = sign * FromBfloat(LoadAt<uint16_t>(factors, k * shape.rows + row));
      }
      AddCombination(p, q, kTile, rank, sum + row * shape.columns + at, size);
    }
  }
}

class PowerSgdCodec final : public Codec {
 public:
  explicit PowerSgdCodec(size_t rank) : rank_(rank), dense_(MakeHalf({.codec = CodecId::kFp16})) {}

  FormatId format() const override { return FormatId::kLowRank; }
  bool lossless() const override { return false; }
  size_t MaxPayloadSize(size_t count, uint32_t rows) const override {
    const LowRankShape shape = LowRankShapeFor(count, rows, rank_);
    if (shape.rows == 0) return 1 + dense_->MaxPayloadSize(count, rows);
    return shape.PayloadSize(rank_);
  }
  size_t StateSize(size_t count, uint32_t rows) const override {
    return LowRankShapeFor(count, rows, rank_).columns * rank_;
  }
  void InitState(size_t count, uint32_t rows, uint64_t shared_key,
                 absl::Span<float> state) const override {
    const size_t columns = LowRankShapeFor(count, rows, rank_).columns;
    for (size_t k = 0; k < rank_ && columns > 0; ++k) {
      FillRandom(shared_key, k, state.subspan(k * columns, columns));
    }
  }

  void Encode(const EncodeInput& input, std::vector<std::byte>* out) const override {
    const size_t count = input.gradient.size();
    const LowRankShape shape = LowRankShapeFor(count, input.rows, rank_);
    if (shape.rows == 0) {
      out->push_back(std::byte{0});
      return dense_->Encode(input, out);
    }
    const float* acc = input.gradient.data();
    if (!input.residual.empty()) {
      for (size_t i = 0; i < count; ++i) input.residual[i] += input.gradient[i];
      acc = input.residual.data();
    }
    const size_t start = out->size();
    out->resize(start + shape.PayloadSize(rank_));
    std::byte* const payload = out->data() + start;
    payload[0] = static_cast<std::byte>(rank_);
    StoreAt(payload + 1, 0, static_cast<uint32_t>(shape.rows));
    WriteFactors(input, acc, shape, payload + kFactorsAt);
    if (!input.residual.empty()) {
      AddProduct(payload + kFactorsAt, shape, rank_, -1, input.residual.data());
    }
  }

 private:
  // Performs one power iteration and stores the state for the next step.
  void WriteFactors(const EncodeInput& input, const float* acc, const LowRankShape& shape,
                    std::byte* factors) const {
    const uint32_t largest = LargestMagnitudeBits(acc, nullptr, shape.rows * shape.columns);
    if (largest == 0) {
      std::memset(factors, 0, shape.FactorsSize(rank_));
      return;
    }
    const float normalizer = PowerThatNormalizes(largest);
    const MatrixView matrix = {acc, shape.rows, shape.columns, normalizer};
    std::vector<float>& p_values = input.scratch->floats;
    p_values.resize(rank_ * shape.rows);
    const Columns p = {p_values.data(), shape.rows, rank_};
    const Columns q = {WarmStart(input, shape), shape.columns, rank_};

    MultiplyByColumns(matrix, q.values, rank_, p.values);
    const uint32_t replaced = Orthonormalize(p, input.shared_key);
    // The second factor is computed from the rounded first factor, because the receiver has the
    // rounded one.
    for (size_t i = 0; i < p_values.size(); ++i) {
      const uint16_t code = RoundWithin(p_values[i], kLargestP);
      StoreAt(factors, i, code);
      p_values[i] = FromBfloat(code);
    }
    MultiplyByRows(matrix, p.values, rank_, q.values);
    for (size_t i = 0; i < rank_ * shape.columns; ++i) {
      StoreAt(factors, p_values.size() + i, RoundWithin(q.values[i] / normalizer, kLargestQ));
    }
    RefreshLost(q, replaced, input.shared_key);
  }

  // Returns Q of the last step from the state, or an initial value if the caller keeps no state.
  float* WarmStart(const EncodeInput& input, const LowRankShape& shape) const {
    if (!input.state.empty()) return input.state.data();
    input.scratch->values.resize(rank_ * shape.columns);
    InitState(shape.rows * shape.columns, static_cast<uint32_t>(shape.rows), input.shared_key,
              absl::MakeSpan(input.scratch->values));
    return input.scratch->values.data();
  }

  // Replaces a column with a random one if it found nothing, or only what other columns had found.
  // The next step then tries another direction.
  void RefreshLost(const Columns& q, uint32_t replaced, uint64_t key) const {
    float energies[kRankMax];
    float most = 0;
    for (size_t k = 0; k < rank_; ++k) {
      energies[k] = DotProduct(q.at(k), q.at(k), q.size);
      most = std::max(most, energies[k]);
    }
    for (size_t k = 0; k < rank_; ++k) {
      const bool lost = (replaced >> k & 1) != 0 || !(energies[k] > kLostColumn * most);
      if (lost) FillRandom(key, k, q.column(k));
    }
  }

  const size_t rank_;
  const std::unique_ptr<Codec> dense_;
};

}  // namespace

std::unique_ptr<Codec> MakePowerSgd(const CodecSpec& spec) {
  return std::make_unique<PowerSgdCodec>(static_cast<size_t>(spec.level));
}

absl::Status ValidateLowRank(absl::Span<const std::byte> payload, size_t count) {
  if (payload.empty()) return PayloadSizeError("low-rank", count, 1 + 2 * count, 0);
  const auto rank = static_cast<size_t>(payload[0]);
  if (rank == 0) return ValidateFp16(payload.subspan(1), count);
  if (rank > kRankMax || payload.size() < kFactorsAt) {
    return absl::InvalidArgumentError(absl::StrCat("low-rank payload of ", payload.size(),
                                                   " bytes with rank ", rank, "; the largest is ",
                                                   kRankMax));
  }
  const auto rows = LoadAt<uint32_t>(payload.data() + 1, 0);
  const LowRankShape shape = LowRankShapeFor(count, rows, rank);
  if (shape.rows == 0) {
    return absl::InvalidArgumentError(absl::StrCat("low-rank payload: ", count, " elements in ",
                                                   rows, " rows cannot be sent as rank ", rank));
  }
  const size_t wanted = shape.PayloadSize(rank);
  if (payload.size() != wanted) return PayloadSizeError("low-rank", count, wanted, payload.size());
  const std::byte* const factors = payload.data() + kFactorsAt;
  for (size_t i = 0; i < rank * (shape.rows + shape.columns); ++i) {
    const uint16_t largest = i < rank * shape.rows ? kLargestP : kLargestQ;
    if ((LoadAt<uint16_t>(factors, i) & 0x7FFF) <= largest) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("low-rank payload: number ", i, " of the factors is too large"));
  }
  return absl::OkStatus();
}

void DecodeAddLowRank(absl::Span<const std::byte> payload, absl::Span<float> sum) {
  const auto rank = static_cast<size_t>(payload[0]);
  if (rank == 0) return DecodeAddFp16(payload.subspan(1), sum);
  const auto rows = LoadAt<uint32_t>(payload.data() + 1, 0);
  AddProduct(payload.data() + kFactorsAt, LowRankShapeFor(sum.size(), rows, rank), rank, 1,
             sum.data());
}

}  // namespace sluice::compress
