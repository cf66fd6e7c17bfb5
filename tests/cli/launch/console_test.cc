// SPDX-License-Identifier: Apache-2.0
#include "cli/launch/console.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

namespace sluice::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

std::string Written(std::FILE* file) {
  std::string text(4096, '\0');
  std::rewind(file);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  return text;
}

class ConsoleTest : public ::testing::Test {
 protected:
  ConsoleOptions Options(bool terminal, bool colors) {
    ConsoleOptions options;
    options.out = out_.get();
    options.err = err_.get();
    options.terminal = terminal;
    options.colors = colors;
    return options;
  }
  File out_{std::tmpfile()};
  File err_{std::tmpfile()};
};

TEST_F(ConsoleTest, PlainOutputHasNoEscapes) {
  {
    Console console(Options(false, false));
    console.DrawBlock({"block"});
    console.Say("line");
    console.Error("broken");
    console.Warning("unwise");
  }
  EXPECT_EQ(Written(out_.get()), "line\n");
  EXPECT_EQ(Written(err_.get()), "error: broken\nwarning: unwise\n");
}

TEST_F(ConsoleTest, BlockIsDrawnOverAndLinesGoAboveIt) {
  {
    Console console(Options(true, false));
    console.DrawBlock({"one", "two"});
    console.DrawBlock({"three", "four"});
    console.Say("line");
  }
  EXPECT_EQ(Written(out_.get()),
            "one\x1b[K\ntwo\x1b[K\n\x1b[J"
            "\r\x1b[2Athree\x1b[K\nfour\x1b[K\n\x1b[J"
            "\r\x1b[2A\x1b[Jline\n"
            "three\x1b[K\nfour\x1b[K\n\x1b[J"
            "\r\x1b[2A\x1b[J");
}

TEST_F(ConsoleTest, ColorsOnlyIfAsked) {
  {
    Console console(Options(true, true));
    console.Error("broken");
  }
  EXPECT_EQ(Written(err_.get()), "\x1b[31;1merror: \x1b[0mbroken\n");
}

}  // namespace
}  // namespace sluice::cli
