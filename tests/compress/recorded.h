// SPDX-License-Identifier: Apache-2.0
// Recorded gradients from training. They have zeros, heavy tails and similarity between steps,
// which random generators do not reproduce.
#pragma once

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/float_bits.h"
#include "compress/codecs/half.h"
#include "compress/coding/payload.h"

namespace sluice::compress {

constexpr size_t kRecordedSteps = 6;
constexpr size_t kRecordedCount = 32 * 16 * 5 * 5;

// Returns gradients from steps 300 to 305 of a small convolutional network on Fashion-MNIST (batch
// 64, SGD, rate 0.05, momentum 0.9, loss 0.3 to 0.4): the weights of the second convolution, 32 x
// (16 x 5 x 5). tests/data stores them as halves, multiplied by 1,024. This function scales them to
// 0.7 of their original values, so that they are not exactly representable as halves.
inline std::vector<float> Recorded(size_t step) {
  static const std::string* const bytes = [] {
    std::ifstream file(SLUICE_TEST_DATA "/fashion_mnist_conv.f16", std::ios::binary);
    return new std::string(std::istreambuf_iterator<char>(file), {});
  }();
  constexpr size_t kWanted = kRecordedSteps * kRecordedCount * sizeof(uint16_t);
  Check(bytes->size() == kWanted, "tests/data has the complete recording");
  const auto* const halves = reinterpret_cast<const std::byte*>(bytes->data());
  std::vector<float> gradient(kRecordedCount);
  for (size_t i = 0; i < gradient.size(); ++i) {
    const size_t at = (step % kRecordedSteps) * kRecordedCount + i;
    gradient[i] = FromHalf(LoadAt<uint16_t>(halves, at)) * (0.7f / 1024);
  }
  return gradient;
}

}  // namespace sluice::compress
