// TextTokens: a text as the numbers of its bytes or characters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice::worker {

// Larger texts are refused: they are held in memory, two bytes a token.
inline constexpr uint64_t kMaxTextBytes = uint64_t{1} << 30;
inline constexpr uint32_t kMaxCharacters = 1 << 16;  // Different ones.

enum class TextLevel {
  kByte,  // 256 tokens.
  kChar,  // As many as the text has different characters.
};

struct TextTokens {
  std::vector<uint16_t> tokens;
  // The code points that tokens stand for, in ascending order; of bytes 0 to 255.
  std::vector<uint32_t> vocabulary;
};

// `name` is what errors call the text. INVALID_ARGUMENT: empty; of characters also: not UTF-8
// (overlong forms, surrogates and what is cut off included), with the offset; over kMaxCharacters.
absl::StatusOr<TextTokens> TokenizeText(absl::string_view text, TextLevel level,
                                        absl::string_view name);

// Errors of ReadDataFile too.
absl::StatusOr<TextTokens> ReadTextFile(const std::string& path, TextLevel level);

}  // namespace sluice::worker
