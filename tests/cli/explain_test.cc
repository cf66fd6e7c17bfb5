// SPDX-License-Identifier: Apache-2.0
#include "cli/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"

namespace sluice::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(Explain, AKeyWithItsFacts) {
  const absl::StatusOr<std::string> text = FormatKey("optimizer.momentum");
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, AllOf(StartsWith("optimizer.momentum\n"), HasSubstr("default: 0\n"),
                           HasSubstr("range: at least 0 and below 1\n"),
                           HasSubstr("only with: sgd, rmsprop\n")));
}

TEST(Explain, AKeyStatesItsTypeUnlessItsWordsDo) {
  const absl::StatusOr<std::string> list = FormatKey("model.hidden");
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_THAT(*list, HasSubstr("\n  type: list; each entry: whole number\n"));
  const absl::StatusOr<std::string> word = FormatKey("mode");
  ASSERT_TRUE(word.ok()) << word.status();
  EXPECT_THAT(*word, Not(HasSubstr("type: ")));
}

TEST(Explain, ASectionListsItsKeys) {
  const absl::StatusOr<std::string> text = FormatKey("checkpoint");
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, AllOf(HasSubstr("type: section\n"), HasSubstr("\n  checkpoint.dir "),
                           HasSubstr("\n  checkpoint.replay_limit")));
}

TEST(Explain, PlainTextWithinHundredColumns) {
  for (const char* path : {"", "control", "mode", "membership"}) {
    const absl::StatusOr<std::string> text = FormatKey(path);
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_THAT(*text, AllOf(Not(HasSubstr("`")), Not(HasSubstr("]("))));
    for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
      EXPECT_LE(line.size(), 100u) << line;
    }
  }
}

TEST(Explain, JsonHasAllSections) {
  const absl::StatusOr<std::string> text = KeysJson("");
  ASSERT_TRUE(text.ok()) << text.status();
  const nlohmann::json sections = nlohmann::json::parse(*text);
  EXPECT_TRUE(sections.contains("control.pieces"));
  EXPECT_EQ(sections[""][0]["key"], "name");
  EXPECT_EQ(sections["checkpoint"][2]["default"], "2");
  EXPECT_EQ(sections["checkpoint"][2]["type"], "integer");
}

TEST(Explain, AnUnknownKeyIsAnError) {
  EXPECT_EQ(FormatKey("optimiser").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(KeysJson("optimiser").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(KeysJson("workers").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice::cli
