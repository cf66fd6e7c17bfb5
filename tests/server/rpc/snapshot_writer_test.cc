// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/snapshot_writer.h"

#include <gmock/gmock.h>

#include "protocol/checkpoint/snapshot_format.h"
#include "tests/rpc/host_fixture.h"

namespace sluice::server {
namespace {

using ::testing::HasSubstr;

class SnapshotWriterTest : public HostFixture {
 protected:
  static std::shared_ptr<const protocol::ShardSnapshot> SnapshotOf(uint64_t step) {
    auto snapshot = std::make_shared<protocol::ShardSnapshot>();
    snapshot->job_uid = kHostJob;
    snapshot->term = 2;
    snapshot->step = step;
    snapshot->shard = 1;
    snapshot->versions = {step};
    return snapshot;
  }
};

TEST_F(SnapshotWriterTest, HoldsOneAtATimeAndSaysSoOfTheNext) {
  bool go_on = false;
  SnapshotWriter writer(
      job_.checkpoint.dir, [] { return absl::OkStatus(); },
      [&](const protocol::CheckpointPart& part) {
        MutexLock lock(&mutex_);
        parts_.push_back(part);
        told_.SignalAll();
        // Simulates a slow connection to the coordinator: the first write does not end until the
        // coordinator has received the report.
        while (part.step == 1 && !go_on) told_.Wait(&mutex_);
      },
      &clock_, Logger("test"));
  writer.Write(SnapshotOf(1));
  const protocol::CheckpointPart first = AwaitPart();
  EXPECT_EQ(first.error, "");
  EXPECT_EQ(first.name, "shard-1-term-2.state");
  writer.Write(SnapshotOf(2));
  const protocol::CheckpointPart second = AwaitPart();
  EXPECT_EQ(second.step, 2u);
  EXPECT_EQ(second.term, 2u);
  EXPECT_EQ(second.name, "shard-1-term-2.state");
  EXPECT_THAT(second.error, HasSubstr("is still being written"));
  {
    MutexLock lock(&mutex_);
    go_on = true;
    told_.SignalAll();
  }
  protocol::CheckpointPart third;
  for (uint64_t step = 3; third.name.empty() || !third.error.empty(); ++step) {
    writer.Write(SnapshotOf(step));
    third = AwaitPart();
  }
  Complete(third);
  const auto bytes = protocol::ReadPart(
      job_.checkpoint.dir, *protocol::ReadManifest(job_.checkpoint.dir, third.step), third.name);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(*protocol::ParseShardSnapshot(*bytes), *SnapshotOf(third.step));
}

}  // namespace
}  // namespace sluice::server
