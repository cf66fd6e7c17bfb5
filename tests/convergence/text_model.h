// SPDX-License-Identifier: Apache-2.0
// TextModel: predicts the next character of a text from the previous eight. The model consists of
// an embedding, a hidden layer of rectifiers, and a softmax. It trains in a second but has the
// properties that are hard for codecs: rows that mostly have no gradient, tensors of different
// scale, and biases.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/random.h"
#include "tests/convergence/exchange.h"

namespace sluice {

class TextModel {
 public:
  static constexpr size_t kContext = 8;
  static constexpr size_t kEmbedding = 16;
  static constexpr size_t kInputs = kContext * kEmbedding;
  static constexpr size_t kHidden = 96;

  explicit TextModel(const std::string& text);

  const std::vector<TensorShape>& tensors() const { return tensors_; }
  size_t size() const { return parameters_.size(); }
  std::vector<float>& parameters() { return parameters_; }
  // Returns the number of places in the text that can be predicted.
  size_t places() const { return symbols_.size() - kContext; }

  // Returns the mean negative log-likelihood of the next characters at `places`. If `gradient` is
  // not null, it receives the gradient of that loss.
  double Loss(absl::Span<const size_t> places, std::vector<float>* gradient);

 private:
  void Forward(size_t place);
  void Backward(size_t place, float weight, std::vector<float>* gradient);

  std::vector<uint8_t> symbols_;  // The text as character numbers.
  size_t characters_ = 0;
  std::vector<TensorShape> tensors_;
  std::vector<float> parameters_;
  // Index of the first parameter of each tensor.
  size_t embedding_ = 0, hidden_ = 0, hidden_bias_ = 0, output_ = 0, output_bias_ = 0;
  // Values for the last place that was evaluated.
  std::vector<float> activations_, probabilities_, errors_;
};

}  // namespace sluice
