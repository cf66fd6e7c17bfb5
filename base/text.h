// SPDX-License-Identifier: Apache-2.0
// Functions that clean strings from outside the process, such as from files, other processes or the
// operating system. A string in a message must be UTF-8, or the receiver cannot parse the message.
// A string on a console or in a log must not end its line or control the terminal.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace sluice {

constexpr size_t kMessageTextMax = 64 << 10;

// Returns `text` in a form that a message may carry. Each byte that is not part of a UTF-8
// character becomes U+FFFD. The result is cut to `most` bytes at a character boundary.
std::string ValidText(absl::string_view text, size_t most = kMessageTextMax);

enum class LineBreaks { kEscape, kKeep };

// Returns `text` with escapes (\n, \t, \x1b, \u202e) in place of control characters, characters
// that break lines or change the writing direction, and bytes that are not UTF-8.
std::string EscapeControls(absl::string_view text, LineBreaks line_breaks = LineBreaks::kEscape);

}  // namespace sluice
