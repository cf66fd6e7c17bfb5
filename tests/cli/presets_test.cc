// SPDX-License-Identifier: Apache-2.0
#include "cli/presets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace sluice::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(PresetsCommand, ListsNamesAndMethods) {
  EXPECT_THAT(FormatPresets(),
              AllOf(StartsWith("diloco "), HasSubstr("\npowersgd  "), HasSubstr("preset: NAME")));
}

TEST(PresetsCommand, PrintsThePaperTheDifferencesAndTheKeys) {
  const absl::StatusOr<std::string> text = FormatPreset("dgc");
  ASSERT_TRUE(text.ok());
  EXPECT_THAT(*text, AllOf(StartsWith("# Deep Gradient Compression"), HasSubstr("arXiv:1712.01887"),
                           HasSubstr("\n# Differs: "), HasSubstr("\nmode: sync\n")));
}

TEST(PresetsCommand, NamesTheNearestPreset) {
  const absl::StatusOr<std::string> text = FormatPreset("power_sgd");
  EXPECT_THAT(std::string(text.status().message()),
              AllOf(HasSubstr("did you mean 'powersgd'?"), HasSubstr("diloco, ")));
}

}  // namespace
}  // namespace sluice::cli
