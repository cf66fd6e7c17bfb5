// SPDX-License-Identifier: Apache-2.0
#include "worker/rpc/session_activity.h"

#include <gtest/gtest.h>

namespace sluice::worker {
namespace {

absl::Time ActivityTime(double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

protocol::WorkerHeartbeat HeartbeatAt(const SessionActivity& activity, double seconds) {
  protocol::WorkerHeartbeat heartbeat;
  activity.FillHeartbeat(ActivityTime(seconds), &heartbeat);
  return heartbeat;
}

TEST(SessionActivity, ASilentThreadMakesNoProgressUntilItMoves) {
  SessionActivity activity(ActivityTime(10), /*restoring_step=*/0);
  EXPECT_EQ(HeartbeatAt(activity, 13).since_progress, absl::Seconds(3));
  activity.Moved(ActivityTime(14));
  EXPECT_EQ(HeartbeatAt(activity, 16).since_progress, absl::Seconds(2));
}

TEST(SessionActivity, ASignOfLifeAfterTheHeartbeatsTimeIsNoNegativeSilence) {
  SessionActivity activity(ActivityTime(10), /*restoring_step=*/0);
  activity.Moved(ActivityTime(14));
  EXPECT_EQ(HeartbeatAt(activity, 13).since_progress, absl::ZeroDuration());
}

TEST(SessionActivity, AWaitForOthersDoesNotCountAgainstTheWorker) {
  SessionActivity activity(ActivityTime(10), /*restoring_step=*/0);
  activity.WaitBegan(ActivityTime(12));
  EXPECT_EQ(HeartbeatAt(activity, 50).since_progress, absl::ZeroDuration());
  EXPECT_EQ(activity.WaitEnded(ActivityTime(60)), ActivityTime(12));
  EXPECT_EQ(HeartbeatAt(activity, 61).since_progress, absl::Seconds(1));
}

TEST(SessionActivity, OneWaitMayTakeSeveralCalls) {
  SessionActivity activity(ActivityTime(10), /*restoring_step=*/0);
  activity.WaitBegan(ActivityTime(12));
  activity.WaitBegan(ActivityTime(20));
  EXPECT_EQ(activity.WaitEnded(ActivityTime(30)), ActivityTime(12));
  activity.WaitBegan(ActivityTime(40));
  EXPECT_EQ(activity.WaitEnded(ActivityTime(45)), ActivityTime(40));
}

TEST(SessionActivity, WhileTheWorkerRestoresItWaitsForItsDisk) {
  SessionActivity activity(ActivityTime(10), /*restoring_step=*/300);
  activity.RestoreFailed("no such file");
  const protocol::WorkerHeartbeat restoring = HeartbeatAt(activity, 15);
  EXPECT_EQ(restoring.restoring_step, 300u);
  EXPECT_EQ(restoring.since_progress, absl::ZeroDuration());
  EXPECT_EQ(restoring.disk_wait.what, "its part of the checkpoint after step 300 to be read");
  EXPECT_EQ(restoring.disk_wait.lasts, absl::Seconds(5));
  EXPECT_EQ(restoring.disk_wait.trouble, "no such file");
  activity.RestoreEnded(ActivityTime(20));
  const protocol::WorkerHeartbeat restored = HeartbeatAt(activity, 21);
  EXPECT_EQ(restored.restoring_step, 0u);
  EXPECT_EQ(restored.since_progress, absl::Seconds(1));
  EXPECT_EQ(restored.disk_wait, protocol::DiskWait());
}

TEST(SessionActivity, AHeartbeatLeavesAnotherWaitForADiskAlone) {
  const SessionActivity activity(ActivityTime(10), /*restoring_step=*/0);
  protocol::WorkerHeartbeat heartbeat;
  heartbeat.disk_wait = {.what = "a part to be written", .lasts = absl::Seconds(4)};
  const protocol::DiskWait writing = heartbeat.disk_wait;
  activity.FillHeartbeat(ActivityTime(15), &heartbeat);
  EXPECT_EQ(heartbeat.disk_wait, writing);
}

TEST(SessionActivity, AHeartbeatRepeatsTheLastReport) {
  SessionActivity activity(ActivityTime(10), /*restoring_step=*/0);
  activity.Reported({.step = 7,
                     .total_steps = 90,
                     .epoch = 2,
                     .loss = 0.5,
                     .samples_per_second = 40,
                     .step_ms_p50 = 12,
                     .validation_metric = 0.75},
                    ActivityTime(11));
  activity.Skipped(3);
  activity.Skipped(2);
  activity.Measured({.owed = 6, .chunks = 1});
  const protocol::MemberProgress expected{.step = 7,
                                          .total_steps = 90,
                                          .epoch = 2,
                                          .loss = 0.5,
                                          .samples_per_second = 40,
                                          .step_ms_p50 = 12,
                                          .validation_metric = 0.75,
                                          .skipped_bundles = 5,
                                          .residual_energy = 6};
  EXPECT_EQ(HeartbeatAt(activity, 12).progress, expected);
  EXPECT_EQ(HeartbeatAt(activity, 12).since_progress, absl::Seconds(1));
  SessionFigures figures;
  activity.FillFigures(&figures);
  EXPECT_EQ(figures.progress.samples_per_second, 40);
  EXPECT_EQ(figures.skipped_bundles, 5u);
  ASSERT_TRUE(figures.quality.has_value());
  EXPECT_EQ(figures.quality->owed, 6);
}

TEST(SessionActivity, TheRestOfTheTimeRunsDownToZeroBetweenReports) {
  SessionActivity activity(ActivityTime(10), /*restoring_step=*/0);
  EXPECT_FALSE(HeartbeatAt(activity, 11).progress.seconds_left.has_value());
  activity.Reported({.seconds_left = 30}, ActivityTime(20));
  EXPECT_EQ(HeartbeatAt(activity, 28).progress.seconds_left, 22);
  EXPECT_EQ(HeartbeatAt(activity, 60).progress.seconds_left, 0);
}

TEST(SessionActivity, OnlyTheMessageToLeaveHasTheHashOfTheParameters) {
  SessionActivity activity(ActivityTime(10), /*restoring_step=*/0);
  activity.ParametersHashed(500, "abc");
  protocol::WorkerHeartbeat heartbeat = HeartbeatAt(activity, 11);
  EXPECT_EQ(heartbeat.parameters_hash_step, 0u);
  EXPECT_TRUE(heartbeat.parameters_sha256.empty());
  activity.FillHash(&heartbeat);
  EXPECT_EQ(heartbeat.parameters_hash_step, 500u);
  EXPECT_EQ(heartbeat.parameters_sha256, "abc");
}

}  // namespace
}  // namespace sluice::worker
