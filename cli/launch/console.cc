// SPDX-License-Identifier: Apache-2.0
#include "cli/launch/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace sluice::cli {
namespace {

constexpr absl::string_view kRed = "\x1b[31;1m";
constexpr absl::string_view kYellow = "\x1b[33m";
constexpr absl::string_view kPlain = "\x1b[0m";

void Write(std::FILE* file, absl::string_view text) {
  std::fwrite(text.data(), 1, text.size(), file);
}

// Moves to column 0 first, because the "^C" that a terminal prints may have moved the cursor.
std::string ToFirstLine(size_t lines) { return absl::StrCat("\r\x1b[", lines, "A"); }

}  // namespace

void Console::Say(absl::string_view line) {
  const std::vector<std::string> block = block_;
  ClearBlock();
  Write(options_.out, absl::StrCat(EscapeControls(line, LineBreaks::kKeep), "\n"));
  std::fflush(options_.out);
  DrawBlock(block);
}

void Console::Error(absl::string_view text) { Complain(kRed, "error: ", text); }
void Console::Warning(absl::string_view text) { Complain(kYellow, "warning: ", text); }

void Console::Complain(absl::string_view color, absl::string_view label, absl::string_view text) {
  const std::vector<std::string> block = block_;
  ClearBlock();
  const std::string shown = EscapeControls(text, LineBreaks::kKeep);
  Write(options_.err, options_.colors ? absl::StrCat(color, label, kPlain, shown, "\n")
                                      : absl::StrCat(label, shown, "\n"));
  std::fflush(options_.err);
  DrawBlock(block);
}

void Console::DrawBlock(const std::vector<std::string>& lines) {
  if (!options_.terminal || lines.empty()) return;
  std::string text;
  if (!block_.empty()) absl::StrAppend(&text, ToFirstLine(block_.size()));
  for (const std::string& line : lines) {
    absl::StrAppend(&text, EscapeControls(line), "\x1b[K\n");
  }
  absl::StrAppend(&text, "\x1b[J");
  Write(options_.out, text);
  std::fflush(options_.out);
  block_ = lines;
}

void Console::ClearBlock() {
  if (block_.empty()) return;
  Write(options_.out, absl::StrCat(ToFirstLine(block_.size()), "\x1b[J"));
  std::fflush(options_.out);
  block_.clear();
}

int TerminalWidth(std::FILE* file) {
  winsize size{};
  if (::ioctl(::fileno(file), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace sluice::cli
