// Console: what a person sees of a run: lines, and on a terminal a block below them that is drawn
// over. Texts come from other processes: control characters in them are escaped.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace sluice::cli {

struct ConsoleOptions {
  std::FILE* out = nullptr;
  std::FILE* err = nullptr;
  bool terminal = false;  // `out` is one: blocks are redrawn in place.
  bool colors = false;
};

// Not thread-safe.
class Console {
 public:
  explicit Console(const ConsoleOptions& options) : options_(options) {}
  ~Console() { ClearBlock(); }

  const ConsoleOptions& options() const { return options_; }
  // A line above the block.
  void Say(absl::string_view line);
  // The same on `err`, "error: " in red before it.
  void Error(absl::string_view text);
  void Warning(absl::string_view text);
  // Draws `lines` over the last block. On a terminal only; the caller cuts lines to the width.
  void DrawBlock(const std::vector<std::string>& lines);
  void ClearBlock();

 private:
  void Complain(absl::string_view color, absl::string_view label, absl::string_view text);

  const ConsoleOptions options_;
  std::vector<std::string> block_;  // What is drawn now.
};

// Of the terminal behind `file`; 80 if it has none.
int TerminalWidth(std::FILE* file);

}  // namespace sluice::cli
