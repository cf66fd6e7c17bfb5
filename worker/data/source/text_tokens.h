// SPDX-License-Identifier: Apache-2.0
// TextTokens: a text as a sequence of token numbers, one for each byte or character.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice::worker {

// Upper limit for the size of a text. Texts are held in memory, with two bytes per token.
inline constexpr uint64_t kMaxTextBytes = uint64_t{1} << 30;
inline constexpr uint32_t kMaxCharacters = 1 << 16;  // Limit for distinct characters.

enum class TextLevel {
  kByte,  // 256 tokens.
  kChar,  // One token for each different character of the text.
};

struct TextTokens {
  std::vector<uint16_t> tokens;
  // The code points of the tokens, in ascending order. For bytes, 0 to 255.
  std::vector<uint32_t> vocabulary;
};

// `name` names the text in errors. Fails with INVALID_ARGUMENT if the text is empty. At character
// level, it also fails if the text has over kMaxCharacters different characters or is not UTF-8;
// the error then names the offset. Overlong forms, surrogates and truncated characters are not
// UTF-8.
absl::StatusOr<TextTokens> TokenizeText(absl::string_view text, TextLevel level,
                                        absl::string_view name);

// Also returns the errors of ReadDataFile.
absl::StatusOr<TextTokens> ReadTextFile(const std::string& path, TextLevel level);

}  // namespace sluice::worker
