#include "server/rpc/part_reader.h"

#include <gmock/gmock.h>

#include "protocol/checkpoint/snapshot_format.h"
#include "tests/rpc/host_fixture.h"

namespace sluice::server {
namespace {

using ::testing::HasSubstr;

// Reads parts that the tests write themselves. The clock stands still unless a test advances it.
class PartReaderTest : public HostFixture {
 protected:
  static constexpr absl::Duration kPatience = absl::Seconds(60);

  PartReader Reader(uint32_t shard = 0) {
    return PartReader(job_.checkpoint, shard, kPatience, &simulated_);
  }
  static std::shared_ptr<const protocol::ShardSnapshot> Snapshot() {
    auto snapshot = std::make_shared<protocol::ShardSnapshot>();
    snapshot->job_uid = kHostJob;
    snapshot->term = 2;
    snapshot->step = 3;
    snapshot->versions = {3};
    return snapshot;
  }
  // Writes the part of shard 0 after step 3, which belongs to term 2.
  protocol::CheckpointPart WriteOwnPart() {
    const auto part = protocol::WritePart(protocol::PartsFolder(job_.checkpoint, 0), 2, 3,
                                          protocol::ShardPartName(0, 2),
                                          protocol::FormatShardSnapshot(*Snapshot()));
    Check(part.ok(), part.status().message());
    return *part;
  }

  SimulatedClock simulated_;
};

TEST_F(PartReaderTest, ReadsThePartOfTheTermThatWroteIt) {
  Complete(WriteOwnPart());
  PartReader reader = Reader();
  const auto read = reader.Read(StartOf(/*term=*/7, 3));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(**read, *Snapshot());
  EXPECT_EQ(reader.NowAtDisk().what, "");
}

TEST_F(PartReaderTest, APartThatCannotBeReadNowIsAwaitedAndThenLost) {
  PartReader reader = Reader();
  EXPECT_TRUE(absl::IsUnavailable(reader.Read(StartOf(1, 3)).status()));
  simulated_.Advance(kPatience - absl::Seconds(1));
  EXPECT_TRUE(absl::IsUnavailable(reader.Read(StartOf(1, 3)).status()));
  const protocol::DiskWait wait = reader.NowAtDisk();
  EXPECT_THAT(wait.what, HasSubstr("checkpoint after step 3"));
  EXPECT_THAT(wait.trouble, HasSubstr("manifest.json"));
  EXPECT_EQ(wait.lasts, kPatience - absl::Seconds(1));
  simulated_.Advance(absl::Seconds(1));
  EXPECT_TRUE(absl::IsDataLoss(reader.Read(StartOf(1, 3)).status()));
  EXPECT_EQ(reader.NowAtDisk().what, "") << "nothing is read again";
}

TEST_F(PartReaderTest, EachTermHasItsOwnPatience) {
  PartReader reader = Reader();
  EXPECT_TRUE(absl::IsUnavailable(reader.Read(StartOf(1, 3)).status()));
  simulated_.Advance(kPatience);
  EXPECT_TRUE(absl::IsUnavailable(reader.Read(StartOf(2, 3)).status()));
}

TEST_F(PartReaderTest, ADamagedPartIsLostAtOnce) {
  const protocol::CheckpointPart part = WriteOwnPart();
  Complete(part);
  Damage(part);
  const absl::Status read = Reader().Read(StartOf(1, 3)).status();
  EXPECT_TRUE(absl::IsDataLoss(read)) << read;
  EXPECT_THAT(std::string(read.message()), HasSubstr(PathOf(part)));
}

TEST_F(PartReaderTest, AJobFileWithoutAFolderIsNotTakenForDamage) {
  job_.checkpoint.dir.clear();
  EXPECT_TRUE(absl::IsFailedPrecondition(Reader().Read(StartOf(1, 3)).status()));
}

TEST_F(PartReaderTest, WithTheStoreShardsTheCoordinatorNamesThePart) {
  job_.checkpoint.store = protocol::CheckpointStore::kShards;
  protocol::StartShard start = StartOf(1, 3);
  EXPECT_TRUE(absl::IsDataLoss(Reader().Read(start).status())) << "the start names no part";
  start.restore_part = WriteOwnPart();
  const auto read = Reader().Read(start);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(**read, *Snapshot());
  start.restore_part.error = "unreadable";
  EXPECT_TRUE(absl::IsDataLoss(Reader().Read(start).status()));
}

}  // namespace
}  // namespace sluice::server
