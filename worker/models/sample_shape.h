// SPDX-License-Identifier: Apache-2.0
// SampleShape: the shape of a data set's samples for a model. Independent of LibTorch.
#pragma once

#include <cstdint>

namespace sluice::worker {

// Either an image or a row of tokens; the fields of the other kind are 0.
struct SampleShape {
  // Images: float [channels, height, width].
  uint32_t channels = 0;
  uint32_t height = 0;
  uint32_t width = 0;
  // Tokens: int64 [context], each below `classes`.
  uint32_t context = 0;
  // Scores per image or per token. For text, the size of the vocabulary.
  uint32_t classes = 0;

  bool is_tokens() const { return context > 0; }
  friend bool operator==(const SampleShape&, const SampleShape&) = default;
};

}  // namespace sluice::worker
