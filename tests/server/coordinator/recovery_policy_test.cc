// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/recovery_policy.h"

#include <gtest/gtest.h>

namespace sluice::server {
namespace {

using Kind = RepairObstacle::Kind;

// A running job with a checkpoint after step 10. All processes keep the later steps.
RecoveryFacts RunningJob() {
  return {.has_checkpoints = true,
          .replay_limit = 1000,
          .phase = protocol::JobPhase::kRunning,
          .checkpoint_step = 10,
          .contributions_from = {11, 5},
          .results_from = {11, 1}};
}

TEST(RecoveryPolicyTest, KeptDataRepairsEveryLoss) {
  const RecoveryPolicy policy(RunningJob());
  EXPECT_EQ(policy.ToRepair(true, true), std::nullopt);
  EXPECT_EQ(policy.ToNextRepair(), std::nullopt);
  EXPECT_EQ(policy.Class(), RecoveryClass::kReplay);
}

TEST(RecoveryPolicyTest, AShardNeedsTheContributionsOfEveryWorker) {
  for (const uint64_t from : {uint64_t{0}, uint64_t{12}}) {
    RecoveryFacts facts = RunningJob();
    facts.contributions_from[1] = from;
    const RecoveryPolicy policy(facts);
    const RepairObstacle expected{Kind::kForgottenContributions, 1, from};
    EXPECT_EQ(policy.ToShardReplay(), expected);
    EXPECT_EQ(policy.ToReexecution(), std::nullopt);
    EXPECT_EQ(policy.ToRepair(true, false), expected);
    EXPECT_EQ(policy.ToRepair(false, true), std::nullopt);
    EXPECT_EQ(policy.Class(), RecoveryClass::kRollback);
  }
}

TEST(RecoveryPolicyTest, AWorkerNeedsTheResultsOfEveryShard) {
  RecoveryFacts facts = RunningJob();
  facts.results_from = {11, 12};
  EXPECT_EQ(RecoveryPolicy(facts).ToReexecution(),
            (RepairObstacle{Kind::kForgottenResults, 1, 12}));
  EXPECT_EQ(RecoveryPolicy(facts).ToShardReplay(), std::nullopt);
  facts.results_from[1] = std::nullopt;  // The shard will replay the steps.
  EXPECT_EQ(RecoveryPolicy(facts).ToReexecution(), std::nullopt);
}

TEST(RecoveryPolicyTest, InAnAsynchronousJobAWorkerNeedsNoResults) {
  RecoveryFacts facts = RunningJob();
  facts.results_from = {0, 0};
  EXPECT_TRUE(RecoveryPolicy(facts).ToReexecution().has_value());
  facts.needs_results = false;
  EXPECT_FALSE(RecoveryPolicy(facts).ToReexecution().has_value());
}

TEST(RecoveryPolicyTest, WithoutACheckpointTheParametersMustHaveAgreed) {
  RecoveryFacts facts = RunningJob();
  facts.parameters_agree = false;
  EXPECT_EQ(RecoveryPolicy(facts).Class(), RecoveryClass::kReplay) << "there is a checkpoint";
  facts.checkpoint_step = 0;
  facts.contributions_from = {1, 1};
  facts.results_from = {1, 1};
  const RecoveryPolicy policy(facts);
  EXPECT_EQ(policy.ToShardReplay()->kind, Kind::kDifferentParameters);
  EXPECT_EQ(policy.ToReexecution()->kind, Kind::kDifferentParameters);
  facts.parameters_agree = true;
  EXPECT_EQ(RecoveryPolicy(facts).Class(), RecoveryClass::kReplay);
}

TEST(RecoveryPolicyTest, InAnElasticJobOnlyWorkersCanBeReplaced) {
  RecoveryFacts facts = RunningJob();
  facts.is_elastic = true;
  EXPECT_EQ(RecoveryPolicy(facts).ToShardReplay()->kind, Kind::kUnknownParticipants);
  EXPECT_EQ(RecoveryPolicy(facts).ToReexecution(), std::nullopt);
}

TEST(RecoveryPolicyTest, SettingsAndPhaseDecideTheClassFirst) {
  RecoveryFacts facts = RunningJob();
  facts.phase = protocol::JobPhase::kRecovering;
  EXPECT_EQ(RecoveryPolicy(facts).Class(), RecoveryClass::kRollback);
  EXPECT_EQ(RecoveryPolicy(facts).Explain(*RecoveryPolicy(facts).ToNextRepair(), ""),
            "the job is recovering");
  facts.replay_limit = 0;
  facts.why_no_replay = "the mode is async";
  EXPECT_EQ(RecoveryPolicy(facts).Explain(*RecoveryPolicy(facts).ToNextRepair(), ""),
            "the mode is async");
  facts.has_checkpoints = false;
  EXPECT_EQ(RecoveryPolicy(facts).Class(), RecoveryClass::kNone);
}

TEST(RecoveryPolicyTest, AnExplanationNamesTheStepAndTheSetting) {
  const RecoveryPolicy policy(RunningJob());
  EXPECT_EQ(policy.Explain({Kind::kForgottenResults, 1, 12}, "shard 1"),
            "shard 1 keeps only results from step 12 on, but step 11 would be needed "
            "(checkpoint.replay_limit is 1000 bytes; raise it, or lower checkpoint.interval)");
  EXPECT_EQ(policy.Explain({Kind::kForgottenContributions, 1, 0}, "rank 1"),
            "rank 1 keeps no contributions, but step 11 would be needed "
            "(checkpoint.replay_limit is 1000 bytes; raise it, or lower checkpoint.interval)");
}

}  // namespace
}  // namespace sluice::server
