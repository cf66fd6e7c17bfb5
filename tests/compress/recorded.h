// Recorded gradients: what training gives, with its zeros, its tails and its likeness from step to
// step, which no generator of random numbers has.
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

// Of steps 300 to 305 of a small convolutional network on Fashion-MNIST (batch 64, SGD, rate 0.05,
// momentum 0.9, loss 0.3 to 0.4): the second convolution's weights, 32 x (16 x 5 x 5). In
// tests/data as halves, 1,024 times as large; here 0.7 of what they were, so that they are no
// halves.
inline std::vector<float> Recorded(size_t step) {
  static const std::string* const bytes = [] {
    std::ifstream file(SLUICE_TEST_DATA "/fashion_mnist_conv.f16", std::ios::binary);
    return new std::string(std::istreambuf_iterator<char>(file), {});
  }();
  constexpr size_t kWanted = kRecordedSteps * kRecordedCount * sizeof(uint16_t);
  Check(bytes->size() == kWanted, "tests/data holds all that was recorded");
  const auto* const halves = reinterpret_cast<const std::byte*>(bytes->data());
  std::vector<float> gradient(kRecordedCount);
  for (size_t i = 0; i < gradient.size(); ++i) {
    const size_t at = (step % kRecordedSteps) * kRecordedCount + i;
    gradient[i] = FromHalf(LoadAt<uint16_t>(halves, at)) * (0.7f / 1024);
  }
  return gradient;
}

}  // namespace sluice::compress
