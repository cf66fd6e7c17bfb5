// SPDX-License-Identifier: Apache-2.0
// TextWindows: divides part of a text into samples of `context` tokens, each token with the one
// that follows it as its target.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/data/source/augmentation.h"
#include "worker/data/source/text_tokens.h"

namespace sluice::worker {

struct TextWindowsOptions {
  uint32_t context = 1;  // Tokens of a sample.
  uint32_t limit = 0;    // Maximum number of samples; 0 means all.
  // Shifts the windows in each epoch, so that a token does not always have the same position in its
  // window.
  bool moving = false;
};

// Windows are adjacent and do not overlap, so a pass over them sees each token at most once.
// Thread-safe (const).
class TextWindows {
 public:
  // Divides tokens `first` … `last − 1`. Fails with INVALID_ARGUMENT, and names `name`, if there
  // are too few tokens for a window.
  static absl::StatusOr<TextWindows> Create(std::shared_ptr<const TextTokens> text, size_t first,
                                            size_t last, const TextWindowsOptions& options,
                                            absl::string_view name);

  uint32_t size() const { return size_; }
  uint32_t context() const { return options_.context; }
  // Upper bound (exclusive) of all tokens.
  uint32_t vocabulary() const { return static_cast<uint32_t>(text_->vocabulary.size()); }
  // Writes the window's `context` tokens to `inputs`, and the same window shifted by one token to
  // `targets`.
  void Read(uint32_t sample, EpochKey epoch, absl::Span<int64_t> inputs,
            absl::Span<int64_t> targets) const;

 private:
  TextWindows(std::shared_ptr<const TextTokens> text, size_t first, uint32_t size,
              const TextWindowsOptions& options)
      : text_(std::move(text)), first_(first), size_(size), options_(options) {}

  std::shared_ptr<const TextTokens> text_;
  size_t first_;
  uint32_t size_;
  TextWindowsOptions options_;
};

// Returns the first token of the validation part: the last `fraction` of the text.
size_t ValidationBegin(size_t tokens, double fraction);

}  // namespace sluice::worker
