// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/job/file/job_text_samples.h"

namespace sluice::job {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<JobSpec> WithGuard(absl::string_view guard, absl::string_view more = "") {
  return LoadLeastAnd(absl::StrCat("guard: ", guard, "\nworkers: 4\n", more));
}

TEST(GuardChecks, TheSectionSwitchesTheGuardOn) {
  EXPECT_EQ(LoadLeastAnd("")->exchange.guard.policy, GuardPolicy::kOff);
  const absl::StatusOr<JobSpec> job = WithGuard("{limit: 6}");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->exchange.guard.policy, GuardPolicy::kSkip);
  EXPECT_EQ(job->exchange.guard.limit, 6);
  EXPECT_EQ(WithGuard("{policy: warn}")->exchange.guard.limit, 4);
}

TEST(GuardChecks, ItNeedsRanksToCompare) {
  const char* const three = "needs at least 3 workers to find one that differs; this job has 2";
  EXPECT_THAT(Problem(LoadLeastAnd("guard: {policy: clip}\nworkers: 2\n")), HasSubstr(three));
  EXPECT_EQ(Problem(LoadLeastAnd("guard: {policy: off}\nworkers: 2\n")), "");
  EXPECT_THAT(Problem(WithGuard("{}", "relays: {workers: [2, 2]}\n")),
              HasSubstr("needs at least 3 relays"));
  EXPECT_EQ(Problem(WithGuard("{}", "mode: async\n")), "");
}

TEST(GuardChecks, ItNeedsFramesThatCanBeScaled) {
  EXPECT_EQ(Problem(WithGuard("{}", "compression: {uplink: topk:1%+int4}\n")), "");
  EXPECT_THAT(Problem(WithGuard("{}", "compression: {uplink: signsgd}\n")),
              HasSubstr("a guard decodes each contribution alone"));
  EXPECT_THAT(Problem(WithGuard("{}", "compression: {uplink: topk:1%/ef21}\n")),
              HasSubstr("a guard decodes each contribution alone"));
}

// What the guard decides also depends on earlier steps, which a replay does not have.
TEST(GuardChecks, ResultsThatItChangesCannotBeReplayed) {
  const char* const checkpoint = "checkpoint: {dir: /tmp/x}\n";
  EXPECT_GT(WithGuard("{policy: warn}", checkpoint)->checkpoint.replay_limit, 0u);
  EXPECT_EQ(WithGuard("{policy: clip}", checkpoint)->checkpoint.replay_limit, 0u);
}

}  // namespace
}  // namespace sluice::job
