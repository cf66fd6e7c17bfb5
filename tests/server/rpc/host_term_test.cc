// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/host_term.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::server {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kRun = 77;

protocol::StartShard StartOf(uint32_t term, uint64_t coordinator) {
  protocol::StartShard start;
  start.job_uid = kRun;
  start.term = term;
  start.coordinator_incarnation = coordinator;
  return start;
}

protocol::ExchangeReply AnswerTo(const HostTerm& term, uint32_t sender_term) {
  protocol::ExchangeRequest exchange;
  exchange.sender.term = sender_term;
  exchange.step = 12;
  exchange.bundle = 3;
  return term.AnswerWithoutCore(exchange);
}

TEST(HostTerm, ServesOneRunOnly) {
  HostTerm term;
  protocol::StartShard other = StartOf(1, 1);
  other.job_uid = kRun + 1;
  EXPECT_TRUE(term.MayStart(other).ok()) << "a process without a run takes any";
  term.BindTo(kRun);
  EXPECT_TRUE(term.MayStart(StartOf(1, 1)).ok());
  EXPECT_EQ(term.MayStart(other).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(HostTerm, RefusesCoordinatorsThatWereReplaced) {
  HostTerm term;
  term.MoveTo(StartOf(2, 5));
  EXPECT_THAT(term.MayStart(StartOf(1, 6)).message(), HasSubstr("the job is in term 2 here"));
  EXPECT_THAT(term.MayStart(StartOf(2, 4)).message(), HasSubstr("incarnation 5, not 4"));
  EXPECT_TRUE(term.MayStart(StartOf(2, 5)).ok()) << "a Start may be repeated";
  EXPECT_TRUE(term.MayStart(StartOf(2, 6)).ok());
  EXPECT_TRUE(term.MayStart(StartOf(3, 1)).ok()) << "a new term may have any coordinator";
}

TEST(HostTerm, AsksWorkersToWaitUntilTheTermStarts) {
  const protocol::ExchangeReply answer = AnswerTo(HostTerm(), 0);
  EXPECT_EQ(answer.outcome, protocol::Outcome::kBusy);
  EXPECT_GT(answer.retry_after_ms, 0u);
  EXPECT_EQ(answer.step, 12u);
  EXPECT_EQ(answer.bundle, 3u);
}

TEST(HostTerm, FencesSendersOfEarlierTermsWhileItIsSuspended) {
  HostTerm term;
  term.MoveTo(StartOf(1, 1));
  term.Suspend(2, "rank 0 was lost");
  const protocol::ExchangeReply answer = AnswerTo(term, 1);
  EXPECT_EQ(answer.outcome, protocol::Outcome::kFenced);
  EXPECT_EQ(answer.term, 2u);
  EXPECT_EQ(answer.message, "rank 0 was lost");
  EXPECT_EQ(AnswerTo(term, 2).outcome, protocol::Outcome::kBusy);
}

TEST(HostTerm, FencesEverySenderAfterTheEnd) {
  HostTerm term;
  EXPECT_FALSE(term.ended());
  term.End("the job has finished");
  EXPECT_TRUE(term.ended());
  const protocol::ExchangeReply answer = AnswerTo(term, 9);
  EXPECT_EQ(answer.outcome, protocol::Outcome::kFenced);
  EXPECT_EQ(answer.message, "the job has finished");
  EXPECT_TRUE(term.Withdrawn().ok()) << "the end of the job breaks no stream";
}

TEST(HostTerm, AWithdrawnProcessIsUnavailable) {
  HostTerm term;
  EXPECT_TRUE(term.Withdrawn().ok());
  term.Withdraw("another process serves shard 0");
  EXPECT_EQ(term.Withdrawn().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(term.Withdrawn().message(), HasSubstr("another process serves shard 0"));
  EXPECT_TRUE(term.ended());
}

}  // namespace
}  // namespace sluice::server
