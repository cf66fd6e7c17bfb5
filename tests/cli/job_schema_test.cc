// SPDX-License-Identifier: Apache-2.0
#include "cli/job_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nlohmann/json.hpp"

namespace sluice::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// tests/job/job_schema_test.py compares the schema with the loader.
class JobSchema : public testing::Test {
 protected:
  json Key(absl::string_view section, absl::string_view key) const {
    const json& keys = section.empty() ? schema_ : schema_["properties"][std::string(section)];
    return keys["properties"][std::string(key)];
  }

  const json schema_ = json::parse(JobSchemaJson());
};

TEST_F(JobSchema, AKeyHasItsTypeLimitsDefaultAndMeaning) {
  const json workers = Key("", "workers");
  EXPECT_EQ(workers["type"], "integer");
  EXPECT_EQ(workers["minimum"], 1);
  EXPECT_EQ(workers["maximum"], 1024);
  EXPECT_EQ(workers["default"], 1);
  EXPECT_THAT(workers["description"].get<std::string>(), HasSubstr("processes"));
  EXPECT_EQ(Key("optimizer", "eps")["default"], 1e-8);
  EXPECT_EQ(Key("server", "max_memory")["default"], "8GiB");
  EXPECT_EQ(Key("", "seed")["maximum"], 18446744073709551615u);
}

TEST_F(JobSchema, DescriptionsArePlainTextWithNotes) {
  EXPECT_EQ(Key("", "quorum")["description"],
            "sync, local_sgd: number of workers that can close an exchange without the stragglers, "
            "once straggler_timeout has passed. Default: all. Range: at most workers.");
  EXPECT_THAT(Key("model", "hidden")["description"].get<std::string>(),
              HasSubstr("Default: [128]."));
  EXPECT_THAT(Key("", "local_steps")["description"].get<std::string>(),
              HasSubstr(" Required in local_sgd."));
}

TEST_F(JobSchema, TheBaselineReplacesKeysAndHasNoDefaults) {
  const json& optimizer = Key("baseline", "optimizer");
  EXPECT_FALSE(optimizer.contains("required"));
  EXPECT_FALSE(optimizer["properties"]["momentum"].contains("default"));
  EXPECT_TRUE(Key("optimizer", "momentum").contains("default"));
}

TEST_F(JobSchema, UnknownKeysAreRefusedInEverySection) {
  EXPECT_EQ(schema_["additionalProperties"], false);
  EXPECT_EQ(Key("", "compression")["additionalProperties"], false);
  EXPECT_EQ(Key("compression", "overrides")["items"]["additionalProperties"], false);
}

}  // namespace
}  // namespace sluice::cli
