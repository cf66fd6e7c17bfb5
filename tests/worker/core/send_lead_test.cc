// SPDX-License-Identifier: Apache-2.0
#include "worker/core/send_lead.h"

#include <gtest/gtest.h>

#include "absl/time/time.h"

namespace sluice::worker {
namespace {

TEST(SendLeadTest, CoversTheTimeFromAContributionToItsResult) {
  SendLead lead;
  EXPECT_EQ(lead.Share(absl::ZeroDuration()), 0) << "nothing is measured yet";
  lead.ExchangeTook(absl::Seconds(4));
  EXPECT_DOUBLE_EQ(lead.Share(absl::ZeroDuration()), 0.02);
  EXPECT_DOUBLE_EQ(lead.Share(absl::Milliseconds(60)), 0.05);
}

TEST(SendLeadTest, ShortExchangesAndDistantShardsHaveNoLimit) {
  SendLead lead;
  lead.ExchangeTook(absl::Milliseconds(640));
  EXPECT_DOUBLE_EQ(lead.Share(absl::ZeroDuration()), 0.125);
  EXPECT_EQ(lead.Share(absl::Milliseconds(1)), 0);
  EXPECT_EQ(lead.Share(absl::InfiniteDuration()), 0);
  SendLead zero;
  zero.ExchangeTook(absl::ZeroDuration());
  EXPECT_EQ(zero.Share(absl::ZeroDuration()), 0);
}

TEST(SendLeadTest, TheShortestOfTheLastExchangesCounts) {
  SendLead lead;
  lead.ExchangeTook(absl::Seconds(2));
  for (int i = 0; i < 7; ++i) lead.ExchangeTook(absl::Seconds(8));
  EXPECT_DOUBLE_EQ(lead.Share(absl::ZeroDuration()), 0.04);
  lead.ExchangeTook(absl::Seconds(8));
  EXPECT_DOUBLE_EQ(lead.Share(absl::ZeroDuration()), 0.01) << "the first one is forgotten";
}

}  // namespace
}  // namespace sluice::worker
