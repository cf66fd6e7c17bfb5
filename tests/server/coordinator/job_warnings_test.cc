// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/job_warnings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/server/coordinator/job_status_samples.h"

namespace sluice::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Duration kSilence = absl::Seconds(5);
constexpr StepSplit kFine = {.compute = 0.08, .encode = 0.005, .wait = 0.005, .transfer = 0.01};

std::vector<std::string> Texts(const JobStatus& status, const JobHistory& history) {
  std::vector<std::string> texts;
  for (const JobWarning& warning : WarningsOf(status, history, kSilence)) {
    texts.push_back(absl::StrCat(ToString(warning.kind), ": ", warning.text,
                                 warning.action.empty() ? "" : "; ", warning.action));
  }
  return texts;
}

// Returns the warnings for a job whose workers have had these splits for 12 seconds.
std::vector<std::string> TextsOfSteps(const std::vector<StepSplit>& splits) {
  JobStatus status = RunningJob(static_cast<uint32_t>(splits.size()));
  JobHistory history;
  for (double second = 0; second < 12; ++second) {
    for (MemberStatus& member : status.members) Step(10, splits[member.rank], &member);
    history.Add(status, SecondOf(second));
  }
  return Texts(status, history);
}

TEST(JobWarnings, ThereAreNoneWhereAllIsWell) {
  EXPECT_THAT(TextsOfSteps({kFine, kFine}), IsEmpty());
  JobStatus finished = RunningJob(1);
  finished.phase = protocol::JobPhase::kFinished;
  finished.members[0].since_heartbeat = absl::Seconds(100);
  EXPECT_THAT(Texts(finished, JobHistory()), IsEmpty());
}

TEST(JobWarnings, SayThatTwoIntervalsPassedWithoutACheckpoint) {
  JobStatus status = RunningJob(1);
  status.has_checkpoints = true;
  status.checkpoint_interval = 100;
  status.checkpoint_step = 300;
  status.shards[0].highest_closed_step = 500;
  EXPECT_THAT(Texts(status, JobHistory()), IsEmpty()) << "the second one may be on its way";
  status.shards[0].highest_closed_step = 501;
  EXPECT_THAT(Texts(status, JobHistory()),
              ElementsAre("problem: step 501 is over and the newest checkpoint is that after step "
                          "300, although checkpoint.interval is 100; find the process that cannot "
                          "write its part: its log names the folder and the error"));
  status.checkpoint_step = 0;
  EXPECT_THAT(Texts(status, JobHistory()), ElementsAre(HasSubstr("there is no checkpoint yet")));
  status.has_checkpoints = false;
  EXPECT_THAT(Texts(status, JobHistory()), IsEmpty());
}

TEST(JobWarnings, NameLongWaitsForDisksAndWhatFails) {
  JobStatus status = RunningJob(1);
  status.waits = {{.who = "worker 0", .what = "its part to be written", .lasts = absl::Seconds(4)},
                  {.who = "shard 1", .what = "its part to be written", .lasts = absl::Seconds(70)},
                  {.who = "the coordinator",
                   .what = "the record of term 1",
                   .lasts = absl::Seconds(2),
                   .trouble = "no space left on device"}};
  EXPECT_THAT(
      Texts(status, JobHistory()),
      ElementsAre(AllOf(HasSubstr("problem: shard 1"), HasSubstr("to be written for 1m10s")),
                  AllOf(HasSubstr("problem: the coordinator"), HasSubstr("term 1 for 2s"),
                        HasSubstr("retries: no space left"))));
}

TEST(JobWarnings, TellThatMembersAreRelays) {
  JobStatus status = RunningJob(2);
  status.relays = true;
  EXPECT_THAT(Texts(status, JobHistory()),
              ElementsAre(AllOf(HasSubstr("note: each worker"), HasSubstr("is a relay"))));
}

TEST(JobWarnings, NameAWorkerWithASlowLinkAndThoseWhoWaitForIt) {
  const StepSplit slow = {.compute = 0.08, .transfer = 0.92};
  const StepSplit others = {.compute = 0.08, .wait = 0.9, .transfer = 0.02};
  EXPECT_THAT(TextsOfSteps({others, slow, others}),
              ElementsAre(AllOf(HasSubstr("slow: worker 1 waits"), HasSubstr("its link: 92 %"),
                                HasSubstr("fewer bytes")),
                          AllOf(HasSubstr("slow: the other workers"), HasSubstr("worker 1: 90 %"),
                                HasSubstr("92 % of it on"), HasSubstr("check the network"))));
}

TEST(JobWarnings, NameAWorkerThatComputesSlowly) {
  EXPECT_THAT(
      TextsOfSteps({{.compute = 1}, {.compute = 0.3, .wait = 0.7}}),
      ElementsAre(AllOf(HasSubstr("slow: the other worker waits"), HasSubstr("worker 0: 70 %"),
                        HasSubstr("100 % of it computing"), HasSubstr("a faster machine"))));
}

TEST(JobWarnings, TellOfLinksOfAll) {
  EXPECT_THAT(TextsOfSteps({{.compute = 1, .transfer = 1.5}, {.compute = 1, .transfer = 2}}),
              ElementsAre(AllOf(HasSubstr("slow: all 2 workers"), HasSubstr("links: 60 to 67 %"))));
}

TEST(JobWarnings, TellOfEncodingAndOfShards) {
  EXPECT_THAT(
      TextsOfSteps({{.compute = 0.6, .encode = 0.4}}),
      ElementsAre(AllOf(HasSubstr("slow: worker 0"), HasSubstr("encoding and decoding: 40 %"),
                        HasSubstr("a simpler codec"))));
  const StepSplit shards = {.compute = 0.5, .wait = 0.5};
  EXPECT_THAT(TextsOfSteps({shards, shards}),
              ElementsAre(AllOf(HasSubstr("slow: all workers"), HasSubstr("the shards"),
                                HasSubstr("each other: 50 %"))));
}

TEST(JobWarnings, NameNoMoreThanAFew) {
  std::vector<StepSplit> splits(9, {.compute = 0.4, .transfer = 0.6});
  splits[0] = kFine;
  EXPECT_THAT(TextsOfSteps(splits).at(0),
              AllOf(HasSubstr("slow: workers 1, 2, 3,"), HasSubstr("3, 4 and 4 others")));
}

TEST(JobWarnings, NameWhoIsSilentLostOrAwaited) {
  JobStatus status = RunningJob(3);
  status.members[0].since_heartbeat = absl::Seconds(4);
  status.members[1].since_heartbeat = absl::Milliseconds(7500);
  status.members[2].since_heartbeat = absl::Seconds(12);
  status.members[2].lost = true;
  status.shards[0].since_report = absl::Seconds(6);
  EXPECT_THAT(Texts(status, JobHistory()),
              ElementsAre(AllOf(HasSubstr("problem: worker 1"), HasSubstr("not reported for 7s")),
                          AllOf(HasSubstr("problem: worker 2"), HasSubstr("for 12s: it is lost")),
                          AllOf(HasSubstr("problem: shard 0"), HasSubstr("not reported for 6s"))));
  JobStatus waiting = RunningJob(4);
  waiting.phase = protocol::JobPhase::kWaiting;
  for (const uint32_t rank : {1, 2, 3}) waiting.members[rank].joined = false;
  waiting.shards[0].attached = false;
  EXPECT_THAT(Texts(waiting, JobHistory()),
              ElementsAre(AllOf(HasSubstr("note: the job waits for"),
                                HasSubstr("workers 1, 2 and 3"), HasSubstr("shard 0 to join"))));
}

TEST(JobWarnings, TellWhatElseIsWrong) {
  JobStatus status = RunningJob(2);
  status.members[1].progress.loss = std::numeric_limits<double>::quiet_NaN();
  status.checkpoint_trouble = "the checkpoint after step 5 was abandoned: disk full";
  status.recovery_reason = "rank 0 keeps too little";
  EXPECT_THAT(
      Texts(status, JobHistory()),
      ElementsAre(
          AllOf(HasSubstr("problem: the loss of worker"), HasSubstr("worker 1 is not finite")),
          AllOf(HasSubstr("problem: the checkpoint"), HasSubstr("step 5 was abandoned: disk")),
          AllOf(HasSubstr("note: the next loss"), HasSubstr("rank 0 keeps too little"))));
  status.phase = protocol::JobPhase::kFailed;
  status.failure = "worker 0 gave up";
  EXPECT_THAT(
      Texts(status, JobHistory()),
      ElementsAre(AllOf(HasSubstr("problem: the job has failed"), HasSubstr("worker 0 gave up"))));
}

TEST(JobWarnings, NameWorkersWhoseContributionsDiffer) {
  JobStatus status = RunningJob(4);
  status.members[1].suspect = {.rank = 1, .opposes = true, .counts = true};
  status.members[3].suspect = {.rank = 3, .opposes = false, .counts = false};
  EXPECT_THAT(Texts(status, JobHistory()),
              ElementsAre(AllOf(HasSubstr("problem: the contributions of worker 1"),
                                HasSubstr("point against those of the other workers, and count")),
                          AllOf(HasSubstr("problem: the contributions of worker 3"),
                                HasSubstr("larger than those of the other workers; check"))));
}

TEST(JobWarnings, TellOfAStandstill) {
  JobStatus status = RunningJob(1);
  JobHistory history;
  for (double second = 0; second < 60; ++second) {
    if (second < 20) Step(10, kFine, &status.members[0]);
    history.Add(status, SecondOf(second));
  }
  EXPECT_THAT(Texts(status, history),
              ElementsAre(AllOf(HasSubstr("problem: no worker"), HasSubstr("step for 40s"))));
}

}  // namespace
}  // namespace sluice::server
