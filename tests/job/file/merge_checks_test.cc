// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/job/file/job_text_samples.h"

namespace sluice::job {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<JobSpec> MergedBy(absl::string_view keys) {
  return LoadLeastAnd(absl::StrCat("workers: 4\n", keys));
}

TEST(MergeChecks, TheResultIsThePlainMeanUnlessAKeySaysOtherwise) {
  EXPECT_TRUE(LoadLeastAnd("")->exchange.merge.plain());
  const absl::StatusOr<JobSpec> job = MergedBy("merge_weights: tokens\nmerge_over: senders\n");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->exchange.merge.weights, MergeWeights::kTokens);
  EXPECT_EQ(job->exchange.merge.over, MergeOver::kSenders);
  EXPECT_TRUE(job->exchange.needs_contributions());
  EXPECT_FALSE(MergedBy("merge_method: rda\n")->exchange.merge.plain());
  EXPECT_THAT(Problem(MergedBy("merge_over: none\n")), HasSubstr("all, senders"));
}

TEST(MergeChecks, OnlyContributionsThatAShardSeesTogetherCanBeMerged) {
  EXPECT_THAT(Problem(MergedBy("merge_weights: tokens\nmode: async\n")), HasSubstr("async"));
  EXPECT_THAT(Problem(MergedBy("merge_method: rda\nrelays: {workers: [2, 2]}\n")),
              HasSubstr("a relay forwards the sum"));
  EXPECT_THAT(Problem(MergedBy("merge_method: rda\nmerge_over: senders\n")),
              HasSubstr("rda merges whole contributions"));
}

TEST(MergeChecks, ItNeedsFramesThatCanBeScaled) {
  const char* const senders = "merge_over: senders\n";
  EXPECT_EQ(Problem(MergedBy(absl::StrCat(senders, "compression: {uplink: topk:1%+int4}\n"))), "");
  EXPECT_THAT(Problem(MergedBy(absl::StrCat(senders, "compression: {uplink: signsgd}\n"))),
              HasSubstr("decode each contribution alone"));
}

}  // namespace
}  // namespace sluice::job
