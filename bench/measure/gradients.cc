// SPDX-License-Identifier: Apache-2.0
#include "bench/measure/gradients.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "base/check.h"
#include "base/random.h"

namespace sluice::bench {
namespace {

constexpr size_t kQuantiles = 1 << 16;
constexpr size_t kPerDraw = 4;  // Number of elements that one random number of 64 bits selects.
// Scale of the softmax's gradient in rows of a tied embedding whose words do not occur in the
// batch.
constexpr float kAbsentWord = 0.05f;

enum Purpose : uint64_t { kTensorScale, kRowScale, kColumnScale, kSignal, kNoise, kPresence };

double NormalQuantile(double p) {
  double low = -9, high = 9;
  for (int i = 0; i < 40; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

std::vector<float> UnitQuantiles(double tail) {
  std::vector<double> values(kQuantiles);
  double energy = 0;
  for (size_t i = kQuantiles / 2; i < kQuantiles; ++i) {
    const double z = NormalQuantile((static_cast<double>(i) + 0.5) / kQuantiles);
    values[i] = z * std::exp(tail * z * z / 2);
    values[kQuantiles - 1 - i] = -values[i];
    energy += 2 * values[i] * values[i];
  }
  const double unit = 1 / std::sqrt(energy / kQuantiles);
  std::vector<float> quantiles(kQuantiles);
  for (size_t i = 0; i < kQuantiles; ++i) quantiles[i] = static_cast<float>(values[i] * unit);
  return quantiles;
}

// Returns exp of a normal variable, scaled so that the mean of squares is 1.
double LogNormal(double spread, CounterRandom* random) {
  const double radius = std::sqrt(-2 * std::log(1 - random->Uniform()));
  const double z = radius * std::cos(2 * M_PI * random->Uniform());
  return std::exp(spread * z - spread * spread);
}

uint64_t Key(uint64_t seed, Purpose purpose, uint64_t a, uint64_t b, uint64_t c) {
  return CounterRandom(MixBits(seed) + purpose, a, b, c).Next();
}

// Returns 64 random bits for element group i. Callers may draw groups in any order.
uint64_t Draw(uint64_t key, uint64_t i) { return MixBits(key + 0x9E3779B97F4A7C15u * (i + 1)); }

// Returns the share of all tokens that the word of rank `row` has. The shares follow Zipf's law,
// flattened at the top.
double WordShare(size_t row, size_t rows) {
  constexpr double kFlat = 3;
  const double all = std::log((static_cast<double>(rows) + kFlat) / kFlat);
  return 1 / ((static_cast<double>(row) + kFlat) * all);
}

}  // namespace

SyntheticGradients::SyntheticGradients(const protocol::TensorTable& table,
                                       const SyntheticOptions& options)
    : table_(table), options_(options), quantiles_(UnitQuantiles(options.tail)) {
  for (uint32_t t = 0; t < table.size(); ++t) {
    Tensor& tensor = tensors_.emplace_back();
    if (absl::EndsWith(table[t].name, "word_embeddings.weight")) tensor.kind = Kind::kWords;
    if (absl::EndsWith(table[t].name, "wte.weight")) tensor.kind = Kind::kTiedWords;
    const uint64_t rows = static_cast<uint64_t>(table[t].shape.empty() ? 1 : table[t].shape[0]);
    CounterRandom of_tensor(Key(options.seed, kTensorScale, t, 0, 0));
    CounterRandom of_rows(Key(options.seed, kRowScale, t, 0, 0));
    CounterRandom of_columns(Key(options.seed, kColumnScale, t, 0, 0));
    const double scale = options.scale * LogNormal(options.tensor_spread, &of_tensor);
    for (uint64_t r = 0; r < rows; ++r) {
      tensor.rows.push_back(static_cast<float>(scale * LogNormal(options.row_spread, &of_rows)));
    }
    for (uint64_t c = 0; c < table[t].elements() / rows; ++c) {
      tensor.columns.push_back(static_cast<float>(LogNormal(options.column_spread, &of_columns)));
    }
  }
}

float SyntheticGradients::RowFactor(const Tensor& tensor, uint64_t key, size_t row) const {
  if (tensor.kind == Kind::kUsual) return 1;
  const double expected = options_.words * WordShare(row, tensor.rows.size());
  const double u = static_cast<double>(Draw(key, row) >> 11) * 0x1.0p-53;
  if (u < std::exp(-expected)) return tensor.kind == Kind::kWords ? 0.0f : kAbsentWord;
  // Gradients of a word's occurrences are independent, so their sum grows like noise.
  return static_cast<float>(std::sqrt(std::max(1.0, expected)));
}

void SyntheticGradients::Fill(uint32_t worker, uint64_t step, uint32_t t,
                              absl::Span<float> gradient) const {
  const Tensor& tensor = tensors_[t];
  const size_t columns = tensor.columns.size();
  Check(gradient.size() == tensor.rows.size() * columns, "the gradient has its tensor's size");
  const uint64_t seed = options_.seed;
  const uint64_t from = Key(seed, kSignal, t, step / options_.turn, 0);
  const uint64_t to = Key(seed, kSignal, t, step / options_.turn + 1, 0);
  const uint64_t noise = Key(seed, kNoise, t, step, worker);
  const uint64_t presence = Key(seed, kPresence, t, step, worker);
  const double angle =
      M_PI / 2 * static_cast<double>(step % options_.turn) / static_cast<double>(options_.turn);
  const auto from_factor = static_cast<float>(std::sqrt(options_.signal) * std::cos(angle));
  const auto to_factor = static_cast<float>(std::sqrt(options_.signal) * std::sin(angle));
  const auto noise_factor = static_cast<float>(std::sqrt(1 - options_.signal));
  const float* const quantiles = quantiles_.data();
  const uint64_t draws = (columns + kPerDraw - 1) / kPerDraw;
  for (size_t r = 0; r < tensor.rows.size(); ++r) {
    const float scale = tensor.rows[r] * RowFactor(tensor, presence, r);
    float* const row = gradient.data() + r * columns;
    if (scale == 0) {
      std::fill(row, row + columns, 0.0f);
      continue;
    }
    for (size_t d = 0; d < draws; ++d) {
      uint64_t a = Draw(from, r * draws + d), b = Draw(to, r * draws + d);
      uint64_t c = Draw(noise, r * draws + d);
      const size_t end = std::min(columns, (d + 1) * kPerDraw);
      for (size_t i = d * kPerDraw; i < end; ++i, a >>= 16, b >>= 16, c >>= 16) {
        row[i] = scale * tensor.columns[i] *
                 (from_factor * quantiles[a & 0xFFFF] + to_factor * quantiles[b & 0xFFFF] +
                  noise_factor * quantiles[c & 0xFFFF]);
      }
    }
  }
}

void SyntheticGradients::FillAll(uint32_t worker, uint64_t step,
                                 absl::Span<float> gradients) const {
  size_t at = 0;
  for (uint32_t t = 0; t < table_.size(); ++t) {
    const size_t count = table_[t].elements();
    Fill(worker, step, t, gradients.subspan(at, count));
    at += count;
  }
  Check(at == gradients.size(), "there is a float for each element of the table");
}

}  // namespace sluice::bench
