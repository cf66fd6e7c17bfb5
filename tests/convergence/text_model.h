// TextModel: predicts the next character of a text from the eight before it: an embedding, a hidden
// layer of rectifiers, a softmax. Small enough to be trained in a second, with the things in it
// that trouble codecs: rows that mostly have no gradient, tensors of different scale, biases.
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
  // How many places of the text can be predicted.
  size_t places() const { return symbols_.size() - kContext; }

  // Mean negative log-likelihood of what follows at `places`; `*gradient`, if given, becomes its.
  double Loss(absl::Span<const size_t> places, std::vector<float>* gradient);

 private:
  void Forward(size_t place);
  void Backward(size_t place, float weight, std::vector<float>* gradient);

  std::vector<uint8_t> symbols_;  // The text, as numbers of its characters.
  size_t characters_ = 0;
  std::vector<TensorShape> tensors_;
  std::vector<float> parameters_;
  // Where each tensor begins.
  size_t embedding_ = 0, hidden_ = 0, hidden_bias_ = 0, output_ = 0, output_bias_ = 0;
  // Of the last place.
  std::vector<float> activations_, probabilities_, errors_;
};

}  // namespace sluice
