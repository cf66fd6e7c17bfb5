// SPDX-License-Identifier: Apache-2.0
#include "server/shard/parameter_publisher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/server/shard/shard_fixture.h"

namespace sluice::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The publisher of a small shard whose rule subtracts gradients.
struct PublisherUnderTest {
  explicit PublisherUnderTest(ShardOptions of = SmallShard(2)) : options(WithRule(std::move(of))) {}

  static ShardOptions WithRule(ShardOptions options) {
    options.exchange.mode = job::Mode::kAsync;
    options.rule = job::OptimizerSpec{.name = "sgd", .lr = 1};
    options.parameters_agree = false;
    return options;
  }
  // Applies one update to every chunk of the bundle.
  void Update(uint32_t bundle, float gradient) {
    const BundleLayout& of = layout.bundles[bundle];
    for (size_t i = 0; i < of.locals.size(); ++i) {
      layout.replica->Update(of.locals[i], 1, std::vector<float>(of.counts[i], gradient));
    }
  }
  // Returns what a rank with version `base` of bundle 0 gets.
  protocol::ExchangeReply Bring(uint64_t base, uint64_t step = 1) {
    protocol::ExchangeReply answer;
    answer.step = step;
    answer.base_version = base;
    publisher.Bring(&answer);
    return answer;
  }

  const ShardOptions options;
  ShardLayout layout = *PlanShard(options);
  ShardThreads threads{1, nullptr};
  ParameterPublisher publisher{&options, &layout, &threads};
};

TEST(ParameterPublisher, BeginsWithTheParametersOfRankZero) {
  PublisherUnderTest shard;
  EXPECT_FALSE(shard.publisher.begun(0));
  const protocol::ExchangeRequest first = Contribution(0, 0, 0, 8);
  shard.publisher.Begin(first);
  EXPECT_TRUE(shard.publisher.begun(0));
  EXPECT_FALSE(shard.publisher.begun(1));
  EXPECT_EQ(shard.publisher.version(0), 1u);
  EXPECT_EQ(shard.publisher.Unpublished(0), 0u);
  EXPECT_EQ(shard.publisher.parameters(0).checksum, protocol::BundleChecksum(first.frames));
  const protocol::ExchangeReply answer = shard.Bring(0, 0);
  EXPECT_TRUE(answer.exact);
  EXPECT_EQ(answer.version, 1u);
  EXPECT_THAT(DecodedFrame(answer.results.at(0), 2), ElementsAre(8, 8));
}

TEST(ParameterPublisher, BringsEachRankThePublicationsThatItLacks) {
  PublisherUnderTest shard;
  shard.publisher.Begin(Contribution(0, 0, 0, 8));
  shard.Update(0, 2);
  shard.Update(0, 1);
  EXPECT_EQ(shard.publisher.Updates(0), 2u);
  EXPECT_EQ(shard.publisher.Unpublished(0), 2u);
  ASSERT_EQ(shard.publisher.Publish(0), absl::OkStatus());
  EXPECT_EQ(shard.publisher.version(0), 3u);
  EXPECT_EQ(shard.publisher.Unpublished(0), 0u);
  const protocol::ExchangeReply newest = shard.Bring(3);
  EXPECT_THAT(newest.results, IsEmpty());
  EXPECT_FALSE(newest.exact);
  EXPECT_EQ(newest.version, 3u);
  const protocol::ExchangeReply behind = shard.Bring(1);
  EXPECT_FALSE(behind.exact);
  EXPECT_EQ(behind.version, 3u);
  EXPECT_THAT(DecodedFrame(behind.results.at(0), 2), ElementsAre(-3, -3));
}

TEST(ParameterPublisher, BringsTheParametersWhereThePublicationsAreLarger) {
  PublisherUnderTest shard;
  shard.publisher.Begin(Contribution(0, 0, 0, 8));
  for (const float gradient : {2.0f, 1.0f}) {
    shard.Update(0, gradient);
    ASSERT_EQ(shard.publisher.Publish(0), absl::OkStatus());
  }
  const protocol::ExchangeReply last = shard.Bring(2);
  EXPECT_FALSE(last.exact);
  EXPECT_THAT(DecodedFrame(last.results.at(0), 2), ElementsAre(-1, -1));
  const protocol::ExchangeReply behind = shard.Bring(1);
  EXPECT_TRUE(behind.exact);
  EXPECT_EQ(behind.version, 3u);
  EXPECT_THAT(DecodedFrame(behind.results.at(0), 2), ElementsAre(5, 5));
}

TEST(ParameterPublisher, BringsTheParametersToARankOfAnUnknownVersion) {
  PublisherUnderTest shard;
  shard.publisher.Begin(Contribution(0, 0, 0, 8));
  shard.Update(0, 2);
  ASSERT_EQ(shard.publisher.Publish(0), absl::OkStatus());
  for (const uint64_t base : {0u, 7u}) {
    const protocol::ExchangeReply answer = shard.Bring(base);
    EXPECT_TRUE(answer.exact) << base;
    EXPECT_EQ(answer.version, 2u) << base;
    EXPECT_THAT(DecodedFrame(answer.results.at(0), 2), ElementsAre(6, 6)) << base;
  }
}

TEST(ParameterPublisher, CountsThePublicationsInResults) {
  PublisherUnderTest shard;
  EXPECT_EQ(shard.publisher.TakePublicationsPerResult(), 0);
  shard.publisher.Begin(Contribution(0, 0, 0, 8));
  shard.Update(0, 2);
  ASSERT_EQ(shard.publisher.Publish(0), absl::OkStatus());
  shard.Bring(1);
  shard.Bring(2);
  EXPECT_EQ(shard.publisher.TakePublicationsPerResult(), 0.5);
  EXPECT_EQ(shard.publisher.TakePublicationsPerResult(), 0);
  ShardStats stats;
  shard.publisher.CountIn(&stats);
  EXPECT_EQ(stats.publications, 1u);
  EXPECT_EQ(stats.log_results, 1u);
  EXPECT_GT(stats.log_bytes, 0u);
  EXPECT_GE(stats.log_limit, stats.log_bytes);
}

TEST(ParameterPublisher, RefusesParametersThatAreNotFinite) {
  PublisherUnderTest shard;
  shard.publisher.Begin(Contribution(0, 0, 0, -std::numeric_limits<float>::max()));
  shard.Update(0, std::numeric_limits<float>::max());
  EXPECT_EQ(shard.publisher.Publish(0).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(shard.publisher.version(0), 1u);
  EXPECT_EQ(shard.Bring(1).version, 1u);
}

TEST(ParameterPublisher, GoesOnFromTheVersionsOfACheckpoint) {
  PublisherUnderTest shard;
  for (const uint32_t bundle : {0u, 1u}) {
    shard.publisher.Begin(Contribution(0, 0, bundle, 8));
    shard.Update(bundle, 1);
    shard.Update(bundle, 1);
  }
  EXPECT_EQ(shard.publisher.CheckVersions({3, 1}), absl::OkStatus());
  EXPECT_THAT(shard.publisher.CheckVersions({3, 4}).message(),
              HasSubstr("bundle 1 is at version 4 after 2 updates"));
  EXPECT_THAT(shard.publisher.CheckVersions({0, 1}).message(),
              HasSubstr("bundle 0 is at version 0"));
  protocol::ExchangeRequest exchange = Contribution(1, 5, 0, 1);
  EXPECT_EQ(shard.publisher.BaseOf(exchange), 1u);
  shard.publisher.Resume({3, 1});
  EXPECT_EQ(shard.publisher.version(0), 3u);
  EXPECT_EQ(shard.publisher.Unpublished(1), 2u);
  EXPECT_EQ(shard.publisher.BaseOf(exchange), 3u);
  exchange.base_version = 2;
  EXPECT_EQ(shard.publisher.BaseOf(exchange), 2u);
}

TEST(ParameterPublisher, MovesTheThresholdsOnceAllTrainedBundlesHavePublished) {
  for (const bool has_buffers : {false, true}) {
    ShardOptions options = SmallShard(2, "topk:50%");
    options.layout.bundles[0][0].buffers = has_buffers;  // Bundle 1 is trained.
    PublisherUnderTest shard(std::move(options));
    const auto before = shard.publisher.downlink()->Save().groups;
    for (uint32_t bundle = has_buffers ? 1 : 0; bundle < 2; ++bundle) {
      shard.publisher.Begin(Contribution(0, 0, bundle, 8));
      for (const uint32_t local : shard.layout.bundles[bundle].locals) {
        const std::vector<float> gradient = {1, 2, 4};
        shard.layout.replica->Update(
            local, 1, absl::MakeSpan(gradient).first(shard.layout.downlink[local].count));
      }
      ASSERT_EQ(shard.publisher.Publish(bundle), absl::OkStatus());
    }
    EXPECT_NE(shard.publisher.downlink()->Save().groups, before) << has_buffers;
  }
}

TEST(ParameterPublisher, BringsBuffersOnlyInStepZero) {
  ShardOptions options = SmallShard(2);
  options.layout.bundles[0][0].buffers = true;
  PublisherUnderTest shard(std::move(options));
  const protocol::ExchangeRequest first = Contribution(0, 0, 0, 8);
  shard.publisher.Begin(first);
  const protocol::ExchangeReply initial = shard.Bring(0, 0);
  EXPECT_TRUE(initial.exact);
  EXPECT_EQ(initial.version, 1u);
  EXPECT_EQ(initial.results, first.frames);
  const protocol::ExchangeReply later = shard.Bring(1, 1);
  EXPECT_THAT(later.results, IsEmpty());
  EXPECT_FALSE(later.exact);
  EXPECT_EQ(later.version, 1u);
  ShardStats stats;
  shard.publisher.CountIn(&stats);
  EXPECT_EQ(stats.held_bytes, protocol::TotalBytes(first.frames));
  EXPECT_EQ(stats.log_limit, 2 * compress::kFrameHeaderSize + 4 * sizeof(float));
  shard.publisher.DropBuffers(0);
  stats = {};
  shard.publisher.CountIn(&stats);
  EXPECT_EQ(stats.held_bytes, 0u);
}

}  // namespace
}  // namespace sluice::server
