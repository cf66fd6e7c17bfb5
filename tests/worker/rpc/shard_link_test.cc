// SPDX-License-Identifier: Apache-2.0
#include "worker/rpc/shard_link.h"

#include <gtest/gtest.h>

namespace sluice::worker {
namespace {

using Loss = ShardLink::Loss;

absl::Time LinkTime(double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

// Its stream was opened at 0 to the process with incarnation 5.
ShardLink NewLink() {
  return ShardLink({.patience = absl::Seconds(100),
                    .backoff_min = absl::Seconds(1),
                    .backoff_max = absl::Seconds(3)},
                   LinkTime(0), /*server_incarnation=*/5);
}

Loss Lose(ShardLink* link, double seconds) {
  return link->StreamDown("connection refused", /*leaving=*/false, LinkTime(seconds));
}

TEST(ShardLink, PausesGrowUntilTheShardAnswers) {
  ShardLink link = NewLink();
  Lose(&link, 10);
  EXPECT_EQ(link.NextDue(), LinkTime(11));
  Lose(&link, 20);
  EXPECT_EQ(link.NextDue(), LinkTime(22));
  Lose(&link, 30);
  EXPECT_EQ(link.NextDue(), LinkTime(33)) << "the pause has a limit";
  link.Answered();
  Lose(&link, 40);
  EXPECT_EQ(link.NextDue(), LinkTime(41));
}

TEST(ShardLink, ALossIsLoggedOnceAndSoIsItsEnd) {
  ShardLink link = NewLink();
  EXPECT_FALSE(link.StreamUp()) << "nothing was lost";
  EXPECT_EQ(Lose(&link, 10), Loss::kRetryAndLog);
  EXPECT_EQ(Lose(&link, 20), Loss::kRetry);
  EXPECT_EQ(link.trouble(), "connection refused");
  EXPECT_TRUE(link.StreamUp());
  EXPECT_FALSE(link.Answered());
  EXPECT_EQ(Lose(&link, 30), Loss::kRetryAndLog);
}

TEST(ShardLink, ALeavingWorkerRetriesWithoutALogLine) {
  ShardLink link = NewLink();
  EXPECT_EQ(link.StreamDown("gone", /*leaving=*/true, LinkTime(10)), Loss::kRetry);
  EXPECT_TRUE(link.TakeDue(LinkTime(11)).reopen);
  EXPECT_FALSE(link.StreamUp()) << "no loss was logged";
}

TEST(ShardLink, AShardThatNeverAnswersBecomesUnreachable) {
  ShardLink link = NewLink();
  EXPECT_EQ(Lose(&link, 99), Loss::kRetryAndLog);
  EXPECT_EQ(Lose(&link, 100), Loss::kUnreachable);
}

TEST(ShardLink, PatienceBeginsAnewAtTheFirstLossAfterAnAnswer) {
  ShardLink link = NewLink();
  link.Answered();
  Lose(&link, 150);
  EXPECT_EQ(Lose(&link, 249), Loss::kRetry);
  EXPECT_EQ(Lose(&link, 250), Loss::kUnreachable);
}

TEST(ShardLink, SilenceIsDueOnceEvenIfTheStreamHolds) {
  ShardLink link = NewLink();
  EXPECT_EQ(link.NextDue(), LinkTime(100));
  EXPECT_FALSE(link.TakeDue(LinkTime(99)).silent);
  EXPECT_TRUE(link.TakeDue(LinkTime(100)).silent);
  EXPECT_FALSE(link.TakeDue(LinkTime(200)).silent);
  EXPECT_EQ(link.NextDue(), absl::InfiniteFuture());
}

TEST(ShardLink, AShardThatAnswersIsNotSilent) {
  ShardLink link = NewLink();
  link.StreamUp();
  EXPECT_FALSE(link.TakeDue(LinkTime(500)).silent);
}

TEST(ShardLink, EachTimerIsTakenOnce) {
  ShardLink link = NewLink();
  link.Answered();
  Lose(&link, 10);
  link.RetryAt(LinkTime(10.5));
  EXPECT_EQ(link.NextDue(), LinkTime(10.5));
  const ShardLink::Due first = link.TakeDue(LinkTime(10.5));
  EXPECT_TRUE(first.retry);
  EXPECT_FALSE(first.reopen);
  EXPECT_EQ(link.NextDue(), LinkTime(11));
  const ShardLink::Due second = link.TakeDue(LinkTime(11));
  EXPECT_FALSE(second.retry);
  EXPECT_TRUE(second.reopen);
  EXPECT_FALSE(link.TakeDue(LinkTime(12)).reopen);
}

TEST(ShardLink, AnAnswerOfAReplacedProcessIsOutdated) {
  ShardLink link = NewLink();
  EXPECT_FALSE(link.IsOutdated(0)) << "the answer names no process";
  EXPECT_FALSE(link.IsOutdated(5));
  EXPECT_TRUE(link.IsOutdated(4));
  Lose(&link, 10);
  EXPECT_EQ(link.trouble(), "the process there was replaced by a newer one");
}

TEST(ShardLink, AStreamToAReplacedProcessDoesNotEndTheSilence) {
  ShardLink link = NewLink();
  link.Answered();
  EXPECT_TRUE(link.IsOutdated(4));
  EXPECT_EQ(Lose(&link, 10), Loss::kRetryAndLog);
  EXPECT_FALSE(link.StreamUp()) << "the replaced process may have the new stream too";
  EXPECT_EQ(Lose(&link, 110), Loss::kUnreachable);
  EXPECT_TRUE(link.Answered());
  EXPECT_EQ(Lose(&link, 111), Loss::kRetryAndLog);
  EXPECT_EQ(link.trouble(), "connection refused");
}

TEST(ShardLink, ANewProcessIsFoundByItsFirstAnswerOnly) {
  ShardLink link = NewLink();
  EXPECT_FALSE(link.IsReplaced(0));
  EXPECT_FALSE(link.IsReplaced(5));
  EXPECT_TRUE(link.IsReplaced(6));
  EXPECT_FALSE(link.IsReplaced(6));
  EXPECT_TRUE(link.IsOutdated(5));
}

TEST(ShardLink, FollowsOnlyANewerProcessAndWithoutAPause) {
  ShardLink link = NewLink();
  EXPECT_FALSE(link.Follow(5));
  EXPECT_TRUE(link.Follow(7));
  EXPECT_FALSE(link.Follow(7));
  EXPECT_FALSE(link.Follow(6));
  EXPECT_EQ(link.newest(), 7u);
  EXPECT_EQ(link.StreamDown("cancelled", /*leaving=*/false, LinkTime(10)), Loss::kRetry)
      << "this worker ended the stream itself";
  EXPECT_EQ(link.NextDue(), LinkTime(10));
  EXPECT_TRUE(link.TakeDue(LinkTime(10)).reopen);
  EXPECT_EQ(Lose(&link, 11), Loss::kRetryAndLog) << "the new stream was lost";
}

TEST(ShardLink, AStreamThatWasDownAlreadyReachesTheNewProcessWhenItOpens) {
  ShardLink link = NewLink();
  Lose(&link, 10);
  EXPECT_TRUE(link.Follow(7));
  EXPECT_TRUE(link.TakeDue(LinkTime(11)).reopen);
  Lose(&link, 12);
  EXPECT_EQ(link.NextDue(), LinkTime(14)) << "this loss is not the move, so there is a pause";
}

TEST(ShardLink, AProcessThatTheCoordinatorNamedStillHasToAnswer) {
  ShardLink link = NewLink();
  EXPECT_TRUE(link.Follow(7));
  EXPECT_TRUE(link.IsOutdated(6));
  EXPECT_TRUE(link.IsReplaced(7)) << "no answer of it has come before";
}

}  // namespace
}  // namespace sluice::worker
