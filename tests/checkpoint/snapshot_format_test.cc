#include "job/checkpoint/snapshot_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/snapshot_samples.h"

namespace sluice {
namespace {

TEST(SnapshotFormat, ReadsWhatItWrote) {
  const ShardSnapshot shard = SampleShard();
  EXPECT_FALSE(shard.downlink.groups.empty());
  const absl::StatusOr<ShardSnapshot> shard_again = ParseShardSnapshot(FormatShardSnapshot(shard));
  ASSERT_TRUE(shard_again.ok()) << shard_again.status();
  EXPECT_EQ(*shard_again, shard);
  const WorkerSnapshot worker = SampleWorker();
  const absl::StatusOr<WorkerSnapshot> worker_again =
      ParseWorkerSnapshot(FormatWorkerSnapshot(worker));
  ASSERT_TRUE(worker_again.ok()) << worker_again.status();
  EXPECT_EQ(*worker_again, worker);
}

TEST(SnapshotFormat, NothingIsSomethingToo) {
  EXPECT_EQ(ParseShardSnapshot(FormatShardSnapshot({})).value(), ShardSnapshot());
  EXPECT_EQ(ParseWorkerSnapshot(FormatWorkerSnapshot({})).value(), WorkerSnapshot());
}

}  // namespace
}  // namespace sluice
