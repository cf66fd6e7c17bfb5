// SPDX-License-Identifier: Apache-2.0
#include "worker/rpc/restore_source.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "protocol/checkpoint/snapshot_format.h"

namespace sluice::worker {
namespace {

constexpr uint64_t kUid = 5;
constexpr uint64_t kRestoredStep = 8;

// The states of the ranks of an elastic job; rank 0 wrote none.
class ElasticSource {
 public:
  explicit ElasticSource(uint32_t ranks) {
    source.step = kRestoredStep;
    source.world_size = ranks;
    for (uint32_t rank = 1; rank < ranks; ++rank) {
      protocol::CheckpointPart part;
      part.step = kRestoredStep;
      part.name = protocol::WorkerPartName(rank, part.term);
      protocol::WorkerSnapshot snapshot;
      snapshot.job_uid = kUid;
      snapshot.step = kRestoredStep;
      snapshot.rank = rank;
      snapshot.uplink.chunks.resize(1);
      snapshot.trainer = "trained";
      states_[part.name] = protocol::FormatWorkerSnapshot(snapshot);
      source.states.push_back(part);
    }
    source.read = [this](const protocol::CheckpointPart& part) {
      return absl::StatusOr<std::string>(states_.at(part.name));
    };
  }

  absl::StatusOr<protocol::WorkerSnapshot> Read(uint32_t rank) const {
    protocol::Sender sender;
    sender.job_uid = kUid;
    sender.rank = rank;
    return ReadElasticSnapshot(source, sender, /*late_joiner=*/false);
  }

  SnapshotSource source;

 private:
  std::map<std::string, std::string> states_;
};

TEST(RestoreSource, ARankOfAnElasticJobReadsItsOwnState) {
  const absl::StatusOr<protocol::WorkerSnapshot> own = ElasticSource(3).Read(2);
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ(own->rank, 2u);
  EXPECT_EQ(own->uplink.chunks.size(), 1u);
}

// A rank has no state if it was absent, or if the job had fewer ranks.
TEST(RestoreSource, ARankWithoutAStateReadsThatOfAnother) {
  for (const uint32_t rank : {0u, 3u, 5u}) {
    const absl::StatusOr<protocol::WorkerSnapshot> other = ElasticSource(3).Read(rank);
    ASSERT_TRUE(other.ok()) << other.status();
    EXPECT_EQ(other->rank, rank);
    EXPECT_EQ(other->trainer, "trained");
    EXPECT_TRUE(other->uplink.chunks.empty());
  }
}

}  // namespace
}  // namespace sluice::worker
