// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(ValidText, LeavesCharactersAsTheyAre) {
  for (const std::string text : {"", "plain", "caf\xc3\xa9", "\xe2\x86\x92", "\xf0\x9f\x98\x80",
                                 "\xed\x9f\xbf", "\xee\x80\x80", "\xf4\x8f\xbf\xbf", "a\nb"}) {
    EXPECT_EQ(ValidText(text), text);
  }
  EXPECT_EQ(ValidText(std::string("\0x", 2)), std::string("\0x", 2));
}

TEST(ValidText, ReplacesBytesThatAreNoCharacter) {
  const std::string no = "\xef\xbf\xbd";
  EXPECT_EQ(ValidText("a\xff"
                      "b"),
            "a" + no + "b");
  EXPECT_EQ(ValidText("caf\xc3"), "caf" + no) << "the last character is truncated";
  EXPECT_EQ(ValidText("\xc3(\x80"), no + "(" + no);
  EXPECT_EQ(ValidText("\xc0\xaf"), no + no) << "the encoding is overlong";
  EXPECT_EQ(ValidText("\xe0\x80\xaf"), no + no + no) << "the encoding is overlong";
  EXPECT_EQ(ValidText("\xed\xa0\x80"), no + no + no) << "a surrogate is not a character";
  EXPECT_EQ(ValidText("\xf4\x90\x80\x80"), no + no + no + no) << "the code point is beyond Unicode";
  EXPECT_EQ(ValidText("\xf8\x88\x80\x80\x80"), no + no + no + no + no);
}

TEST(ValidText, CutsBetweenCharacters) {
  EXPECT_EQ(ValidText("ab\xc3\xa9", 4), "ab\xc3\xa9");
  EXPECT_EQ(ValidText("ab\xc3\xa9", 3), "ab");
  EXPECT_EQ(ValidText("ab", 0), "");
  EXPECT_EQ(ValidText("\xff\xff", 5), "\xef\xbf\xbd")
      << "the limit also applies to replacement characters";
  EXPECT_EQ(ValidText(std::string(100'000, 'a')).size(), kMessageTextMax);
}

TEST(EscapeControls, LeavesNothingThatCommandsATerminal) {
  EXPECT_EQ(EscapeControls("caf\xc3\xa9 \xe2\x86\x92 \\"), "caf\xc3\xa9 \xe2\x86\x92 \\");
  EXPECT_EQ(EscapeControls("a\nb\tc\rd\x1b[2J\x7f"), "a\\nb\\tc\\rd\\x1b[2J\\x7f");
  EXPECT_EQ(EscapeControls(std::string("\0", 1)), "\\x00");
  EXPECT_EQ(EscapeControls("\xc2\x9b"
                           "2J \x9b"),
            "\\u009b2J \\x9b")
      << "C1";
  EXPECT_EQ(EscapeControls("\xe2\x80\xa8 \xe2\x80\xae \xe2\x81\xa6"), "\\u2028 \\u202e \\u2066");
  EXPECT_EQ(EscapeControls("a\nb\r\n", LineBreaks::kKeep), "a\nb\\r\n");
}

}  // namespace
}  // namespace sluice
