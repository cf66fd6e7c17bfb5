// SPDX-License-Identifier: Apache-2.0
#include "worker/data/source/text_tokens.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "absl/strings/str_cat.h"
#include "worker/data/source/data_file.h"

namespace sluice::worker {
namespace {

constexpr uint32_t kCodePoints = 0x110000;

// Returns the code point at `text[*at]` and moves `*at` past it. Returns nullopt if it is not UTF-8
// as Unicode defines it (table 3-7 of its core specification).
std::optional<uint32_t> NextCodePoint(absl::string_view text, size_t* at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[*at + i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) {
    ++*at;
    return lead;
  }
  if (lead < 0xC2 || lead > 0xF4) return std::nullopt;
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (text.size() - *at < length) return std::nullopt;
  uint32_t point = lead & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return std::nullopt;
    point = point << 6 | (byte(i) & 0x3Fu);
  }
  const bool overlong = point < (length == 3 ? 0x800u : length == 4 ? 0x10000u : 0x80u);
  const bool surrogate = point >= 0xD800 && point <= 0xDFFF;
  if (overlong || surrogate || point >= kCodePoints) return std::nullopt;
  *at += length;
  return point;
}

absl::Status NotUtf8(absl::string_view text, size_t at, absl::string_view name) {
  const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n');
  return absl::InvalidArgumentError(absl::StrCat(
      name, ": is not UTF-8: byte 0x", absl::Hex(static_cast<uint8_t>(text[at]), absl::kZeroPad2),
      " at offset ", at, " (line ", line,
      ") does not begin a character; convert the file, or set data.level to byte"));
}

TextTokens TokenizeBytes(absl::string_view text) {
  TextTokens result;
  result.tokens.reserve(text.size());
  for (const char c : text) result.tokens.push_back(static_cast<uint8_t>(c));
  result.vocabulary.resize(256);
  std::iota(result.vocabulary.begin(), result.vocabulary.end(), 0u);
  return result;
}

}  // namespace

absl::StatusOr<TextTokens> TokenizeText(absl::string_view text, TextLevel level,
                                        absl::string_view name) {
  if (text.empty()) return absl::InvalidArgumentError(absl::StrCat(name, ": is empty"));
  if (level == TextLevel::kByte) return TokenizeBytes(text);
  std::vector<bool> seen(kCodePoints);
  size_t characters = 0;
  for (size_t at = 0; at < text.size(); ++characters) {
    const std::optional<uint32_t> point = NextCodePoint(text, &at);
    if (!point.has_value()) return NotUtf8(text, at, name);
    seen[*point] = true;
  }
  TextTokens result;
  std::vector<uint16_t> token_of(kCodePoints);
  for (uint32_t point = 0; point < kCodePoints; ++point) {
    if (!seen[point]) continue;
    token_of[point] = static_cast<uint16_t>(result.vocabulary.size());
    result.vocabulary.push_back(point);
  }
  if (result.vocabulary.size() > kMaxCharacters) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": has ", result.vocabulary.size(),
                                                   " different characters; the limit is ",
                                                   kMaxCharacters, ": set data.level to byte"));
  }
  result.tokens.reserve(characters);
  for (size_t at = 0; at < text.size();) {
    result.tokens.push_back(token_of[NextCodePoint(text, &at).value_or(0)]);
  }
  return result;
}

absl::StatusOr<TextTokens> ReadTextFile(const std::string& path, TextLevel level) {
  const absl::StatusOr<std::string> text = ReadDataFile(path, kMaxTextBytes);
  if (!text.ok()) return text.status();
  return TokenizeText(*text, level, path);
}

}  // namespace sluice::worker
