// SPDX-License-Identifier: Apache-2.0
// Tests the log of compression plans for pages and terminals.
#include "server/control/plan_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::server {
namespace {

protocol::CompressionPlan PlanOf(uint64_t id, uint64_t step, const char* uplink) {
  return {.id = id,
          .effective_step = step,
          .entries = {{.codec = *compress::ParseCodecSpec(uplink), .tensors = {0, 1}}},
          .reason = "the schedule"};
}

PlanLog LogOfJob() {
  protocol::CompressionSpec compression;
  compression.uplink = *compress::ParseCodecSpec("topk:1%+int4");
  compression.downlink = *compress::ParseCodecSpec("int8");
  return PlanLog(compression, {.policy = job::PolicyKind::kSchedule});
}

TEST(PlanLogTest, SaysWhatTheJobFileSaysWhereThereAreNoPlans) {
  const PlanLog log = LogOfJob();
  EXPECT_EQ(log.codecs().uplink, "topk:1%+int4");
  EXPECT_EQ(log.codecs().downlink, "int8");
  EXPECT_EQ(log.codecs().policy, "schedule");
  EXPECT_TRUE(log.codecs().plans.empty());
  EXPECT_EQ(PlanIn(log.codecs().plans, 5), nullptr);
}

TEST(PlanLogTest, KeepsTheNewest) {
  PlanLog log = LogOfJob();
  for (uint64_t id = 1; id <= 20; ++id) log.Add(PlanOf(id, 10 * id, "topk:5%"));
  const std::vector<PlanChange>& plans = log.codecs().plans;
  ASSERT_EQ(plans.size(), PlanLog::kPlansMax);
  EXPECT_EQ(plans.front().id, 13u);
  EXPECT_EQ(plans.back().id, 20u);
  EXPECT_EQ(plans.back().effective_step, 200u);
  EXPECT_EQ(plans.back().what, "topk:5% up in 2 tensors");
  EXPECT_EQ(plans.back().reason, "the schedule");
  EXPECT_EQ(log.codecs().plans_made, 20u);
}

TEST(PlanLogTest, TheOneThatHoldsIsNotAlwaysTheNewest) {
  PlanLog log = LogOfJob();
  log.Add(PlanOf(1, 10, "topk:5%"));
  log.Add(PlanOf(2, 20, "topk:1%"));
  EXPECT_EQ(PlanIn(log.codecs().plans, 9), nullptr);
  EXPECT_EQ(PlanIn(log.codecs().plans, 19)->id, 1u);
  EXPECT_EQ(PlanIn(log.codecs().plans, 20)->id, 2u);
}

TEST(PlanLogTest, PlansThatAreMadeAgainAreThereOnce) {
  PlanLog log = LogOfJob();
  for (uint64_t id = 1; id <= 4; ++id) log.Add(PlanOf(id, 10 * id, "topk:5%"));
  log.Add(PlanOf(2, 20, "topk:1%"));
  ASSERT_EQ(log.codecs().plans.size(), 2u);
  EXPECT_EQ(log.codecs().plans[1].what, "topk:1% up in 2 tensors");
}

}  // namespace
}  // namespace sluice::server
