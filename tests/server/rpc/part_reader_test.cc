// SPDX-License-Identifier: Apache-2.0
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

  PartReaderTest() { job_.server.rejoin_timeout = kPatience; }

  PartReader Reader(uint32_t shard = 0, PartReader::Fetch fetch = nullptr) {
    return PartReader(&job_, shard, std::move(fetch), &simulated_);
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

// Two shards wrote the checkpoint, and each had one of two equal tensors.
class OtherShardsReaderTest : public PartReaderTest {
 protected:
  static protocol::StartShard StartOfTwoTensors() {
    protocol::StartShard start = StartOf(7, 3);
    start.table.push_back(
        {.name = "v", .shape = {8}, .strides = {}, .dtype = protocol::DType::kFloat32});
    return start;
  }
  protocol::CheckpointPart WritePartOf(uint32_t shard) {
    protocol::ShardSnapshot snapshot = *Snapshot();
    snapshot.shard = shard;
    snapshot.aggregators.resize(1);
    snapshot.downlink.chunks.resize(1);
    snapshot.downlink.chunks[0].config = {.count = 8, .spec = {}, .id = shard, .tensor = shard};
    snapshot.downlink.chunks[0].state["residual"] =
        std::vector<float>(8, static_cast<float>(shard + 1));
    auto part = protocol::WritePart(protocol::PartsFolder(job_.checkpoint, shard), 2, 3,
                                    protocol::ShardPartName(shard, 2),
                                    protocol::FormatShardSnapshot(snapshot));
    Check(part.ok(), part.status().message());
    if (job_.checkpoint.at_shards()) part->server = shard;
    return *part;
  }
  static void ExpectBoth(
      const absl::StatusOr<std::shared_ptr<const protocol::ShardSnapshot>>& read) {
    ASSERT_TRUE(read.ok()) << read.status();
    ASSERT_EQ((*read)->downlink.chunks.size(), 2u);
    // Chunks are sent from the last tensor to the first.
    EXPECT_EQ((*read)->downlink.chunks[0].state.at("residual")[0], 2);
    EXPECT_EQ((*read)->downlink.chunks[1].state.at("residual")[0], 1);
  }
};

TEST_F(OtherShardsReaderTest, OneShardReadsTheStatesOfTwo) {
  const std::vector<protocol::CheckpointPart> parts = {WritePartOf(0), WritePartOf(1)};
  ASSERT_TRUE(protocol::WriteManifest(job_.checkpoint.dir, {.job_name = "test",
                                                            .job_uid = kHostJob,
                                                            .term = 2,
                                                            .step = 3,
                                                            .world_size = 1,
                                                            .shards = 2,
                                                            .layout = {},
                                                            .software_version = "1",
                                                            .parts = parts})
                  .ok());
  ExpectBoth(Reader().Read(StartOfTwoTensors()));
  Damage(parts[1]);
  const absl::Status damaged = Reader().Read(StartOfTwoTensors()).status();
  EXPECT_TRUE(absl::IsDataLoss(damaged)) << damaged;
  EXPECT_THAT(std::string(damaged.message()), HasSubstr(PathOf(parts[1])));
}

TEST_F(OtherShardsReaderTest, AServerThatIsLeftReadsTheFolderOfAFormerOne) {
  job_.checkpoint.store = protocol::CheckpointStore::kShards;
  protocol::StartShard start = StartOfTwoTensors();
  for (const uint32_t shard : {0u, 1u}) start.former_states.push_back({WritePartOf(shard), "a:1"});
  ExpectBoth(Reader().Read(start));
  std::filesystem::remove_all(protocol::PartsFolder(job_.checkpoint, 1));
  const absl::Status absent = Reader().Read(start).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(absent)) << absent;
  EXPECT_THAT(std::string(absent.message()),
              HasSubstr("copy checkpoint.dir/shard-1 of that server to " +
                        protocol::PartsFolder(job_.checkpoint, 1)));
  start.former_states[1].part.error = "unreadable";
  EXPECT_TRUE(absl::IsDataLoss(Reader().Read(start).status()));
}

TEST_F(OtherShardsReaderTest, PartsOfOtherServersAreFetched) {
  job_.checkpoint.store = protocol::CheckpointStore::kShards;
  protocol::StartShard start = StartOfTwoTensors();
  for (const uint32_t shard : {0u, 1u}) start.former_states.push_back({WritePartOf(shard), "a:1"});
  job_.shards = 3;
  std::vector<std::string> fetched;
  absl::Status fails;
  const auto fetch = [&](const protocol::FormerState& former,
                         uint64_t job_uid) -> absl::StatusOr<std::string> {
    EXPECT_EQ(job_uid, kHostJob);
    fetched.push_back(former.part.name + " at " + former.address);
    if (!fails.ok()) return fails;
    return protocol::ReadPart(protocol::PartsFolder(job_.checkpoint, former.part.server),
                              former.part);
  };
  // The third shard has no chunk, but it needs the plans of shard 0.
  ASSERT_TRUE(Reader(2, fetch).Read(start).ok());
  EXPECT_THAT(fetched, ::testing::ElementsAre("shard-0-term-2.state at a:1"));
  ASSERT_TRUE(Reader(1, fetch).Read(start).ok());
  fails = absl::UnavailableError("the server does not answer");
  PartReader reader = Reader(1, fetch);
  EXPECT_TRUE(absl::IsUnavailable(reader.Read(start).status()));
  simulated_.Advance(kPatience);
  EXPECT_TRUE(absl::IsDataLoss(reader.Read(start).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(Reader(1).Read(start).status()));
}

}  // namespace
}  // namespace sluice::server
