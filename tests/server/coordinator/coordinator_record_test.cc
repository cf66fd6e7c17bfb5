// SPDX-License-Identifier: Apache-2.0
// Tests what the coordinator records about its run before other processes learn it. The scenarios
// do not show all fields of records and manifests, nor the effects of two calls in one batch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/server/coordinator/checkpoint_fixture.h"

namespace sluice::server {
namespace {

using ::testing::ElementsAre;

CoordinatorOptions WithRepair(CoordinatorOptions options) {
  options = WithCheckpoints(std::move(options));
  options.checkpoint.replay_limit = 1 << 20;
  return options;
}

// A job of two ranks and two shards, whose losses are repaired in the current term.
class RepairTest : public RollbackTest {
 protected:
  RepairTest() : RollbackTest(WithRepair(ExampleOptions())) {}
  explicit RepairTest(CoordinatorOptions options) : RollbackTest(std::move(options)) {}

  protocol::WorkerHeartbeat BeatOfHolder(JoinToken token, uint64_t step = 0,
                                         uint64_t replay_from = 1) {
    const protocol::JoinGrant& grant = *answers_.at(token);
    protocol::WorkerHeartbeat beat;
    beat.sender = {.job_uid = grant.job_uid,
                   .term = grant.term,
                   .rank = grant.rank,
                   .incarnation = grant.incarnation,
                   .generation = grant.generation};
    beat.progress.step = step;
    beat.replay_from = replay_from;
    return beat;
  }
  void Health(ControlStreamId stream, uint64_t closed, uint64_t results_from = 1) {
    coordinator_.ShardHealth(stream,
                             {.highest_closed_step = closed,
                              .highest_open_step = closed + 1,
                              .results_from = results_from},
                             now_);
  }
  // Advances the time. Each second, these holders and shards report.
  void PassWith(const std::vector<JoinToken>& holders, const std::vector<ControlStreamId>& shards,
                absl::Duration time, uint64_t step = 0) {
    for (absl::Duration done; done < time; done += absl::Seconds(1)) {
      Tick(absl::Seconds(1));
      for (const JoinToken holder : holders) {
        if (coordinator_.phase() == protocol::JobPhase::kRunning) {
          EXPECT_TRUE(Beat(BeatOfHolder(holder, step)).ok());
        }
      }
      for (const ControlStreamId shard : shards) Health(shard, step);
    }
  }
};

// Returns the coordinator of a run with this record.
Coordinator CoordinatorAfter(const protocol::RunRecord& record) {
  CoordinatorOptions options = WithRepair({.job_name = "demo",
                                           .job_hash = 9,
                                           .software_version = "1",
                                           .world_size = 2,
                                           .shards = 2,
                                           .job_uid = 1});
  options.run = record;
  return {std::move(options), absl::UnixEpoch()};
}

TEST_F(RepairTest, EachProcessGetsAHigherNumberThanAllBeforeAlsoOfEarlierCoordinators) {
  StartJob();
  uint64_t last = 0;
  for (int i = 0; i < 3; ++i) {
    const uint64_t number = coordinator_.NumberShard();
    EXPECT_GT(number, last);
    last = number;
  }
  protocol::RunRecord record = records_.back();
  for (uint64_t restart = 2; restart <= 4; ++restart) {
    Coordinator next = CoordinatorAfter(record);
    EXPECT_EQ(next.incarnation(), restart);
    Coordinator::Effects effects;
    next.Begin(&effects);
    ASSERT_TRUE(std::holds_alternative<PersistRun>(effects.front()))
        << "the number must be durable before any process learns it";
    const protocol::RunRecord written = std::get<PersistRun>(effects.front()).record;
    record.coordinator_incarnation = restart;
    EXPECT_EQ(written, record) << "no other field of the record may change";
    const uint64_t number = next.NumberShard();
    EXPECT_GT(number, last);
    last = number;
  }
}

TEST_F(RepairTest, AFinishedRunIsCountedToo) {
  StartJob();
  protocol::RunRecord record = records_.back();
  record.finished = true;
  Coordinator next = CoordinatorAfter(record);
  Coordinator::Effects effects;
  next.Begin(&effects);
  record.coordinator_incarnation = 2;
  EXPECT_EQ(std::get<PersistRun>(effects.front()).record, record);
}

TEST_F(RepairTest, TheRecordIdentifiesTheRunAndItsMembers) {
  StartJob();
  ASSERT_EQ(records_.size(), 2u);
  EXPECT_EQ(records_[0],
            (protocol::RunRecord{.job_name = "demo", .job_uid = 77, .coordinator_incarnation = 1}));
  const protocol::RunRecord& record = records_[1];
  EXPECT_EQ(record.job_name, "demo");
  EXPECT_EQ(record.job_uid, 77u);
  EXPECT_EQ(record.table, JoinOf(0).table);
  ASSERT_EQ(record.members.size(), 2u);
  EXPECT_EQ(record.members[1].nonce, 1001u);
  EXPECT_EQ(record.members[1].incarnation, answers_.at(2)->incarnation);
  EXPECT_EQ(record.members[1].host, "a");
  EXPECT_EQ(record.members[1].pid, 121u);
  EXPECT_EQ(record.members[1].parameters_sha256, "same");
}

TEST_F(RepairTest, AManifestIdentifiesTheRunAndItsModel) {
  StartJob();
  GiveAllParts(100);
  ASSERT_EQ(manifests_.size(), 1u);
  EXPECT_EQ(manifests_[0].job_uid, 77u);
  EXPECT_EQ(manifests_[0].table_hash, protocol::HashTensorTable(JoinOf(0).table));
}

// Returns the record that a restarted coordinator emits.
protocol::RunRecord RecordAfterARestart(CoordinatorOptions options, protocol::RunRecord record) {
  options.job_uid = 1234;  // The run keeps the uid of its record.
  options.run = std::move(record);
  Coordinator coordinator(options, absl::UnixEpoch());
  CoordinatorEffects effects;
  coordinator.Begin(&effects);
  const auto* const persist = std::get_if<PersistRun>(&effects.at(0));
  return persist == nullptr ? protocol::RunRecord() : persist->record;
}

TEST_F(RepairTest, ARestartInTheTermChangesOnlyTheCoordinatorsNumber) {
  StartJob();
  protocol::RunRecord record = records_.back();
  record.coordinator_incarnation = 6;
  const protocol::RunRecord next = RecordAfterARestart(WithRepair(ExampleOptions()), record);
  record.coordinator_incarnation = 7;
  EXPECT_EQ(next, record);
}

TEST_F(RollbackTest, ARestartInTheNextTermKeepsOnlyTheRun) {
  StartJob();
  protocol::RunRecord record = records_.back();
  record.term = 3;
  EXPECT_EQ(RecordAfterARestart(WithCheckpoints(ExampleOptions()), record),
            (protocol::RunRecord{
                .job_name = "demo", .job_uid = 77, .term = 4, .coordinator_incarnation = 2}));
}

// The job begins with two ranks of at most four. The minimum is one rank.
class ElasticRecordTest : public RepairTest {
 protected:
  ElasticRecordTest() : RepairTest(Elastic()) {}

  static CoordinatorOptions Elastic() {
    CoordinatorOptions options = WithRepair(ExampleOptions());
    options.world_size = 4;
    options.elastic = {.start = 2, .least = 1};
    return options;
  }
};

// A newcomer joins and a member is lost in one batch of effects. Each generation must be recorded
// before it is announced, because a coordinator may only forget a generation that was not
// announced.
TEST_F(ElasticRecordTest, EachOfTwoGenerationsInOneBatchIsRecordedBeforeItIsAnnounced) {
  StartJob();
  CompleteCheckpoint(100);
  PassWith({1}, {11, 12}, absl::Seconds(9), 140);
  Coordinator::Effects effects;
  coordinator_.Join(3, JoinOf(2), now_, &effects);
  now_ += absl::Seconds(1);
  coordinator_.Tick(now_, &effects);
  uint32_t on_disk = 0;
  std::vector<uint32_t> told;  // The generations that both shards were told.
  for (const CoordinatorEffect& effect : effects) {
    if (const auto* record = std::get_if<PersistRun>(&effect)) on_disk = record->record.generation;
    const auto* command = std::get_if<CommandShard>(&effect);
    if (command == nullptr || !std::holds_alternative<protocol::SetMembers>(command->command))
      continue;
    told.push_back(std::get<protocol::SetMembers>(command->command).generation);
    EXPECT_EQ(told.back(), on_disk);
  }
  EXPECT_THAT(told, ElementsAre(2, 2, 3, 3));
}

}  // namespace
}  // namespace sluice::server
