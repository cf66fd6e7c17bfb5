// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/parameter_audit.h"

#include <gtest/gtest.h>

namespace sluice::server {
namespace {

protocol::Sender OfRank(uint32_t rank, uint64_t incarnation = 1) {
  protocol::Sender sender;
  sender.rank = rank;
  sender.incarnation = incarnation;
  return sender;
}

TEST(ParameterAuditTest, ADifferentHashNamesTheFirstSender) {
  ParameterAudit audit;
  EXPECT_FALSE(audit.Report(10, OfRank(1, 7), "a").has_value());
  EXPECT_FALSE(audit.Report(10, OfRank(0), "a").has_value());
  EXPECT_FALSE(audit.Report(11, OfRank(0), "b").has_value()) << "another step";
  const std::optional<protocol::Sender> first = audit.Report(10, OfRank(2), "b");
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->rank, 1u);
  EXPECT_EQ(first->incarnation, 7u);
}

TEST(ParameterAuditTest, AStepIsForgottenOnceAllRanksHaveReportedIt) {
  ParameterAudit audit;
  audit.Report(10, OfRank(0), "a", 2);
  audit.Report(10, OfRank(0), "a", 2);  // A repeated report counts once.
  EXPECT_TRUE(audit.Report(10, OfRank(1), "b", 2).has_value());
  audit.Report(10, OfRank(1), "a", 2);
  EXPECT_FALSE(audit.Report(10, OfRank(1), "b", 2).has_value());
}

TEST(ParameterAuditTest, ACheckpointForgetsOnlyCompleteStepsUpToIt) {
  ParameterAudit audit;
  for (const uint64_t step : {10, 20, 30}) audit.Report(step, OfRank(0), "a");
  audit.Report(10, OfRank(1), "a");
  audit.Report(30, OfRank(1), "a");
  audit.ForgetCompleteUpTo(20, 2);
  EXPECT_FALSE(audit.Report(10, OfRank(0), "b").has_value());
  EXPECT_TRUE(audit.Report(20, OfRank(1), "b").has_value()) << "rank 1 has not reported it";
  EXPECT_TRUE(audit.Report(30, OfRank(1), "b").has_value()) << "after the checkpoint";
}

TEST(ParameterAuditTest, ItKeepsTheNewestSteps) {
  ParameterAudit audit;
  for (uint64_t step = 1; step <= ParameterAudit::kStepsMax + 1; ++step) {
    audit.Report(step, OfRank(0), "a");
  }
  EXPECT_FALSE(audit.Report(1, OfRank(1), "b").has_value());
  EXPECT_TRUE(audit.Report(3, OfRank(1), "b").has_value());
}

}  // namespace
}  // namespace sluice::server
