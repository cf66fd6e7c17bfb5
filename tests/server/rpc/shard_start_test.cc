// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/shard_start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/rpc/answer_streams.h"

namespace sluice::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ShardStartTest : public ::testing::Test {
 protected:
  ShardStartTest() {
    job_.name = "test";
    job_.workers = 2;
    job_.shards = 2;
    job_.exchange.compression.min_elements = 0;
    start_.table = {{.name = "w", .shape = {8}, .strides = {}, .dtype = protocol::DType::kFloat32}};
    start_.term = 4;
    start_.first_step = 9;
    start_.incarnations = {100, 101};
    start_.window_bytes = 4 << 20;
    start_.restore_world_size = 2;
  }
  ShardOptions OptionsOf(uint32_t shard) const {
    return ShardOptionsFor(job_, shard, start_, LayoutFor(job_, start_).value(), nullptr);
  }

  job::JobSpec job_;
  protocol::StartShard start_;
};

TEST_F(ShardStartTest, RefusesAnotherNumberOfRanks) {
  for (const size_t ranks : {1, 3}) {
    start_.incarnations.assign(ranks, 100);
    const absl::Status refused = LayoutFor(job_, start_).status();
    EXPECT_TRUE(absl::IsInvalidArgument(refused));
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr(absl::StrCat("names ", ranks, " ranks, the job file 2")));
  }
}

TEST_F(ShardStartTest, AShardWithoutChunksTakesPart) {
  const ShardOptions options = OptionsOf(1);
  ASSERT_EQ(options.layout.chunks.size(), 1u) << "shard 0 has the only chunk";
  const absl::StatusOr<std::unique_ptr<Shard>> shard = Shard::Create(options);
  ASSERT_TRUE(shard.ok()) << shard.status();
  EXPECT_EQ((*shard)->bundles(), 1u);
}

TEST_F(ShardStartTest, TheCoreGetsTheTermAndTheJob) {
  job_.exchange.straggler_timeout = absl::Milliseconds(7);
  job_.exchange.quorum = 1;
  const ShardOptions options = OptionsOf(0);
  EXPECT_EQ(options.term, 4u);
  EXPECT_EQ(options.first_step, 9u);
  EXPECT_EQ(options.incarnations, start_.incarnations);
  EXPECT_EQ(options.exchange.straggler_timeout, absl::Milliseconds(7));
  EXPECT_EQ(options.exchange.quorum, 1u);
  EXPECT_EQ(options.restored_ranks, 2u);
  EXPECT_EQ(options.unanswered_bytes, start_.window_bytes / 4);
}

TEST_F(ShardStartTest, OnlyAJobWithCheckpointsKeepsResults) {
  job_.checkpoint.replay_limit = 1000;
  EXPECT_EQ(OptionsOf(0).replay_bytes, 0u);
  job_.checkpoint.dir = "somewhere";
  EXPECT_EQ(OptionsOf(0).replay_bytes, 1000u);
  EXPECT_EQ(ReplayWarning(job_, {.log_limit = 1000}), "");
  EXPECT_THAT(ReplayWarning(job_, {.log_limit = 999}),
              HasSubstr("keeps 999 bytes of results for restarted workers, not "
                        "checkpoint.replay_limit (1000)"));
}

// The shard has one bundle with one chunk of 8 elements.
TEST_F(ShardStartTest, TheResultsOfTwoStepsMayWaitNextToAWindow) {
  constexpr uint64_t kResults = 2 * (512 + 2 * 32 + 64 + 8 * 8);
  EXPECT_EQ(AnswerBytesMax(OptionsOf(0)), (4 << 20) + kResults);
  start_.window_bytes = 1;
  EXPECT_EQ(AnswerBytesMax(OptionsOf(0)), AnswerStreams::kBytesMin + kResults);
}

TEST_F(ShardStartTest, TheLogNamesTheCheckpointThatWasRead) {
  const auto line = [this] {
    return DescribeStart(job_, start_, {.elements = 8}, 1, absl::Microseconds(1500));
  };
  EXPECT_EQ(line(), "job test: 8 elements in 1 bundles, 2 workers");
  start_.restore_step = 8;
  EXPECT_THAT(line(), HasSubstr("from the checkpoint after step 8, term 4, read in 1ms"));
  EXPECT_THAT(line(), Not(HasSubstr("replays")));
  start_.replay = true;
  EXPECT_THAT(line(), HasSubstr("replays from step 9"));
}

}  // namespace
}  // namespace sluice::server
