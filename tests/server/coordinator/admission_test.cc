// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/admission.h"

#include <gtest/gtest.h>

#include "tests/server/coordinator/job_run_fixture.h"

namespace sluice::server {
namespace {

class AdmissionTest : public JobRunTest {
 protected:
  using JobRunTest::JobRunTest;
  absl::StatusCode JoinCode(const protocol::WorkerJoin& join) const {
    return CheckJoin(run_, join).code();
  }
  absl::StatusCode ArrivalCode(const protocol::ShardArrival& arrival) const {
    return CheckArrival(run_, arrival).code();
  }
};

TEST_F(AdmissionTest, ProcessesOfAnotherJobOrBuildAreRefused) {
  EXPECT_EQ(JoinCode(JoinOf(0)), absl::StatusCode::kOk);
  EXPECT_EQ(ArrivalCode(ArrivalOf(0)), absl::StatusCode::kOk);
  protocol::WorkerJoin join = JoinOf(0);
  join.job_name = "other";
  EXPECT_EQ(JoinCode(join), absl::StatusCode::kInvalidArgument);
  join = JoinOf(0);
  join.software_version = "2";
  EXPECT_EQ(JoinCode(join), absl::StatusCode::kInvalidArgument);
  protocol::ShardArrival arrival = ArrivalOf(0);
  arrival.job_hash = 10;
  EXPECT_EQ(ArrivalCode(arrival), absl::StatusCode::kInvalidArgument);
}

TEST_F(AdmissionTest, PlacesThatDoNotExistAreRefused) {
  EXPECT_EQ(CheckJoin(run_, JoinOf(2)).message(),
            "rank 2 is out of range: the job has 2 workers, ranks 0 to 1");
  EXPECT_EQ(CheckArrival(run_, ArrivalOf(2)).message(),
            "shard 2 (h:7072) is out of range: the job has 2 shards, 0 to 1");
}

TEST_F(AdmissionTest, ASecondWorkerForARankWaitsOnlyAfterTheTermHasStarted) {
  Seat(0);
  const protocol::WorkerJoin second = JoinOf(0, /*nonce=*/5000);
  EXPECT_EQ(JoinCode(JoinOf(0)), absl::StatusCode::kOk);  // The same worker.
  EXPECT_EQ(JoinCode(second), absl::StatusCode::kAlreadyExists);
}

TEST_F(AdmissionTest, ASecondWorkerMayWaitWhileTheJobRuns) {
  Start();
  EXPECT_EQ(JoinCode(JoinOf(0, /*nonce=*/5000)), absl::StatusCode::kOk);
}

TEST_F(AdmissionTest, AProcessWithALowerNumberCannotServeTheShard) {
  Attach(0, /*incarnation=*/60);
  EXPECT_EQ(ArrivalCode(ArrivalOf(0, 60)), absl::StatusCode::kOk);
  EXPECT_EQ(ArrivalCode(ArrivalOf(0, 61)), absl::StatusCode::kOk);
  EXPECT_EQ(ArrivalCode(ArrivalOf(0, 59)), absl::StatusCode::kFailedPrecondition);
}

TEST_F(AdmissionTest, AfterTheEndOnlyShardsAreToldOfIt) {
  run_.Finish(&effects_);
  EXPECT_EQ(CheckJoin(run_, JoinOf(0)).message(), "job demo has finished");
  EXPECT_EQ(ArrivalCode(ArrivalOf(0)), absl::StatusCode::kOk);
}

class NoCheckpointsAdmissionTest : public AdmissionTest {
 protected:
  NoCheckpointsAdmissionTest() : AdmissionTest(WithoutCheckpoints()) {}
};

TEST_F(NoCheckpointsAdmissionTest, WithoutCheckpointsARunningJobTakesNoOtherWorker) {
  Start();
  EXPECT_EQ(JoinCode(JoinOf(0, /*nonce=*/5000)), absl::StatusCode::kAlreadyExists);
}

}  // namespace
}  // namespace sluice::server
