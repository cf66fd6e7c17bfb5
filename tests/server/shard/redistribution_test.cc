// SPDX-License-Identifier: Apache-2.0
// Tests that shards continue from a checkpoint of another number of shards.
#include "server/shard/redistribution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "tests/server/shard/small_job.h"

namespace sluice::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kSavedAt = 4;
constexpr uint64_t kEnd = 9;

// All shards of the small job and the state of its workers.
class ShardedJob {
 public:
  explicit ShardedJob(const compress::CodecSpec& spec, uint32_t shards,
                      std::optional<job::OptimizerSpec> rule = std::nullopt) {
    for (uint32_t shard = 0; shard < shards; ++shard) {
      ShardOptions options = SmallJobOptions(spec);
      options.shard = shard;
      options.layout =
          *protocol::BuildLayout(options.table, shards, options.exchange.compression.layout,
                                 protocol::WholeRows(options.exchange.compression, options.table));
      options.rule = rule;
      if (rule.has_value()) options.parameters_agree = false;
      options_.push_back(std::move(options));
    }
    for (const ShardOptions& options : options_) shards_.push_back(*Shard::Create(options));
    for (uint32_t rank = 0; rank < kSmallJobRanks; ++rank) {
      workers_.push_back(SmallJobWorker(options_[0], rank));
    }
  }

  // Runs a step and returns the frames of the results, by chunk.
  std::map<uint32_t, std::string> RunStep(uint64_t step) {
    std::map<uint32_t, std::string> frames;
    uint64_t checkpoint = checkpoint_;
    for (size_t shard = 0; shard < shards_.size(); ++shard) {
      const std::vector<protocol::Bundle>& bundles = options_[shard].layout.bundles[shard];
      for (uint32_t bundle = 0; bundle < bundles.size(); ++bundle) {
        for (uint32_t rank = 0; rank < kSmallJobRanks; ++rank) {
          protocol::ExchangeRequest sent = Contribution(shard, rank, step, bundle);
          for (ShardEffect& effect : shards_[shard]->Handle(rank + 1, std::move(sent), {})) {
            if (auto* taken = std::get_if<WriteSnapshot>(&effect)) {
              snapshots_.push_back(*taken->snapshot);
            }
            const auto* reply = std::get_if<SendReply>(&effect);
            if (reply == nullptr || reply->stream != 1 ||
                reply->answer->outcome != protocol::Outcome::kResult) {
              continue;
            }
            checkpoint = std::max(checkpoint, reply->answer->checkpoint_step);
            for (size_t i = 0; i < reply->answer->results.size(); ++i) {
              frames[bundles[bundle].chunks[i]] = reply->answer->results[i];
            }
          }
        }
      }
    }
    checkpoint_ = checkpoint;
    for (compress::Compressor& worker : workers_) {
      worker.EndStep(step);
      for (const auto& [chunk, frame] : frames) {
        worker.Observe(chunk, protocol::FrameBytes(frame));
      }
    }
    if (!snapshots_.empty() && saved_workers_.empty()) {
      for (compress::Compressor& worker : workers_) saved_workers_.push_back(worker.Save());
    }
    return frames;
  }

  // Continues from the snapshots of `other`, which has another number of shards.
  absl::Status GoOnFrom(const ShardedJob& other) {
    shards_.clear();
    for (ShardOptions& options : options_) {
      absl::StatusOr<protocol::ShardSnapshot> state = other.StateFor(options);
      if (!state.ok()) return state.status();
      options.term = 1;
      options.parameters_agree = true;
      options.first_step = state->step + 1;
      options.restore = std::make_shared<const protocol::ShardSnapshot>(*std::move(state));
      absl::StatusOr<std::unique_ptr<Shard>> shard = Shard::Create(options);
      if (!shard.ok()) return shard.status();
      shards_.push_back(*std::move(shard));
    }
    for (uint32_t rank = 0; rank < kSmallJobRanks; ++rank) {
      const absl::Status restored = workers_[rank].Restore(other.saved_workers_[rank]);
      if (!restored.ok()) return restored;
    }
    return absl::OkStatus();
  }
  absl::StatusOr<protocol::ShardSnapshot> StateFor(const ShardOptions& options) const {
    absl::StatusOr<Redistribution> made =
        Redistribution::Create({.shard = options.shard,
                                .former_shards = static_cast<uint32_t>(shards_.size()),
                                .shards = static_cast<uint32_t>(options.layout.bundles.size()),
                                .table = options.table,
                                .compression = options.exchange.compression});
    if (!made.ok()) return made.status();
    // The order does not matter.
    for (auto source = made->sources().rbegin(); source != made->sources().rend(); ++source) {
      const absl::Status added = made->Add(snapshots_[*source]);
      if (!added.ok()) return added;
    }
    return made->Take();
  }

  Shard* shard(size_t shard) { return shards_[shard].get(); }
  const std::vector<protocol::ShardSnapshot>& snapshots() const { return snapshots_; }
  const ShardOptions& options(size_t shard) const { return options_[shard]; }

 private:
  protocol::ExchangeRequest Contribution(size_t shard, uint32_t rank, uint64_t step,
                                         uint32_t bundle) {
    const ShardOptions& options = options_[shard];
    protocol::ExchangeRequest exchange;
    exchange.sender = {.job_uid = kJob,
                       .term = options.term,
                       .rank = rank,
                       .incarnation = options.incarnations[rank],
                       .generation = options.generation};
    exchange.step = step;
    exchange.bundle = bundle;
    exchange.acked_step = step == 0 ? 0 : step - 1;
    exchange.checkpoint_step = checkpoint_ > step ? checkpoint_ : 0;
    exchange.skip = step == 0 && rank > 0;
    if (exchange.skip) return exchange;
    for (const uint32_t chunk : options.layout.bundles[shard][bundle].chunks) {
      const std::vector<float> gradient = compress::HeavyTailed(options.layout.chunks[chunk].count,
                                                                step * 1000 + 10 * chunk + rank);
      if (step == 0) {
        exchange.frames.push_back(EncodedFrame(gradient));
        continue;
      }
      std::vector<std::byte> frame;
      Check(workers_[rank].Encode(chunk, step, gradient, &frame).ok(), "it is finite");
      exchange.frames.emplace_back(reinterpret_cast<const char*>(frame.data()), frame.size());
    }
    return exchange;
  }

  std::vector<ShardOptions> options_;  // By shard.
  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<compress::Compressor> workers_;
  std::vector<protocol::ShardSnapshot> snapshots_;  // By shard.
  std::vector<compress::SavedCompressor> saved_workers_;
  uint64_t checkpoint_ = 0;  // Newest step that a result announced.
};

// Runs until the checkpoint.
void RunToCheckpoint(ShardedJob* job, uint64_t first = 1) {
  for (uint64_t step = first; step <= kSavedAt; ++step) {
    if (step == 2) {
      ASSERT_EQ(job->shard(0)->NameCheckpoint(1), kSavedAt);
    }
    job->RunStep(step);
  }
}

struct Change {
  const char* codec;
  uint32_t before;
  uint32_t after;
};

class RedistributionOfCodec : public ::testing::TestWithParam<Change> {};

TEST_P(RedistributionOfCodec, ContinuesAsIfTheJobHadAlwaysHadSoManyShards) {
  const Change& change = GetParam();
  ShardedJob saving(Spec(change.codec), change.before);
  RunToCheckpoint(&saving);
  ASSERT_EQ(saving.snapshots().size(), change.before);
  ShardedJob expected(Spec(change.codec), change.after);
  for (uint64_t step = 1; step <= kSavedAt; ++step) expected.RunStep(step);
  ShardedJob restored(Spec(change.codec), change.after);
  const absl::Status begun = restored.GoOnFrom(saving);
  ASSERT_TRUE(begun.ok()) << begun;
  for (uint64_t step = kSavedAt + 1; step <= kEnd; ++step) {
    EXPECT_EQ(restored.RunStep(step), expected.RunStep(step)) << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, RedistributionOfCodec,
                         ::testing::Values(Change{"none", 2, 3}, Change{"int8/ef", 2, 3},
                                           Change{"int8/ef", 3, 1}, Change{"int4:sr", 1, 2},
                                           Change{"blocktopk:64/ef", 4, 2}, Change{"eden:2", 2, 4},
                                           Change{"int8/ef", 2, 9}, Change{"int8/ef", 9, 2},
                                           Change{"powersgd:2/ef", 2, 3}),
                         [](const auto& test) {
                           std::string name = absl::StrCat(test.param.codec, "_", test.param.before,
                                                           "_to_", test.param.after);
                           for (char& c : name)
                             c = absl::ascii_isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

TEST(RedistributionTest, ThresholdsOfTheDownlinkBeginAnew) {
  ShardedJob saving(Spec("topk:10%/ef"), 2);
  RunToCheckpoint(&saving);
  ShardedJob restored(Spec("topk:10%/ef"), 3);
  const absl::StatusOr<protocol::ShardSnapshot> state = saving.StateFor(restored.options(0));
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_TRUE(state->downlink.groups.empty());
  ASSERT_TRUE(restored.GoOnFrom(saving).ok());
  EXPECT_EQ(restored.RunStep(kSavedAt + 1).size(), restored.options(0).layout.chunks.size());
}

TEST(RedistributionTest, ParametersOnShardsAndTheirOptimizerContinueBitForBit) {
  const job::OptimizerSpec adam{.name = "adam", .lr = 0.1};
  ShardedJob saving(Spec("int8"), 2, adam);
  saving.RunStep(0);
  RunToCheckpoint(&saving);
  ShardedJob expected(Spec("int8"), 3, adam);
  for (uint64_t step = 0; step <= kSavedAt; ++step) expected.RunStep(step);
  ShardedJob restored(Spec("int8"), 3, adam);
  const absl::Status begun = restored.GoOnFrom(saving);
  ASSERT_TRUE(begun.ok()) << begun;
  for (uint64_t step = kSavedAt + 1; step <= kEnd; ++step) {
    EXPECT_EQ(restored.RunStep(step), expected.RunStep(step)) << step;
  }
}

// Two shards with one tensor each become one shard.
class TwoToOneTest : public ::testing::Test {
 protected:
  TwoToOneTest() {
    options_.former_shards = 2;
    options_.shards = 1;
    options_.table = {
        {.name = "a", .shape = {4}, .strides = {}, .dtype = protocol::DType::kFloat32},
        {.name = "b", .shape = {4}, .strides = {}, .dtype = protocol::DType::kFloat32}};
    options_.compression.min_elements = 0;
  }
  static protocol::ShardSnapshot StateOf(uint32_t shard) {
    protocol::ShardSnapshot state;
    state.job_uid = kJob;
    state.step = 5;
    state.shard = shard;
    state.versions = {shard + 7};
    state.aggregators.resize(1);
    state.downlink.chunks.resize(1);
    state.downlink.chunks[0].config = {.count = 4, .spec = {}, .id = shard, .tensor = shard};
    return state;
  }
  Redistribution Make() { return *Redistribution::Create(options_); }

  Redistribution::Options options_;
};

TEST(RedistributionTest, AShardWithoutChunksContinuesAfterTheCheckpoint) {
  absl::StatusOr<Redistribution> redistribution = Redistribution::Create(
      {.shard = 1,
       .former_shards = 1,
       .shards = 2,
       .table = {{.name = "a", .shape = {4}, .strides = {}, .dtype = protocol::DType::kFloat32}},
       .compression = {}});
  ASSERT_TRUE(redistribution.ok()) << redistribution.status();
  protocol::ShardSnapshot former;
  former.job_uid = kJob;
  former.step = 5;
  former.versions = {7};
  former.clocks = {5, 8};
  former.aggregators.resize(1);
  former.downlink.chunks.resize(1);
  ASSERT_TRUE(redistribution->Add(former).ok());
  const absl::StatusOr<protocol::ShardSnapshot> state = redistribution->Take();
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_THAT(state->clocks, ElementsAre(5, 5));
  EXPECT_THAT(state->versions, ElementsAre(1));
  EXPECT_TRUE(state->aggregators.empty());
}

TEST_F(TwoToOneTest, ABundleIsAtTheLatestStepOfEachRank) {
  Redistribution redistribution = Make();
  protocol::ShardSnapshot first = StateOf(0);
  first.clocks = {5, 7};
  protocol::ShardSnapshot second = StateOf(1);
  second.clocks = {6, 5};
  ASSERT_TRUE(redistribution.Add(first).ok());
  ASSERT_TRUE(redistribution.Add(second).ok());
  const absl::StatusOr<protocol::ShardSnapshot> state = redistribution.Take();
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_THAT(state->clocks, ElementsAre(6, 7));
  EXPECT_THAT(state->versions, ElementsAre(8)) << "its first chunk was on shard 1";
}

TEST_F(TwoToOneTest, TheNewestPlanAppliesToAllChunks) {
  Redistribution redistribution = Make();
  const auto plan = [](uint64_t id, const char* codec) {
    protocol::CompressionPlan made{.id = id, .effective_step = id};
    made.entries.push_back(
        {.direction = protocol::Direction::kDownlink, .codec = Spec(codec), .tensors = {0, 1}});
    return made;
  };
  protocol::ShardSnapshot first = StateOf(0);
  first.clocks = {5};
  first.plans = {plan(2, "int8")};
  protocol::ShardSnapshot second = StateOf(1);
  second.clocks = {5};
  second.plans = {plan(1, "int4")};
  second.downlink.chunks[0].config.spec = Spec("int4");
  ASSERT_TRUE(redistribution.Add(second).ok());
  ASSERT_TRUE(redistribution.Add(first).ok());
  const absl::StatusOr<protocol::ShardSnapshot> state = redistribution.Take();
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->plans, first.plans);
  for (const compress::SavedCompressor::Chunk& chunk : state->downlink.chunks) {
    EXPECT_EQ(chunk.config.spec.codec, Spec("int8").codec);
  }
}

TEST_F(TwoToOneTest, StatesThatDoNotFitAreRefused) {
  const auto add = [&](const std::function<void(protocol::ShardSnapshot*)>& change) {
    Redistribution redistribution = Make();
    Check(redistribution.Add(StateOf(0)).ok(), "the first state fits");
    protocol::ShardSnapshot other = StateOf(1);
    change(&other);
    return std::string(redistribution.Add(std::move(other)).message());
  };
  EXPECT_EQ(add([](protocol::ShardSnapshot*) {}), "");
  EXPECT_THAT(add([](auto* state) { state->shard = 0; }), HasSubstr("was not expected"));
  EXPECT_THAT(add([](auto* state) { state->shard = 2; }), HasSubstr("was not expected"));
  EXPECT_THAT(add([](auto* state) { state->versions.clear(); }),
              HasSubstr("0 bundles, expected 1"));
  EXPECT_THAT(add([](auto* state) { state->aggregators.resize(2); }), HasSubstr("2 chunks"));
  EXPECT_THAT(add([](auto* state) { state->downlink.chunks.clear(); }),
              HasSubstr("on the downlink"));
  EXPECT_THAT(add([](auto* state) { state->replica.resize(1); }), HasSubstr("does not belong"));
  EXPECT_THAT(add([](auto* state) { state->replica.resize(2); }), HasSubstr("with parameters"));
  EXPECT_THAT(add([](auto* state) { state->clocks = {5}; }), HasSubstr("does not belong"));
  EXPECT_THAT(add([](auto* state) { state->step = 6; }), HasSubstr("after step 6"));
  EXPECT_THAT(add([](auto* state) { state->term = 1; }), HasSubstr("of term 1"));
  EXPECT_THAT(add([](auto* state) { state->job_uid = 1; }), HasSubstr("does not belong"));
}

TEST_F(TwoToOneTest, AMissingStateIsNamed) {
  Redistribution redistribution = Make();
  EXPECT_THAT(redistribution.sources(), ElementsAre(0, 1));
  ASSERT_TRUE(redistribution.Add(StateOf(0)).ok());
  EXPECT_THAT(std::string(redistribution.Take().status().message()),
              HasSubstr("former shard 1 is missing"));
}

TEST_F(TwoToOneTest, ShardsThatCannotBeAreRefused) {
  for (const auto& [shard, former, shards] :
       {std::tuple(1u, 2u, 1u), std::tuple(0u, 0u, 1u), std::tuple(0u, 1u, 0u)}) {
    options_.shard = shard;
    options_.former_shards = former;
    options_.shards = shards;
    EXPECT_TRUE(absl::IsInvalidArgument(Redistribution::Create(options_).status()));
  }
}

}  // namespace
}  // namespace sluice::server
