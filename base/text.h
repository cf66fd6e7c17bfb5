// Texts that come from elsewhere: files, other processes, operating systems. A text in a message
// must be UTF-8, else the message cannot be read; a text on a console or in a log must not end its
// line or command the terminal.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace sluice {

constexpr size_t kMessageTextMax = 64 << 10;

// `text` as a message may carry it: each byte that belongs to no character of UTF-8 becomes U+FFFD,
// and characters beyond `most` bytes are left out.
std::string ValidText(absl::string_view text, size_t most = kMessageTextMax);

enum class LineBreaks { kEscape, kKeep };

// `text` with control characters, and those that break lines or change the direction of writing,
// as escapes: \n, \t, \x1b, \u202e; bytes that are no UTF-8 likewise.
std::string EscapeControls(absl::string_view text, LineBreaks line_breaks = LineBreaks::kEscape);

}  // namespace sluice
