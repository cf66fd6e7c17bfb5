// SPDX-License-Identifier: Apache-2.0
#include "server/shard/shard_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "tests/server/shard/shard_fixture.h"

namespace sluice::server {
namespace {

constexpr uint32_t kRanks = 3;
constexpr uint32_t kChunks = 9;
constexpr uint32_t kCount = 700;
constexpr uint64_t kSteps = 4;

struct Variant {
  const char* uplink;
  const char* downlink;
  const char* rule;  // Empty: the shard publishes means.
  job::Mode mode = job::Mode::kSync;
};

// Returns a shard with one bundle of kChunks chunks.
ShardOptions ChunkedShard(const Variant& variant, size_t threads) {
  ShardOptions options = SmallShard(kRanks, variant.downlink);
  options.table = {{.name = "weight",
                    .shape = {kChunks * kCount},
                    .strides = {},
                    .dtype = protocol::DType::kFloat32}};
  options.layout.chunks.clear();
  protocol::Bundle bundle{.chunks = {}, .elements = kChunks * kCount};
  for (uint32_t chunk = 0; chunk < kChunks; ++chunk) {
    options.layout.chunks.push_back(
        {.tensor = 0, .offset = chunk * kCount, .count = kCount, .shard = 0, .bundle = 0});
    bundle.chunks.push_back(chunk);
  }
  options.layout.bundles = {{bundle}};
  options.exchange.compression.uplink = Spec(variant.uplink);
  options.exchange.mode = variant.mode;
  if (*variant.rule != 0) {
    options.rule = job::OptimizerSpec{.name = variant.rule, .lr = 0.1, .momentum = 0.9};
  }
  options.threads = threads;
  return options;
}

// Step 0 sends the parameters. With `overflows`, the mean of one chunk is not finite.
protocol::ExchangeRequest ChunkedContribution(uint32_t rank, uint64_t step, const Variant& variant,
                                              bool overflows) {
  protocol::ExchangeRequest exchange = Contribution(rank, step, 0, 0);
  exchange.rate = 0.1f;
  exchange.frames.clear();
  CounterRandom random(1, rank, step, 0);
  for (uint32_t chunk = 0; chunk < kChunks; ++chunk) {
    std::vector<float> values(kCount);
    for (float& value : values) value = static_cast<float>(random.Uniform()) - 0.5f;
    if (overflows && chunk == 4) values[3] = 3e38f;
    exchange.frames.push_back(EncodedFrame(values, step == 0 ? "none" : variant.uplink));
  }
  if (step == 0 && rank > 0) {
    exchange.frames.clear();
    exchange.skip = true;
  }
  return exchange;
}

// Returns all results of a run, in order.
std::vector<std::string> ResultsOf(const Variant& variant, size_t threads) {
  ShardOptions options = ChunkedShard(variant, threads);
  options.parameters_agree = false;
  ShardUnderTest shard(std::move(options));
  std::vector<std::string> results;
  for (uint64_t step = 0; step <= kSteps; ++step) {
    for (const uint32_t rank : {0u, 2u, 1u}) {
      const bool overflows = step == 2 && variant.uplink == std::string("none");
      for (const auto& [stream, reply] :
           ResultsByStream(shard.Send(ChunkedContribution(rank, step, variant, overflows)))) {
        results.push_back(std::to_string(reply.record.n));
        results.insert(results.end(), reply.results.begin(), reply.results.end());
      }
    }
  }
  return results;
}

// Large frames are summed as they come, and small ones when the bundle closes.
TEST(ShardThreads, DoNotChangeAResult) {
  for (const Variant& variant :
       {Variant{"none", "none", ""}, Variant{"none", "int4", ""},
        Variant{"topk:10%+int4", "topk:10%+int4", ""}, Variant{"int4", "ternary:0.5", "sgd"},
        Variant{"none", "topk:10%", "adam"}, Variant{"int4", "topk:10%", "sgd", job::Mode::kAsync},
        Variant{"none", "int8", "adam", job::Mode::kAsync}}) {
    SCOPED_TRACE(testing::Message()
                 << variant.uplink << " " << variant.downlink << " " << variant.rule);
    const std::vector<std::string> alone = ResultsOf(variant, 1);
    EXPECT_GE(alone.size(), kSteps * kChunks);
    for (const size_t threads : {size_t{2}, size_t{5}}) {
      EXPECT_EQ(ResultsOf(variant, threads), alone) << threads << " threads";
    }
  }
}

TEST(ShardThreads, CountTheTimeTowardTheStageOfTheWork) {
  protocol::StageTimes stages([]() -> int64_t {
    static thread_local int64_t now = 0;
    return now += 1'000'000'000;
  });
  ShardThreads threads(3, &stages);
  for (const protocol::Stage stage : {protocol::Stage::kSum, protocol::Stage::kEncode}) {
    // Each part waits for the others, so that every lane has one.
    std::atomic<int> begun = 0;
    threads.For(stage)->For(3, [&](size_t, size_t) {
      ++begun;
      while (begun < 3) std::this_thread::yield();
    });
  }
  const auto seconds = [&](protocol::Stage stage) {
    return stages.Seconds()[static_cast<size_t>(stage)];
  };
  EXPECT_EQ(seconds(protocol::Stage::kSum), 2);
  EXPECT_EQ(seconds(protocol::Stage::kEncode), 2);
  EXPECT_EQ(seconds(protocol::Stage::kSend), 0);
}

}  // namespace
}  // namespace sluice::server
