// SPDX-License-Identifier: Apache-2.0
#include "base/log_limit.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(LogLimit, SaysOneLineASecondAndCountsTheOthers) {
  LogLimit limit;
  const absl::Time start = absl::UnixEpoch();
  EXPECT_EQ(limit.Say(start), 0u);
  EXPECT_EQ(limit.Say(start), std::nullopt);
  EXPECT_EQ(limit.Say(start + absl::Milliseconds(999)), std::nullopt);
  EXPECT_EQ(limit.Say(start + absl::Seconds(1)), 2u);
  EXPECT_EQ(limit.Say(start + absl::Milliseconds(1500)), std::nullopt);
  EXPECT_EQ(limit.Say(start + absl::Hours(1)), 1u);
  EXPECT_EQ(limit.Say(start + absl::Hours(2)), 0u);
}

}  // namespace
}  // namespace sluice
