// SPDX-License-Identifier: Apache-2.0
// Tests two concurrent processes of a shard, and the end of a job with rare heartbeats.
#include <gmock/gmock.h>

#include "absl/strings/ascii.h"
#include "tests/rpc/survival_session.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

class InstancesTest : public SurvivalTest {};

// The older process stays alive and answers at its own address. Workers must leave it and must not
// return to it.
TEST_P(InstancesTest, WorkersGoToTheProcessThatTookThePlaceOfAnother) {
  const Parameters expected = Undisturbed();
  EXPECT_EQ(Run([this] {
              servers_.StartBeside(1);
              std::optional<absl::Status> outcome;
              AwaitThat([&] { return (outcome = servers_.before(0).Outcome()).has_value(); });
              EXPECT_TRUE(absl::IsAborted(*outcome)) << *outcome;
              EXPECT_THAT(std::string(outcome->message()), HasSubstr("which was started later"));
            }),
            expected);
  ExpectRepaired();
}

TEST_P(InstancesTest, TheirPartsOfCheckpointsGoThereToo) {
  const Parameters expected = Undisturbed();
  job_.checkpoint.store = protocol::CheckpointStore::kShards;
  EXPECT_EQ(Run([this] { servers_.StartBeside(1); }), expected);
  ExpectRepaired();
}

TEST_P(InstancesTest, AllHearOfTheEndHoweverFarApartHeartbeatsAre) {
  job_.shards = 1;
  job_.server.heartbeat_interval = absl::Seconds(5);
  job_.server.lease_timeout = absl::Seconds(20);
  job_.server.rejoin_timeout = absl::Seconds(1);
  job_.checkpoint.dir = absl::StrCat(servers_.folder(), "/checkpoints");
  job_.checkpoint.interval = 1000;
  servers_.StartAll(job_);
  std::vector<std::thread> workers;
  for (uint32_t rank = 0; rank < job_.workers; ++rank) {
    workers.emplace_back([this, rank] { Train(rank); });
  }
  std::optional<absl::Status> outcome;
  AwaitThat([&] { return (outcome = servers_.Outcome(0)).has_value(); });
  EXPECT_TRUE(outcome->ok()) << *outcome;
  servers_.Stop(0);
  for (std::thread& worker : workers) worker.join();
  servers_.StopAll();
}

INSTANTIATE_TEST_SUITE_P(Codecs, InstancesTest, ::testing::Values("topk:5%+int4/ef"),
                         [](const auto& /*test*/) { return std::string("topk"); });

}  // namespace
}  // namespace sluice
