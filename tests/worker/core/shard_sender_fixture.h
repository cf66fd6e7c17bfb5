// SPDX-License-Identifier: Apache-2.0
// ShardSenderTest: a ShardSender of shard 1. The test plays the shard, and composes the
// contributions as a Pipeline would.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/worker/core/one_worker.h"
#include "worker/core/shard_sender.h"

namespace sluice::worker {

// Shards 0 and 1 have three bundles each, or `bundles`.
class ShardSenderTest : public testing::Test {
 protected:
  using Outcome = protocol::Outcome;
  using News = ShardSender::News;
  using Contribution = std::shared_ptr<const protocol::ExchangeRequest>;

  static constexpr uint64_t kFrameBytes = 10;  // Each contribution has one frame of this size.

  void Make(uint64_t window_bytes = 1 << 20, uint64_t replay_bytes = 1 << 20, size_t bundles = 3) {
    options_.sender = {.job_uid = 7, .rank = 4, .incarnation = 3};
    options_.layout.bundles.assign(2, std::vector<protocol::Bundle>(bundles));
    options_.window_bytes = window_bytes;
    options_.replay_bytes = replay_bytes;
    kept_.emplace(2, replay_bytes, 1);
    sender_.emplace(1, options_, &*kept_);
    effects_.clear();
    step_ = 0;
  }
  Contribution ContributionOf(uint32_t bundle) const {
    auto exchange = std::make_shared<protocol::ExchangeRequest>();
    exchange->sender = options_.sender;
    exchange->step = step_;
    exchange->bundle = bundle;
    exchange->frames = {std::string(kFrameBytes, 'x')};
    return exchange;
  }
  void Start() { sender_->StartStep(++step_); }
  void Send(uint32_t bundle) { sender_->Send(ContributionOf(bundle), &effects_); }
  void SendAll() {
    for (uint32_t bundle = 0; bundle < options_.layout.bundles[1].size(); ++bundle) Send(bundle);
  }
  void FinishSteps(int steps) {
    for (int i = 0; i < steps; ++i) {
      Start();
      SendAll();
      FinishAll();
    }
    effects_.clear();
  }

  static protocol::ExchangeReply Reply(Outcome outcome, uint64_t step, uint32_t bundle,
                                       uint64_t need_from = 0) {
    protocol::ExchangeReply reply;
    reply.outcome = outcome;
    reply.step = step;
    reply.bundle = bundle;
    reply.need_from = need_from;
    reply.retry_after_ms = 30;
    reply.message = "as the shard says";
    return reply;
  }
  // Passes an answer that must not fail.
  News Hear(Outcome outcome, uint64_t step, uint32_t bundle, uint64_t need_from = 0) {
    const absl::StatusOr<News> news =
        sender_->Answer(Reply(outcome, step, bundle, need_from), &effects_);
    EXPECT_TRUE(news.ok()) << news.status();
    return news.value_or(News::kNone);
  }
  // Passes an answer that must fail.
  absl::Status Failure(Outcome outcome, uint64_t step, uint32_t bundle, uint64_t need_from = 0) {
    return sender_->Answer(Reply(outcome, step, bundle, need_from), &effects_).status();
  }
  void Finish(uint64_t step, uint32_t bundle) {
    ASSERT_EQ(Hear(Outcome::kResult, step, bundle), News::kResult);
    sender_->Resolve(Reply(Outcome::kResult, step, bundle), &effects_);
  }
  void FinishAll() {
    for (uint32_t bundle = 0; bundle < options_.layout.bundles[1].size(); ++bundle) {
      Finish(step_, bundle);
    }
  }
  // The new process lacks the steps from `from` on.
  News Replace(uint64_t from) {
    sender_->ShardReplaced(&effects_);
    effects_.clear();
    return Hear(Outcome::kNeed, step_ + 3, 0, from);
  }

  // Formats the requests since the last call as "2/0" (step, bundle); "2/0?" has only keys.
  std::string TakeSent() {
    std::vector<std::string> names;
    for (const Contribution& sent : SentBy(effects_)) {
      names.push_back(absl::StrCat(sent->step, "/", sent->bundle, sent->keys_only ? "?" : ""));
    }
    effects_.clear();
    return absl::StrJoin(names, " ");
  }
  std::vector<absl::Duration> Pauses() const {
    std::vector<absl::Duration> delays;
    for (const PipelineEffect& effect : effects_) {
      if (const auto* later = std::get_if<RetryLater>(&effect)) delays.push_back(later->delay);
    }
    return delays;
  }

  PipelineOptions options_;
  std::optional<ReplayBuffer> kept_;
  std::optional<ShardSender> sender_;  // It serves shard 1.
  uint64_t step_ = 0;
  PipelineEffects effects_;
};

}  // namespace sluice::worker
