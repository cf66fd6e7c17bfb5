// Tests how the coordinator decides which process of a shard or of a coordinator is newer, and how
// workers find the newer one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/coordinator/repair_fixture.h"

namespace sluice::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Returns the coordinator of a run with this record.
Coordinator CoordinatorAfter(const protocol::RunRecord& record) {
  CoordinatorOptions options = WithRepair({.job_name = "demo",
                                           .job_hash = 9,
                                           .software_version = "1",
                                           .world_size = 2,
                                           .shards = 2,
                                           .layout = {},
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

TEST_F(RepairTest, ARunOfAVersionThatDidNotCountCoordinatorsIsCountedFromOne) {
  StartJob();
  protocol::RunRecord record = records_.back();
  record.coordinator_incarnation = 0;
  EXPECT_EQ(CoordinatorAfter(record).incarnation(), 1u);
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

TEST_F(RepairTest, TheProcessThatWasReplacedIsRefusedAndTheOtherStays) {
  StartJob();
  Attach(13, ArrivalOf(1, /*incarnation=*/60));
  Attach(14, ArrivalOf(1, /*incarnation=*/50));
  EXPECT_EQ(refusals_.at(14).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refusals_.at(14).message()), HasSubstr("which was started later"));
  EXPECT_FALSE(refusals_.contains(13));
  Attach(15, ArrivalOf(1, /*incarnation=*/60));
  EXPECT_TRUE(absl::IsAborted(refusals_.at(13))) << "the same process opened a new connection";
}

// A process of another run is still alive, and its number equals one of this run's. It must be
// refused, because the number alone does not identify a process.
TEST_F(RepairTest, ANumberAloneIsNotTheProcess) {
  StartJob();
  protocol::ShardArrival other = ArrivalOf(1);
  other.nonce = 5;
  Attach(13, other);
  EXPECT_EQ(refusals_.at(13).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(refusals_.contains(12));
}

TEST_F(RepairTest, WorkersAreToldWhereAProcessIsThatTookThePlaceOfAnother) {
  StartJob();
  protocol::WorkerHeartbeat beat = BeatOfHolder(1);
  beat.known_shards = {50, 50};
  EXPECT_THAT(Beat(beat)->shards, IsEmpty()) << "the worker learned the addresses from Join";
  protocol::ShardArrival moved = ArrivalOf(1, /*incarnation=*/60);
  moved.address = "elsewhere:1";
  Attach(13, moved);
  const std::vector<protocol::ShardPlace> places = Beat(beat)->shards;
  ASSERT_THAT(places, SizeIs(2));
  EXPECT_EQ(places[0].server_incarnation, 50u);
  EXPECT_EQ(places[1].shard, 1u);
  EXPECT_EQ(places[1].address, "elsewhere:1");
  EXPECT_EQ(places[1].server_incarnation, 60u);
  beat.known_shards = {50, 60};
  EXPECT_THAT(Beat(beat)->shards, IsEmpty());
}

// Two servers start at the same time, and the one with the lower number attaches last. Workers must
// learn of both.
TEST_F(RepairTest, AProcessBelowTheNewestOfAnotherShardIsAnnouncedToo) {
  StartJob();
  Attach(13, ArrivalOf(0, /*incarnation=*/61));
  protocol::WorkerHeartbeat beat = BeatOfHolder(1);
  beat.known_shards = {61, 50};
  EXPECT_THAT(Beat(beat)->shards, IsEmpty());
  protocol::ShardArrival moved = ArrivalOf(1, /*incarnation=*/60);
  moved.address = "elsewhere:1";
  Attach(14, moved);
  const std::vector<protocol::ShardPlace> places = Beat(beat)->shards;
  ASSERT_THAT(places, SizeIs(2));
  EXPECT_EQ(places[1].address, "elsewhere:1");
}

TEST_F(RepairTest, AWorkerThatNamesNoShardIsToldOfAll) {
  StartJob();
  EXPECT_THAT(Beat(BeatOfHolder(1))->shards, SizeIs(2));
}

}  // namespace
}  // namespace sluice::server
