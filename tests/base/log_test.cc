// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace sluice {
namespace {

const absl::Time kThen = absl::FromUnixMillis(1'763'697'600'123);

TEST(Log, TextIsForPeople) {
  EXPECT_EQ(FormatLogLine(kThen, LogLevel::kWarning, "shard-0", {.training_job = "mnist"},
                          {.event = "member_joined", .rank = 3}, "rank 3 is here"),
            "2025-11-21T04:00:00.123Z WARNING shard-0: rank 3 is here");
}

TEST(Log, JsonHasTheFieldsThatAreKnown) {
  const LogOptions options{.format = LogFormat::kJson, .training_job = "mnist"};
  EXPECT_EQ(FormatLogLine(kThen, LogLevel::kInfo, "shard-0", options,
                          {.event = "member_joined", .rank = 3, .step = 7, .reason = "again"},
                          "rank 3 is \"here\""),
            "{\"time\":\"2025-11-21T04:00:00.123Z\",\"level\":\"INFO\",\"component\":\"shard-0\","
            "\"training_job\":\"mnist\",\"event\":\"member_joined\",\"rank\":3,\"step\":7,"
            "\"reason\":\"again\",\"message\":\"rank 3 is \\\"here\\\"\"}");
  const auto bare = nlohmann::json::parse(FormatLogLine(
      kThen, LogLevel::kError, "worker", {.format = LogFormat::kJson}, {.shard = 0}, "no"));
  EXPECT_FALSE(bare.contains("training_job"));
  EXPECT_FALSE(bare.contains("event"));
  EXPECT_EQ(bare["shard"], 0);
}

TEST(Log, TextIsOneLineThatCommandsNoTerminal) {
  EXPECT_EQ(FormatLogLine(kThen, LogLevel::kInfo, "shard-0", {}, {},
                          "rank 1 left: x\n2025-11-21T04:00:00.123Z INFO shard-0: \x1b[2J\xff"),
            "2025-11-21T04:00:00.123Z INFO shard-0: rank 1 left: x\\n2025-11-21T04:00:00.123Z INFO "
            "shard-0: \\x1b[2J\\xff");
}

TEST(Log, JsonIsOneLineOfUtf8WhateverTheMessage) {
  const std::string line =
      FormatLogLine(kThen, LogLevel::kInfo, "shard-0", {.format = LogFormat::kJson}, {},
                    "two\nlines, \xff and a \x01");
  EXPECT_THAT(line, testing::Not(testing::HasSubstr("\n")));
  EXPECT_EQ(nlohmann::json::parse(line)["message"], "two\nlines, \xef\xbf\xbd and a \x01");
}

std::string Written(const LogOptions& options) {
  testing::internal::CaptureStderr();
  const Logger logger("shard-1", options);
  logger.Info("fine");
  logger.Warning("odd");
  logger.Error("broken");
  return testing::internal::GetCapturedStderr();
}

TEST(Log, WhatIsBelowTheLowestLevelIsLeftOut) {
  EXPECT_THAT(Written({}), testing::AllOf(testing::HasSubstr("INFO shard-1: fine\n"),
                                          testing::HasSubstr("WARNING shard-1: odd\n"),
                                          testing::HasSubstr("ERROR shard-1: broken\n")));
  EXPECT_THAT(Written({.lowest = LogLevel::kError}),
              testing::AllOf(testing::Not(testing::HasSubstr("odd")),
                             testing::HasSubstr("ERROR shard-1: broken\n")));
}

TEST(Log, CopiesShareTheLowestLevel) {
  std::vector<std::string> taken;
  const auto sink = [&](LogLevel, absl::string_view, absl::string_view text) {
    taken.emplace_back(text);
  };
  const Logger logger("worker-1", {.sink = sink});
  const Logger copy = logger;
  copy.Debug("too detailed");
  logger.SetLowest(LogLevel::kDebug);
  copy.Debug("detailed");
  logger.SetLowest(LogLevel::kError);
  copy.Warning("odd");
  EXPECT_EQ(taken, std::vector<std::string>{"detailed"});
}

TEST(Log, NoLevelHidesAnAuditLine) {
  testing::internal::CaptureStderr();
  const Logger logger("shard-0", {.lowest = LogLevel::kError});
  logger.Audit("10.0.0.1 evicted rank ", 1);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::EndsWith("INFO shard-0: audit: 10.0.0.1 evicted rank 1\n"));
}

TEST(Log, ASinkTakesWhatWouldGoToStderr) {
  std::vector<std::string> taken;
  const auto sink = [&](LogLevel level, absl::string_view component, absl::string_view text) {
    taken.push_back(absl::StrCat(static_cast<int>(level), " ", component, " ", text));
  };
  testing::internal::CaptureStderr();
  const Logger logger("worker-1", {.lowest = LogLevel::kWarning, .sink = sink});
  logger.Info("rank 1 is here");
  logger.Error("rank 1", " left");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(taken, std::vector<std::string>{"3 worker-1 rank 1 left"});
}

}  // namespace
}  // namespace sluice
