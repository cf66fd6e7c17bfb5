// Tests the fields of the run record and of manifests that scenarios do not print.
#include <gtest/gtest.h>

#include <utility>
#include <variant>

#include "tests/server/coordinator/repair_fixture.h"

namespace sluice::server {
namespace {

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

}  // namespace
}  // namespace sluice::server
