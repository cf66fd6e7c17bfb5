// SPDX-License-Identifier: Apache-2.0
#include "cli/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/status.h"

namespace sluice::cli {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

v1::GetStatusReply Running(int workers, uint64_t first_step = 100) {
  v1::GetStatusReply status;
  status.set_job_name("mnist");
  status.set_phase(v1::JOB_PHASE_RUNNING);
  status.set_world_size(workers);
  for (int rank = 0; rank < workers; ++rank) {
    v1::MemberStatus* member = status.add_members();
    member->set_rank(rank);
    member->set_joined(true);
    v1::WorkerProgress* progress = member->mutable_progress();
    progress->set_step(first_step + rank);
    progress->set_total_steps(400);
    progress->set_loss(0.5 + rank);
    progress->set_samples_per_second(1000);
    progress->set_bytes_up(2048 * (first_step + rank));
    progress->set_bytes_down(4096 * (first_step + rank));
    progress->set_dense_bytes_up(204800 * (first_step + rank));
    progress->set_dense_bytes_down(204800 * (first_step + rank));
  }
  v1::ShardStatus* shard = status.add_shards();
  shard->set_attached(true);
  shard->set_address("127.0.0.1:7070");
  return status;
}

TEST(TotalsTest, AddsUpWorkers) {
  const ProgressTotals totals = TotalsOf(Running(2));
  EXPECT_EQ(totals.step, 100u);
  EXPECT_EQ(totals.total_steps, 400u);
  EXPECT_DOUBLE_EQ(totals.loss, 1.0);
  EXPECT_DOUBLE_EQ(totals.samples_per_second, 2000);
  EXPECT_DOUBLE_EQ(totals.bytes_up_per_step, 2048);
  EXPECT_DOUBLE_EQ(totals.bytes_down_per_step, 4096);
  EXPECT_DOUBLE_EQ(totals.ratio_up, 100);
  EXPECT_DOUBLE_EQ(totals.ratio_down, 50);
  EXPECT_EQ(totals.attached_shards, 1u);
}

TEST(TotalsTest, BytesThatAreNewerThanTheStepDoNotLookLikeMore) {
  v1::GetStatusReply status = Running(2);
  status.mutable_shards(0)->set_elements(204800 / 4);
  for (v1::MemberStatus& member : *status.mutable_members())
    member.mutable_progress()->set_step(50);
  const ProgressTotals totals = TotalsOf(status);
  EXPECT_DOUBLE_EQ(totals.bytes_up_per_step, 2048);
  EXPECT_DOUBLE_EQ(totals.bytes_down_per_step, 4096);
}

TEST(TotalsTest, WithLocalStepsAStepHasAShareOfAnExchange) {
  v1::GetStatusReply status = Running(2);
  status.mutable_shards(0)->set_elements(51200);
  const ProgressTotals exchanged = TotalsOf(status);
  status.set_steps_per_exchange(20);
  EXPECT_DOUBLE_EQ(TotalsOf(status).bytes_up_per_step, exchanged.bytes_up_per_step / 20);
  EXPECT_DOUBLE_EQ(TotalsOf(status).ratio_up, exchanged.ratio_up);
}

TEST(TotalsTest, NothingYet) {
  const ProgressTotals totals = TotalsOf({});
  EXPECT_EQ(totals.step, 0u);
  EXPECT_EQ(totals.ratio_up, 0);
  EXPECT_EQ(totals.loss, 0);
}

TEST(TotalsTest, TheSlowestWorkerSaysHowLongItTakes) {
  v1::GetStatusReply status = Running(3);
  EXPECT_EQ(TotalsOf(status).time_left, absl::InfiniteDuration());
  status.mutable_members(0)->mutable_progress()->set_seconds_left(31);
  status.mutable_members(2)->mutable_progress()->set_seconds_left(0.5);
  EXPECT_EQ(TotalsOf(status).time_left, absl::Seconds(31));
  EXPECT_THAT(ProgressTable(status, {}, 200)[0], HasSubstr("eta 0:31"));
  status.mutable_members(1)->mutable_progress()->set_seconds_left(1e300);
  EXPECT_THAT(ProgressTable(status, {}, 200)[0], HasSubstr("eta -"));
}

TEST(ProgressLineTest, SaysEverythingOnce) {
  v1::GetStatusReply status = Running(2);
  status.mutable_members(0)->mutable_progress()->set_seconds_left(31);
  // One whole line as an example.
  EXPECT_EQ(ProgressLine(status, {absl::Seconds(15), ""}),
            "0:15 step 100/400 loss 1.0000 2000 samples/s up 2.00 KiB (100x) down 4.00 KiB "
            "(50.0x) per step and worker, eta 0:31");
}

TEST(ProgressLineTest, AProgramOfTheUsersOwnHasNoLossAndNoEnd) {
  v1::GetStatusReply status = Running(2);
  for (v1::MemberStatus& member : *status.mutable_members()) {
    member.mutable_progress()->set_samples_per_second(0);
    member.mutable_progress()->set_total_steps(0);
  }
  EXPECT_EQ(ProgressLine(status, {absl::Seconds(15), ""}),
            "0:15 step 100 up 2.00 KiB (100x) down 4.00 KiB (50.0x) per step and worker");
}

TEST(ProgressLineTest, SaysWhoIsAwaited) {
  v1::GetStatusReply status = Running(3, 0);
  status.set_phase(v1::JOB_PHASE_WAITING);
  status.mutable_members(1)->set_joined(false);
  const ProgressFrame frame{absl::Seconds(2), ""};
  EXPECT_THAT(ProgressLine(status, frame),
              AllOf(HasSubstr("waiting: 2 of 3 workers"), HasSubstr("1 of 1 shards")));
}

TEST(ProgressLineTest, SaysWhatSurvivalIsMadeOf) {
  v1::GetStatusReply status = Running(2);
  status.set_checkpoint_step(96);
  ProgressFrame frame{absl::Seconds(15), ""};
  EXPECT_THAT(ProgressLine(status, frame), ::testing::EndsWith(", eta -, checkpoint 96"));
  frame.restarts = 2;
  EXPECT_THAT(ProgressLine(status, frame),
              ::testing::EndsWith(", eta -, checkpoint 96, 2 restarts"));
  status.set_phase(v1::JOB_PHASE_RECOVERING);
  status.mutable_members(1)->set_joined(false);
  EXPECT_THAT(ProgressLine(status, frame),
              AllOf(HasSubstr("recovering: 1 of 2 workers"),
                    ::testing::EndsWith(", checkpoint 96, 2 restarts")));
}

TEST(ProgressTableTest, TellsWhatDiedAndWhatWasLost) {
  v1::GetStatusReply status = Running(2);
  EXPECT_THAT(ProgressTable(status, {}, 200), Not(::testing::Contains(HasSubstr("lost"))));
  status.set_phase(v1::JOB_PHASE_RECOVERING);
  status.set_checkpoint_step(96);
  status.set_last_rollback("from step 101 back to 96: 5 steps lost");
  ProgressFrame frame;
  frame.restarts = 1;
  frame.last_death = "worker 1 was killed by signal 9 (Killed), restarted 1 time";
  const std::vector<std::string> lines = ProgressTable(status, frame, 200);
  EXPECT_THAT(lines[0], HasSubstr("recovering"));
  EXPECT_THAT(lines[0], HasSubstr("2 of 2 workers"));
  EXPECT_THAT(lines[0], HasSubstr("  checkpoint 96  1 restart"));
  EXPECT_THAT(lines.back(), AllOf(::testing::StartsWith("lost: worker 1 was killed"),
                                  HasSubstr("1 time; from step 101")));
  EXPECT_THAT(ProgressTable(status, {}, 200).back(),
              ::testing::StartsWith("lost: from step 101 back"));
}

TEST(ProgressTableTest, TellsWhatWasBroughtBackAndWhatTheNextLossWouldMean) {
  v1::GetStatusReply status = Running(2);
  status.set_recovery_class("replay");
  EXPECT_THAT(ProgressTable(status, {}, 200), SizeIs(5)) << "there is nothing to report";
  status.set_repairs(2);
  status.set_last_repair("shard 1 was restarted (repair 2)");
  status.mutable_members(1)->set_lost(true);
  std::vector<std::string> lines = ProgressTable(status, {}, 200);
  EXPECT_THAT(lines[0], HasSubstr("  2 repairs"));
  EXPECT_THAT(lines[3], ::testing::StartsWith("1 lost "));
  EXPECT_EQ(lines.back(), "repaired: shard 1 was restarted (repair 2)");
  status.set_recovery_class("rollback");
  EXPECT_EQ(ProgressTable(status, {}, 200).back(), lines.back())
      << "without a reason, the job does not request exact recovery";
  status.set_recovery_reason("rank 1 keeps too little");
  lines = ProgressTable(status, {}, 200);
  EXPECT_THAT(lines.back(), ::testing::StartsWith("recovery class rollback: rank 1"));
  EXPECT_THAT(ProgressLine(status, {}),
              ::testing::EndsWith(", 2 repairs, recovery class rollback"));
  status.set_phase(v1::JOB_PHASE_RECOVERING);
  EXPECT_THAT(ProgressLine(status, {}), ::testing::EndsWith(", 2 repairs"));
}

TEST(ProgressTableTest, FitsAnyWidth) {
  const ProgressFrame frame{absl::Seconds(15), "http://127.0.0.1:7071/"};
  for (const size_t width : {1, 20, 40, 79, 200}) {
    const std::vector<std::string> lines = ProgressTable(Running(4), frame, width);
    EXPECT_THAT(lines, Each(SizeIs(::testing::Le(width))));
    EXPECT_THAT(lines, SizeIs(7));
  }
  EXPECT_THAT(ProgressTable(Running(4), frame, 200)[0], HasSubstr("http://127.0.0.1:7071/"));
}

TEST(ProgressTableTest, ManyWorkersAreCutAndCounted) {
  const std::vector<std::string> lines = ProgressTable(Running(100), {}, 100);
  EXPECT_THAT(lines, SizeIs(2 + kTableRowsMax + 2));
  EXPECT_EQ(lines[lines.size() - 2], "... and 84 more");
}

TEST(FormatStatusTest, ShowsShardsAndFailureWithoutControlCharacters) {
  v1::GetStatusReply status = Running(1);
  status.set_phase(v1::JOB_PHASE_FAILED);
  status.set_failure("worker 0 \x1b[2J is gone\nshard 3  forged");
  status.add_shards()->set_shard(1);
  v1::ShardStatus* const lost = status.add_shards();
  lost->set_shard(2);
  lost->set_lost(true);
  lost->set_address("h:7072");
  lost->set_seconds_since_report(12);
  const std::string text = FormatStatus(status);
  EXPECT_THAT(text, HasSubstr("shard 0  127.0.0.1:7070"));
  EXPECT_THAT(text, HasSubstr("shard 1  not here yet"));
  EXPECT_THAT(text, AllOf(HasSubstr("shard 2  h:7072  lost: "), HasSubstr("no message for 12 s")));
  EXPECT_THAT(text, HasSubstr("failure: worker 0 \\x1b[2J is gone\\nshard 3"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST(FormatStatusTest, ShowsLinksThatAreKnown) {
  v1::GetStatusReply status = Running(2);
  EXPECT_THAT(FormatStatus(status), Not(HasSubstr("link")));
  v1::LinkStatus* link = status.mutable_members(1)->mutable_link();
  link->set_up_bytes_per_second(12.34e6);
  link->set_up_latency_seconds(0.00123);
  EXPECT_THAT(FormatStatus(status),
              AllOf(HasSubstr("\nlink of worker 1  up"), HasSubstr("12.3 MB/s, latency 1.23 ms"),
                    HasSubstr("down not known yet")));
  EXPECT_THAT(FormatStatus(status), Not(HasSubstr("link of worker 0")));
}

TEST(FormatStatusTest, ShowsWarningsInTheirOrder) {
  v1::GetStatusReply status = Running(1);
  for (const char* kind : {"problem", "slow"}) {
    v1::StatusWarning* const warning = status.add_warnings();
    warning->set_kind(kind);
    warning->set_text("worker 3 waits on its uplink: 92 % of step");
  }
  EXPECT_THAT(FormatStatus(status), AllOf(HasSubstr("\nproblem: worker 3 waits on"),
                                          HasSubstr("% of step\nslow: worker")));
}

TEST(FormatStatusTest, ShowsHowTheJobIsCompressedAndWhatChangedLast) {
  v1::GetStatusReply status = Running(1);
  EXPECT_THAT(FormatStatus(status), Not(HasSubstr("compression")));
  v1::JobCodecs* codecs = status.mutable_codecs();
  codecs->set_uplink("topk:1%+int4");
  codecs->set_downlink("int8");
  codecs->set_policy("fixed");
  EXPECT_THAT(FormatStatus(status), HasSubstr("\ncompression topk:1%+int4 up, int8 down"));
  codecs->set_momentum("momentum 0.5 (of 0.9): some reason");
  EXPECT_THAT(FormatStatus(status), HasSubstr("down; momentum 0.5 (of 0.9)"));
  codecs->clear_momentum();
  codecs->set_policy("schedule");
  codecs->set_plans_made(7);
  for (uint64_t id = 4; id <= 7; ++id) {
    v1::PlanChange* plan = codecs->add_plans();
    plan->set_id(id);
    plan->set_effective_step(100 * id);
    plan->set_what("topk:5% up in 2 tensors");
    plan->set_reason("as scheduled");
  }
  EXPECT_THAT(FormatStatus(status),
              AllOf(HasSubstr("schedule, 7 plans\nplan 5"), HasSubstr("from step 500: topk:5% up"),
                    HasSubstr("(as scheduled)\nplan 6")));
}

TEST(FormatStatusTest, ShowsTheCheckpointAndTheTerm) {
  v1::GetStatusReply status = Running(1);
  EXPECT_THAT(FormatStatus(status), Not(HasSubstr("term")));
  status.set_term(2);
  status.set_rollbacks(1);
  EXPECT_THAT(FormatStatus(status), HasSubstr("no checkpoint  term 2  rollbacks 1"));
  status.set_repairs(3);
  status.set_recovery_class("rollback");
  status.set_recovery_reason("rank 1 keeps too little");
  EXPECT_THAT(FormatStatus(status),
              AllOf(HasSubstr("  repairs 3\n"), HasSubstr("\nrecovery class rollback: rank 1")));
  status.set_checkpoint_step(1000);
  status.set_seconds_since_checkpoint(61.4);
  EXPECT_THAT(FormatStatus(status),
              AllOf(HasSubstr("checkpoint after step 1000"), HasSubstr("61 s ago  term 2")));
}

}  // namespace
}  // namespace sluice::cli
