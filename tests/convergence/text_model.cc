// SPDX-License-Identifier: Apache-2.0
#include "tests/convergence/text_model.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace sluice {
namespace {

// Computes the product in a fixed order that compilers can vectorise: 16 sums side by side.
float Dot(const float* a, const float* b, size_t count) {
  constexpr size_t kLanes = 16;
  std::array<float, kLanes> sums{};
  const size_t whole = count / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  float sum = 0;
  for (size_t i = whole; i < count; ++i) sum += a[i] * b[i];
  for (const float x : sums) sum += x;
  return sum;
}

void AddScaled(float factor, const float* __restrict from, float* __restrict to, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

}  // namespace

TextModel::TextModel(const std::string& text) {
  std::array<int, 256> numbers;
  numbers.fill(-1);
  for (const char c : text) {
    int& number = numbers[static_cast<unsigned char>(c)];
    if (number < 0) number = static_cast<int>(characters_++);
    symbols_.push_back(static_cast<uint8_t>(number));
  }
  const auto add = [&](size_t rows, size_t columns) {
    const size_t begin = parameters_.size();
    const bool matrix = rows > 1;
    tensors_.push_back({rows * columns, matrix ? static_cast<uint32_t>(rows) : 0});
    CounterRandom random(1, tensors_.size());
    const double range = matrix ? std::sqrt(3.0 / static_cast<double>(rows)) : 0;
    for (size_t i = 0; i < rows * columns; ++i) {
      parameters_.push_back(static_cast<float>(range * (2 * random.Uniform() - 1)));
    }
    return begin;
  };
  embedding_ = add(characters_, kEmbedding);
  hidden_ = add(kInputs, kHidden);
  hidden_bias_ = add(1, kHidden);
  output_ = add(kHidden, characters_);
  output_bias_ = add(1, characters_);
  activations_.resize(kHidden);
  probabilities_.resize(characters_);
  errors_.resize(kHidden);
}

double TextModel::Loss(absl::Span<const size_t> places, std::vector<float>* gradient) {
  if (gradient != nullptr) gradient->assign(size(), 0.0f);
  double loss = 0;
  for (const size_t place : places) {
    Forward(place);
    loss -= std::log(std::max(1e-30f, probabilities_[symbols_[place + kContext]]));
    if (gradient != nullptr) Backward(place, 1.0f / static_cast<float>(places.size()), gradient);
  }
  return loss / static_cast<double>(places.size());
}

void TextModel::Forward(size_t place) {
  const float* const p = parameters_.data();
  std::copy_n(p + hidden_bias_, kHidden, activations_.begin());
  for (size_t i = 0; i < kInputs; ++i) {
    const size_t symbol = symbols_[place + i / kEmbedding];
    const float input = p[embedding_ + symbol * kEmbedding + i % kEmbedding];
    AddScaled(input, p + hidden_ + i * kHidden, activations_.data(), kHidden);
  }
  for (float& x : activations_) x = std::max(x, 0.0f);
  std::copy_n(p + output_bias_, characters_, probabilities_.begin());
  for (size_t j = 0; j < kHidden; ++j) {
    if (activations_[j] == 0) continue;
    AddScaled(activations_[j], p + output_ + j * characters_, probabilities_.data(), characters_);
  }
  const float largest = *std::max_element(probabilities_.begin(), probabilities_.end());
  float sum = 0;
  for (float& x : probabilities_) sum += x = std::exp(x - largest);
  for (float& x : probabilities_) x /= sum;
}

void TextModel::Backward(size_t place, float weight, std::vector<float>* gradient) {
  const float* const p = parameters_.data();
  float* const g = gradient->data();
  probabilities_[symbols_[place + kContext]] -= 1;
  for (float& x : probabilities_) x *= weight;
  AddScaled(1, probabilities_.data(), g + output_bias_, characters_);
  for (size_t j = 0; j < kHidden; ++j) {
    errors_[j] = 0;
    if (activations_[j] == 0) continue;
    const size_t row = output_ + j * characters_;
    AddScaled(activations_[j], probabilities_.data(), g + row, characters_);
    errors_[j] = Dot(probabilities_.data(), p + row, characters_);
  }
  AddScaled(1, errors_.data(), g + hidden_bias_, kHidden);
  for (size_t i = 0; i < kInputs; ++i) {
    const size_t symbol = symbols_[place + i / kEmbedding];
    const size_t at = embedding_ + symbol * kEmbedding + i % kEmbedding;
    AddScaled(p[at], errors_.data(), g + hidden_ + i * kHidden, kHidden);
    g[at] += Dot(errors_.data(), p + hidden_ + i * kHidden, kHidden);
  }
}

}  // namespace sluice
