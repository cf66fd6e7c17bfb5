// TextWindows: a part of a text cut into samples: `context` tokens, and for each the one that
// follows it.
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
  uint32_t limit = 0;    // Samples at most; 0: all.
  // In each epoch windows begin elsewhere, so that a token is not always at the same place of its
  // window.
  bool moving = false;
};

// Windows lie side by side: a pass over them sees each token at most once. Thread-safe (const).
class TextWindows {
 public:
  // Of tokens `first` … `last − 1`. INVALID_ARGUMENT, naming `name`: too few for a window.
  static absl::StatusOr<TextWindows> Create(std::shared_ptr<const TextTokens> text, size_t first,
                                            size_t last, const TextWindowsOptions& options,
                                            absl::string_view name);

  uint32_t size() const { return size_; }
  uint32_t context() const { return options_.context; }
  // Below it all tokens are.
  uint32_t vocabulary() const { return static_cast<uint32_t>(text_->vocabulary.size()); }
  // Writes `context` tokens, and the `context` tokens that begin one later.
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

// Where the validation part of a text begins: `fraction` of it, at its end.
size_t ValidationBegin(size_t tokens, double fraction);

}  // namespace sluice::worker
