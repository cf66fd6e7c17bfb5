// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/temporary_folder.h"
#include "worker/data/source/text_tokens.h"
#include "worker/data/source/text_windows.h"

namespace sluice::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Problem(const std::string& text, TextLevel level = TextLevel::kChar) {
  const absl::StatusOr<TextTokens> tokens = TokenizeText(text, level, "a.txt");
  return tokens.ok() ? "none" : std::string(tokens.status().message());
}

TEST(TextTokens, CharactersAreNumberedByCodePoint) {
  const auto tokens = TokenizeText(
      "b\xC3\xA9"
      "a\xF0\x9F\x98\x80"
      "b\xE2\x82\xAC\n",
      TextLevel::kChar, "a.txt");
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_THAT(tokens->vocabulary, ElementsAre('\n', 'a', 'b', 0xE9, 0x20AC, 0x1F600));
  EXPECT_THAT(tokens->tokens, ElementsAre(2, 3, 1, 5, 2, 4, 0));
}

TEST(TextTokens, BytesAreTheirOwnNumbers) {
  const auto tokens = TokenizeText("a\xFF", TextLevel::kByte, "a.txt");
  ASSERT_TRUE(tokens.ok());
  EXPECT_THAT(tokens->tokens, ElementsAre('a', 255));
  EXPECT_EQ(tokens->vocabulary.size(), 256u);
}

TEST(TextTokens, WhatIsNotUtf8IsToldWithItsPlace) {
  const std::string text = "one\ntwo\n\xFFthree";
  EXPECT_EQ(TokenizeText(text, TextLevel::kChar, "a.txt").status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Problem(text),
              AllOf(HasSubstr("at offset 8 (line 3)"), HasSubstr("set data.level to byte")));
  const std::vector<std::string> wrong = {"\x80",
                                          "\xC0\x80",
                                          "\xC1\xBF",
                                          "\xE0\x80\x80",
                                          "\xE0\x9F\xBF",
                                          "\xF0\x8F\xBF\xBF",
                                          "\xED\xA0\x80",
                                          "\xED\xBF\xBF",
                                          "\xF4\x90\x80\x80",
                                          "\xF5\x80\x80\x80",
                                          "\xC3",
                                          "\xC3(",
                                          "\xE2\x82",
                                          "\xE2\x28\xA1",
                                          "\xF0\x9F\x98",
                                          "\xF0\x28\x8C\xBC"};
  for (const std::string& bytes : wrong) {
    EXPECT_THAT(Problem("ab" + bytes), HasSubstr("at offset 2 (line 1)"))
        << testing::PrintToString(bytes);
    EXPECT_EQ(Problem(bytes, TextLevel::kByte), "none");
  }
  // Characters at the limits of valid UTF-8 must be accepted.
  EXPECT_EQ(
      Problem("\xC2\x80\xDF\xBF\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xEF\xBF\xBF\xF0\x90\x80\x80"
              "\xF4\x8F\xBF\xBF"),
      "none");
  EXPECT_EQ(Problem(std::string(1, '\0')), "none");
}

TEST(TextTokens, EmptyAndMissingTextsAreTold) {
  const TemporaryFolder folder;
  EXPECT_EQ(Problem(""), "a.txt: is empty");
  const auto missing = ReadTextFile(folder.path() + "/none.txt", TextLevel::kChar);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("/none.txt: cannot be opened"));
  EXPECT_THAT(std::string(ReadTextFile(folder.path(), TextLevel::kByte).status().message()),
              HasSubstr("is a folder"));
  WriteText(folder.path() + "/a.txt", "abc");
  EXPECT_EQ(ReadTextFile(folder.path() + "/a.txt", TextLevel::kChar)->tokens.size(), 3u);
}

TEST(TextTokens, TooManyCharactersAreTold) {
  std::string text;
  for (uint32_t point = 0x10000; point <= 0x20000; ++point) {
    for (const uint32_t byte : {0xF0 | point >> 18, 0x80 | (point >> 12 & 0x3F),
                                0x80 | (point >> 6 & 0x3F), 0x80 | (point & 0x3F)}) {
      text += static_cast<char>(byte);
    }
  }
  EXPECT_THAT(Problem(text), AllOf(HasSubstr("65537 different characters"), HasSubstr("byte")));
}

// Makes a text of tokens 0 … count − 1.
std::shared_ptr<const TextTokens> Counting(uint16_t count) {
  auto text = std::make_shared<TextTokens>();
  text->tokens.resize(count);
  std::iota(text->tokens.begin(), text->tokens.end(), uint16_t{0});
  text->vocabulary.resize(count);
  return text;
}

std::vector<int64_t> Inputs(const TextWindows& windows, uint32_t sample, EpochKey epoch = {}) {
  std::vector<int64_t> inputs(windows.context());
  std::vector<int64_t> targets(windows.context());
  windows.Read(sample, epoch, absl::MakeSpan(inputs), absl::MakeSpan(targets));
  for (size_t i = 0; i < inputs.size(); ++i) EXPECT_EQ(targets[i], inputs[i] + 1);
  return inputs;
}

TEST(TextWindows, LieSideBySide) {
  const auto windows = TextWindows::Create(Counting(20), 2, 12, {.context = 3}, "a.txt");
  ASSERT_TRUE(windows.ok()) << windows.status();
  EXPECT_EQ(windows->size(), 3u);  // Of ten tokens, the last is only a target.
  EXPECT_THAT(Inputs(*windows, 0), ElementsAre(2, 3, 4));
  EXPECT_THAT(Inputs(*windows, 2), ElementsAre(8, 9, 10));
  EXPECT_EQ(TextWindows::Create(Counting(20), 2, 12, {.context = 3, .limit = 2}, "")->size(), 2u);
}

TEST(TextWindows, MoveFromEpochToEpochAndStayInTheText) {
  for (uint16_t tokens = 6; tokens < 20; ++tokens) {
    const auto windows =
        TextWindows::Create(Counting(tokens), 0, tokens, {.context = 3, .moving = true}, "a.txt");
    ASSERT_TRUE(windows.ok()) << windows.status();
    std::vector<int> begins(3);
    for (uint64_t epoch = 0; epoch < 50; ++epoch) {
      const int64_t begin = Inputs(*windows, 0, {.seed = 1, .epoch = epoch})[0];
      ASSERT_LT(begin, 3);
      ++begins[static_cast<size_t>(begin)];
      // All windows shift by the same number of tokens.
      const uint32_t last = windows->size() - 1;
      EXPECT_EQ(Inputs(*windows, last, {.seed = 1, .epoch = epoch})[0], begin + 3 * last);
      EXPECT_LT(begin + 3 * last + 3, tokens);
    }
    for (const int count : begins) EXPECT_GT(count, 5);
  }
}

TEST(TextWindows, TooShortTextsAreTold) {
  const auto problem = [](uint16_t tokens, bool moving) {
    const auto windows =
        TextWindows::Create(Counting(tokens), 0, tokens, {.context = 3, .moving = moving}, "a.txt");
    return windows.ok() ? "none" : std::string(windows.status().message());
  };
  EXPECT_THAT(problem(3, false), AllOf(HasSubstr("a.txt has 3 tokens"), HasSubstr("at least 4")));
  EXPECT_EQ(problem(4, false), "none");
  EXPECT_THAT(problem(5, true), HasSubstr("at least 6"));
  EXPECT_EQ(problem(6, true), "none");
  EXPECT_THAT(problem(0, false), HasSubstr("0 tokens"));
}

TEST(TextWindows, ValidationIsTheEnd) {
  EXPECT_EQ(ValidationBegin(100, 0), 100u);
  EXPECT_EQ(ValidationBegin(100, 0.1), 90u);
  EXPECT_EQ(ValidationBegin(3, 0.99), 1u);
}

}  // namespace
}  // namespace sluice::worker
