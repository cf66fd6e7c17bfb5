// SPDX-License-Identifier: Apache-2.0
// Turns a clause, such as the text of a StatusWarning, into a sentence.
#pragma once

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace sluice::cli {

// Returns `text` with a capital letter at its beginning and a full stop at its end.
inline std::string Sentence(std::string text) {
  if (text.empty()) return text;
  text[0] = absl::ascii_toupper(static_cast<unsigned char>(text[0]));
  if (!absl::EndsWith(text, ".")) text += '.';
  return text;
}

}  // namespace sluice::cli
