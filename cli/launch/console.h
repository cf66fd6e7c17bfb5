// SPDX-License-Identifier: Apache-2.0
// Console: prints the output of a run for a person. The output consists of lines and, on a
// terminal, of a block below the lines that is redrawn in place. Strings may come from other
// processes, so their control characters are escaped.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace sluice::cli {

struct ConsoleOptions {
  std::FILE* out = nullptr;
  std::FILE* err = nullptr;
  bool terminal = false;  // True if `out` is a terminal. Blocks are then redrawn in place.
  bool colors = false;
};

// Not thread-safe.
class Console {
 public:
  explicit Console(const ConsoleOptions& options) : options_(options) {}
  ~Console() { ClearBlock(); }

  const ConsoleOptions& options() const { return options_; }
  // Prints a line above the block.
  void Say(absl::string_view line);
  // These print `text` to `err` after the label "error: " (red) or "warning: " (yellow).
  void Error(absl::string_view text);
  void Warning(absl::string_view text);
  // Draws `lines` in place of the previous block. Call this only on a terminal. The caller must cut
  // the lines to the terminal's width.
  void DrawBlock(const std::vector<std::string>& lines);
  void ClearBlock();

 private:
  void Complain(absl::string_view color, absl::string_view label, absl::string_view text);

  const ConsoleOptions options_;
  std::vector<std::string> block_;  // The block that is on the screen.
};

// Returns the width of the terminal that `file` writes to, or 80 if there is none.
int TerminalWidth(std::FILE* file);

}  // namespace sluice::cli
