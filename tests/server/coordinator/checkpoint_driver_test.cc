// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/checkpoint_driver.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace sluice::server {
namespace {

// A job of one rank and one shard in term 1. The shard keeps the parts.
class CheckpointDriverTest : public ::testing::Test {
 protected:
  CheckpointDriverTest() : driver_(options_, &fleet_) {
    fleet_.BeginTerm(/*is_first=*/true);
    driver_.BeginTerm(1);
    fleet_.Attach(11, {.job_name = {}, .address = "h:7070", .software_version = {}}, now_,
                  &effects_);
    fleet_.Start(0, protocol::StartShard(), &effects_);
    fleet_.Acknowledge(11, 1, now_, &effects_);
    fleet_.SetPositions(0);
    effects_.clear();
  }

  static CoordinatorOptions ExampleOptions() {
    CoordinatorOptions options;
    options.checkpoint = {.dir = "checkpoints", .interval = 10, .replay_limit = 0};
    options.checkpoint.keep = 1;
    options.checkpoint.store = protocol::CheckpointStore::kShards;
    options.checkpoint.replay_limit = 1000;
    return options;
  }
  CheckpointTracker::Progress AddPart(uint64_t step, std::string name) {
    protocol::CheckpointPart part;
    part.term = 1;
    part.step = step;
    part.name = std::move(name);
    return driver_.Add(part, now_);
  }
  void CompleteStep(uint64_t step, uint32_t shards = 1) {
    driver_.Named(step);
    EXPECT_EQ(AddPart(step, protocol::ShardPartName(0, 1)), CheckpointTracker::Progress::kTaken);
    EXPECT_EQ(AddPart(step, protocol::WorkerPartName(0, 1)),
              CheckpointTracker::Progress::kComplete);
    protocol::CheckpointManifest manifest;
    manifest.term = 1;
    manifest.step = step;
    manifest.world_size = 1;
    manifest.shards = shards;
    manifest.at_shards = true;
    driver_.WriteManifest(manifest, &effects_);
    driver_.Complete({}, now_, &effects_);
  }
  // Returns the minimum steps of the commands to name a checkpoint, and forgets all effects.
  std::vector<uint64_t> Asked() {
    std::vector<uint64_t> steps;
    for (const CoordinatorEffect& effect : effects_) {
      const auto* const command = std::get_if<CommandShard>(&effect);
      const auto* const name =
          command == nullptr ? nullptr : std::get_if<protocol::NameCheckpoint>(&command->command);
      if (name != nullptr) steps.push_back(name->minimum_step);
    }
    effects_.clear();
    return steps;
  }
  template <typename Effect>
  std::vector<Effect> EffectsOf() const {
    std::vector<Effect> found;
    for (const CoordinatorEffect& effect : effects_) {
      if (const auto* const one = std::get_if<Effect>(&effect)) found.push_back(*one);
    }
    return found;
  }

  using Steps = std::vector<uint64_t>;
  const CoordinatorOptions options_ = ExampleOptions();
  absl::Time now_ = absl::UnixEpoch();
  ShardFleet fleet_{1, 1};
  CheckpointDriver driver_;
  CoordinatorEffects effects_;
};

TEST_F(CheckpointDriverTest, TheNextRegularCheckpointIsRequested) {
  driver_.AskForNext(&effects_);
  EXPECT_EQ(Asked(), Steps({10}));
  fleet_.Detach(11);
  driver_.AskForNext(&effects_);
  EXPECT_EQ(Asked(), Steps()) << "shard 0 is not there";
  EXPECT_EQ(driver_.tracker().asked_minimum(), 10u);
}

TEST_F(CheckpointDriverTest, OneRequestAsksAndAllGetTheAnswer) {
  driver_.Request(1, protocol::JobPhase::kRunning, &effects_);
  driver_.Request(2, protocol::JobPhase::kRunning, &effects_);
  driver_.Request(3, protocol::JobPhase::kRunning, &effects_);
  driver_.CancelRequest(3);
  EXPECT_EQ(Asked(), Steps({1}));
  CompleteStep(5);
  const auto answers = EffectsOf<AnswerCheckpoint>();
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(*answers[0].step, 5u);
  EXPECT_EQ(*answers[1].step, 5u);
}

TEST_F(CheckpointDriverTest, RequestsThatWaitAreLimited) {
  for (CheckpointToken token = 1; token <= 256; ++token) {
    driver_.Request(token, protocol::JobPhase::kRunning, &effects_);
  }
  EXPECT_EQ(Asked(), Steps({1})) << "shard 0 is asked only once";
  driver_.Request(257, protocol::JobPhase::kRunning, &effects_);
  ASSERT_EQ(effects_.size(), 1u);
  const auto refused = EffectsOf<AnswerCheckpoint>();
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].token, 257u);
  EXPECT_TRUE(absl::IsResourceExhausted(refused[0].step.status()));
  driver_.CancelRequest(3);
  effects_.clear();
  driver_.Request(300, protocol::JobPhase::kRunning, &effects_);
  EXPECT_TRUE(effects_.empty()) << "the cancelled request no longer counts";
  CompleteStep(5);
  std::set<CheckpointToken> answered;
  for (const AnswerCheckpoint& answer : EffectsOf<AnswerCheckpoint>()) {
    EXPECT_EQ(*answer.step, 5u);
    answered.insert(answer.token);
  }
  EXPECT_EQ(answered.size(), 256u);
  EXPECT_TRUE(answered.contains(300));
  EXPECT_FALSE(answered.contains(3));
}

TEST_F(CheckpointDriverTest, AJobThatDoesNotRunRefusesRequests) {
  driver_.Request(1, protocol::JobPhase::kRecovering, &effects_);
  driver_.Request(2, protocol::JobPhase::kFinished, &effects_);
  const auto answers = EffectsOf<AnswerCheckpoint>();
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_TRUE(absl::IsUnavailable(answers[0].step.status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(answers[1].step.status()));
}

TEST_F(CheckpointDriverTest, ACompleteCheckpointReplacesTheOlderOneAndCanBeRestored) {
  CompleteStep(10);
  effects_.clear();
  CompleteStep(20);
  const auto dropped = EffectsOf<DropCheckpoint>();
  ASSERT_EQ(dropped.size(), 1u);
  EXPECT_EQ(dropped[0].step, 10u);
  EXPECT_EQ(driver_.ManifestOf(10), nullptr);
  protocol::JoinGrant grant;
  grant.restore_step = 20;
  driver_.AddRestoreParts(&grant);
  EXPECT_EQ(grant.restore_world_size, 1u);
  ASSERT_EQ(grant.restore_parts.size(), 1u);
  EXPECT_EQ(grant.restore_parts[0].name, protocol::WorkerPartName(0, 1));
  protocol::StartShard start;
  start.restore_step = 20;
  driver_.AddRestorePart(0, &start);
  EXPECT_EQ(start.restore_part.name, protocol::ShardPartName(0, 1));
  EXPECT_TRUE(start.former_states.empty());
}

TEST_F(CheckpointDriverTest, AShardGetsTheStatesOfAllShardsOfAnotherNumber) {
  CompleteStep(10, /*shards=*/2);
  protocol::StartShard start;
  start.restore_step = 10;
  driver_.AddRestorePart(0, &start);
  EXPECT_EQ(start.restore_part.name, "");
  ASSERT_EQ(start.former_states.size(), 2u);
  EXPECT_EQ(start.former_states[0].part.name, protocol::ShardPartName(0, 1));
  EXPECT_EQ(start.former_states[0].address, "h:7070");
  EXPECT_EQ(start.former_states[1].part.name, "") << "the manifest does not list it";
}

TEST_F(CheckpointDriverTest, AnAbandonedCheckpointIsRemovedAndExplained) {
  driver_.Request(1, protocol::JobPhase::kRunning, &effects_);
  driver_.Named(10);
  driver_.Abandon("the disk is full", now_, &effects_);
  EXPECT_EQ(driver_.trouble(), "the checkpoint after step 10 was abandoned: the disk is full");
  EXPECT_EQ(EffectsOf<DropCheckpoint>().size(), 1u);
  EXPECT_TRUE(absl::IsUnavailable(EffectsOf<AnswerCheckpoint>().at(0).step.status()));
  CompleteStep(20);
  EXPECT_EQ(driver_.trouble(), "");
}

TEST_F(CheckpointDriverTest, NewcomersWaitLongerAfterEachAbandonedCheckpoint) {
  for (const int leases : {1, 2, 4}) {
    driver_.AskFor(20, &effects_);
    driver_.Named(20);
    driver_.Abandon("the disk is full", now_, &effects_);
    effects_.clear();
    now_ += leases * options_.server.lease_timeout - absl::Seconds(1);
    driver_.AskForNewcomers(now_, &effects_);
    EXPECT_EQ(Asked(), Steps()) << leases;
    now_ += absl::Seconds(1);
    driver_.AskForNewcomers(now_, &effects_);
    EXPECT_EQ(Asked(), Steps({1})) << leases;
  }
}

TEST_F(CheckpointDriverTest, AForgottenCheckpointIsAbandonedWhenAllHavePassedIt) {
  AddPart(10, protocol::ShardPartName(0, 1));  // An earlier coordinator requested it.
  fleet_.SetPositions(10);
  EXPECT_EQ(driver_.WhyAbandon(/*all_passed=*/false, now_), "");
  now_ += 6 * options_.server.lease_timeout;
  EXPECT_EQ(driver_.WhyAbandon(/*all_passed=*/true, now_), "") << "the wait begins now";
  now_ += 6 * options_.server.lease_timeout;
  EXPECT_NE(driver_.WhyAbandon(/*all_passed=*/true, now_), "");
}

TEST_F(CheckpointDriverTest, ARollbackDropsTheCheckpointInProgress) {
  driver_.Request(1, protocol::JobPhase::kRunning, &effects_);
  driver_.Named(10);
  effects_.clear();
  driver_.RollBack(2, "a worker was lost", &effects_);
  EXPECT_EQ(driver_.tracker().under_way(), 0u);
  EXPECT_EQ(EffectsOf<DropCheckpoint>().size(), 1u);
  EXPECT_EQ(EffectsOf<AnswerCheckpoint>().at(0).step.status().message(), "a worker was lost");
}

}  // namespace
}  // namespace sluice::server
