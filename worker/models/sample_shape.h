// SampleShape: what one sample of a data set looks like to a model. Knows nothing of LibTorch.
#pragma once

#include <cstdint>

namespace sluice::worker {

// Either an image or a row of tokens; the members of the other are 0.
struct SampleShape {
  // Images: float [channels, height, width].
  uint32_t channels = 0;
  uint32_t height = 0;
  uint32_t width = 0;
  // Tokens: int64 [context], each below `classes`.
  uint32_t context = 0;
  // Scores that a model gives an image, or each token. Of text: the vocabulary.
  uint32_t classes = 0;

  bool is_tokens() const { return context > 0; }
  friend bool operator==(const SampleShape&, const SampleShape&) = default;
};

}  // namespace sluice::worker
