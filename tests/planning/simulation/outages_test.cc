// SPDX-License-Identifier: Apache-2.0
#include "planning/simulation/outages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::planning {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(OutagesTest, ReadsATrace) {
  const absl::StatusOr<std::vector<Outage>> outages =
      ParseOutages("# A trace.\n1.5 2 down\n\n2 0 down  # Why.\n3 2 up\n4 0 up\n", 3);
  ASSERT_TRUE(outages.ok()) << outages.status();
  EXPECT_THAT(*outages, ElementsAre(Outage{1.5, 3, 2}, Outage{2, 4, 0}));
}

TEST(OutagesTest, AWorkerThatDoesNotComeBackStaysDown) {
  const absl::StatusOr<std::vector<Outage>> outages = ParseOutages("1 0 down", 1);
  ASSERT_TRUE(outages.ok()) << outages.status();
  ASSERT_EQ(outages->size(), 1u);
  EXPECT_GE((*outages)[0].end_s, 1e9);
}

TEST(OutagesTest, WrongLinesAreErrorsThatNameTheLine) {
  for (const char* text :
       {"1 0 down\n2 0 down", "1 0 down\n2 0", "1 0 down\n0.5 0 up", "1 0 down\n2 1 up",
        "1 0 down\nnan 0 up", "1 0 down\n2 3 down", "1 0 down\n2 0 sideways", "1 0 down\n1 0 up"}) {
    EXPECT_THAT(ParseOutages(text, 2).status().message(), HasSubstr("line 2")) << text;
  }
}

TEST(OutagesTest, DrawnOutagesHaveTheGivenMeans) {
  const absl::StatusOr<std::vector<Outage>> outages =
      DrawOutages({.mtbf_s = 1000, .repair_s = 50}, 100, 100'000, 3);
  ASSERT_TRUE(outages.ok()) << outages.status();
  double down = 0;
  for (const Outage& outage : *outages) down += outage.end_s - outage.begin_s;
  EXPECT_NEAR(static_cast<double>(outages->size()), 100 * 100'000 / 1050.0, 400);
  EXPECT_NEAR(down / static_cast<double>(outages->size()), 50, 2);
  EXPECT_EQ(*outages, *DrawOutages({.mtbf_s = 1000, .repair_s = 50}, 100, 100'000, 3));
  EXPECT_NE(*outages, *DrawOutages({.mtbf_s = 1000, .repair_s = 50}, 100, 100'000, 4));
}

TEST(OutagesTest, TooManyAreAnError) {
  EXPECT_EQ(DrawOutages({.mtbf_s = 1, .repair_s = 1}, 10'000, 1e6, 3).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(DrawOutages({.mtbf_s = 1}, 1, 1, 3).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice::planning
