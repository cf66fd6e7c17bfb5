// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice {
namespace {

constexpr absl::string_view kReplacement = "\xef\xbf\xbd";

struct Character {
  uint32_t point = 0;
  size_t bytes = 0;  // 0 if the string does not begin with a valid character.
};

// Decodes the first character of `text`, which must not be empty.
Character FirstOf(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return {first, 1};
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return {};
  uint32_t point = first & (0xff >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    point = point << 6 | (byte(i) & 0x3f);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = point >= 0xd800 && point <= 0xdfff;
  if (point < kLeast[bytes] || point > 0x10ffff || surrogate) return {};
  return {point, bytes};
}

// Returns true if a terminal or a log reader could act on `point` instead of showing it as a
// character.
bool IsControl(uint32_t point) {
  return point < 0x20 || (point >= 0x7f && point < 0xa0) ||  // C0, DEL, C1.
         point == 0x2028 || point == 0x2029 ||               // Line and paragraph separators.
         (point >= 0x202a && point <= 0x202e) || (point >= 0x2066 && point <= 0x2069);
}

std::string EscapeOf(uint32_t point) {
  switch (point) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return point < 0x80 ? absl::StrFormat("\\x%02x", point) : absl::StrFormat("\\u%04x", point);
  }
}

}  // namespace

std::string ValidText(absl::string_view text, size_t most) {
  std::string valid;
  while (!text.empty()) {
    const size_t bytes = FirstOf(text).bytes;
    const absl::string_view piece = bytes == 0 ? kReplacement : text.substr(0, bytes);
    if (valid.size() + piece.size() > most) break;
    valid.append(piece.data(), piece.size());
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return valid;
}

std::string EscapeControls(absl::string_view text, LineBreaks line_breaks) {
  std::string escaped;
  while (!text.empty()) {
    const Character character = FirstOf(text);
    const size_t bytes = character.bytes == 0 ? 1 : character.bytes;
    if (character.bytes == 0) {
      absl::StrAppendFormat(&escaped, "\\x%02x", static_cast<uint8_t>(text[0]));
    } else if (IsControl(character.point) &&
               !(character.point == '\n' && line_breaks == LineBreaks::kKeep)) {
      escaped += EscapeOf(character.point);
    } else {
      absl::StrAppend(&escaped, text.substr(0, bytes));
    }
    text.remove_prefix(bytes);
  }
  return escaped;
}

}  // namespace sluice
