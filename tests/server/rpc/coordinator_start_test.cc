// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/coordinator_start.h"

#include <gmock/gmock.h>

#include "tests/rpc/host_fixture.h"

namespace sluice::server {
namespace {

class CoordinatorStartTest : public HostFixture {
 protected:
  CoordinatorStartTest() {
    job_.checkpoint.interval = 7;
    job_.server.rejoin_timeout = absl::Seconds(9);
  }
  CoordinatorOptions Options(const RunFolder* folder) const {
    return CoordinatorOptionsOf({.job = job_, .job_uid = kHostJob}, folder);
  }
};

TEST_F(CoordinatorStartTest, OnlyAnElasticJobHasALeastNumberOfWorkers) {
  job_.workers = 3;
  job_.min_workers = 2;
  EXPECT_FALSE(Options(nullptr).elastic.has_value());
  job_.exchange.membership = job::Membership::kElastic;
  const CoordinatorOptions options = Options(nullptr);
  ASSERT_TRUE(options.elastic.has_value());
  EXPECT_EQ(options.elastic->start, 3u);
  EXPECT_EQ(options.elastic->least, 2u);
}

TEST_F(CoordinatorStartTest, TheCoordinatorKnowsTheJobsExchange) {
  job_.exchange.mode = job::Mode::kAsync;
  job_.exchange.compression.uplink = *compress::ParseCodecSpec("int4");
  job_.exchange.control.policy = job::PolicyKind::kBandwidth;
  const CoordinatorOptions options = Options(nullptr);
  EXPECT_FALSE(options.exchange.in_lockstep());
  EXPECT_EQ(options.exchange.compression.uplink, job_.exchange.compression.uplink);
  EXPECT_TRUE(options.exchange.control.measures());
}

TEST_F(CoordinatorStartTest, CheckpointsNeedAFolder) {
  EXPECT_EQ(Options(nullptr).job_uid, kHostJob);
  EXPECT_FALSE(HasCheckpoints(Options(nullptr)));
  const auto folder = RunFolder::Open(job_, Logger("test"));
  ASSERT_TRUE(folder.ok()) << folder.status();
  const CoordinatorOptions options = Options(folder->get());
  EXPECT_TRUE(HasCheckpoints(options));
  EXPECT_EQ(options.checkpoint.interval, 7u);
  EXPECT_EQ(options.server.rejoin_timeout, absl::Seconds(9));
  EXPECT_EQ(options.checkpoint.replay_limit, job_.checkpoint.replay_limit);
  EXPECT_FALSE(options.run.has_value()) << "a new run begins";
}

}  // namespace
}  // namespace sluice::server
