// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/job/file/job_text_samples.h"

namespace sluice::job {
namespace {

using ::testing::HasSubstr;

TEST(OptimizerChecks, MuonTakesTheKeysOfAdamw) {
  const absl::StatusOr<JobSpec> job =
      Load(kLeastJob, {"optimizer={name: muon, lr: 0.01, beta1: 0.95, eps: 1e-7}"});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->optimizer.beta1, 0.95);
  EXPECT_THAT(Problem(Load(kLeastJob, {"optimizer={name: muon, lr: 0.01, momentum: 0.9}"})),
              HasSubstr("momentum"));
}

TEST(OptimizerChecks, MuonNeedsWholeMatrices) {
  EXPECT_THAT(Problem(Load(kLeastJob, {"optimizer={name: muon, lr: 0.01, location: shards}"})),
              HasSubstr("muon needs whole matrices, of which each shard has only parts"));
}

}  // namespace
}  // namespace sluice::job
