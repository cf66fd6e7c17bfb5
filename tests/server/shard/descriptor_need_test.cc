// SPDX-License-Identifier: Apache-2.0
#include "server/shard/descriptor_need.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

job::JobSpec Job(uint32_t workers, uint32_t shards) {
  job::JobSpec job;
  job.workers = workers;
  job.max_workers = workers;
  job.shards = shards;
  return job;
}

TEST(DescriptorNeedTest, ItFollowsWorkersShardsAndCheckpoints) {
  job::JobSpec elastic = Job(4, 2);
  elastic.exchange.membership = job::Membership::kElastic;
  elastic.max_workers = 100;
  job::JobSpec at_path = Job(4, 2);
  at_path.checkpoint.dir = "/c";
  job::JobSpec at_shards = at_path;
  at_shards.checkpoint.store = protocol::CheckpointStore::kShards;
  const struct {
    const char* name;
    job::JobSpec job;
    uint32_t shard;
    uint64_t http;
    uint64_t connections;
    uint64_t total;
  } kCases[] = {
      {"shard 0 has three connections of each worker", Job(4, 2), 0, 0, 12 + 1 + 16, 29 + 168},
      {"other shards have one", Job(4, 2), 1, 0, 4 + 2 + 16, 22 + 168},
      {"the coordinator has one of each shard", Job(4, 9), 0, 0, 12 + 8 + 16, 36 + 168},
      {"HTTP ports", Job(4, 2), 0, 128, 29, 29 + 128 + 168},
      {"as many workers as there may be", elastic, 0, 0, 300 + 1 + 16, 317 + 168},
      {"a folder that all see takes no connection", at_path, 0, 0, 29, 29 + 168},
      {"parts travel over one more", at_shards, 0, 0, 16 + 1 + 16, 33 + 184},
      {"parts travel to each shard", at_shards, 1, 0, 8 + 2 + 16, 26 + 184},
      {"the largest job", Job(1024, 64), 0, 128, 3072 + 63 + 16, 3151 + 296},
  };
  for (const auto& one : kCases) {
    const DescriptorNeed need = NeedOf(one.job, one.shard, one.http);
    EXPECT_EQ(need.connections(), one.connections) << one.name;
    EXPECT_EQ(need.total(), one.total) << one.name;
  }
}

TEST(DescriptorNeedTest, AJobThatDoesNotFitIsRefusedWithTheNumbers) {
  const DescriptorNeed need = NeedOf(Job(338, 2), 0, 128);
  EXPECT_TRUE(CheckDescriptors(need, need.total()).ok());
  const absl::Status refused = CheckDescriptors(need, 1024);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(),
              AllOf(HasSubstr("shard 0"), HasSubstr("needs 1327 file descriptors")));
  EXPECT_THAT(refused.message(), HasSubstr("workers: 338 with 3 connections each"));
  EXPECT_THAT(refused.message(),
              AllOf(HasSubstr("may have only 1024"), HasSubstr("raise the hard limit")));
}

TEST(DescriptorNeedTest, ServersOfOneProcessShareTheRest) {
  const std::vector<DescriptorNeed> needs = {NeedOf(Job(4, 2), 0, 0), NeedOf(Job(4, 2), 1, 0)};
  EXPECT_THAT(*ShareDescriptors(needs, 5, 197 + 190 + 5), ElementsAre(197, 190));
  EXPECT_THAT(*ShareDescriptors(needs, 5, 197 + 190 + 5 + 21), ElementsAre(207, 200));
  const absl::Status refused = ShareDescriptors(needs, 5, 391).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("the 2 servers"), HasSubstr("need 392")));
}

}  // namespace
}  // namespace sluice::server
