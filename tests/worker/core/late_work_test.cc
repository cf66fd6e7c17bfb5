// SPDX-License-Identifier: Apache-2.0
// Tests that a worker keeps what a shard leaves out of its late contributions.
#include "worker/core/late_work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/worker/core/one_worker.h"

namespace sluice::worker {
namespace {

using testing::FloatEq;
using testing::IsEmpty;

const double kHalf = std::log(2.0);  // Halves a contribution for each exchange of age.

// Rank 0 of two ranks, with one tensor in one bundle.
PipelineOptions LateWorkOptions(double decay) {
  PipelineOptions options;
  options.table.push_back({.name = "a", .shape = {4}, .strides = {}});
  options.layout =
      *protocol::BuildLayout(options.table, 1, {.chunk_elements = 4, .bundle_elements = 4});
  options.sender = {.job_uid = 7, .rank = 0, .incarnation = 3};
  options.world_size = 2;
  options.exchange.quorum = 1;
  options.exchange.merge.late_decay = decay;
  return options;
}

std::shared_ptr<const protocol::ExchangeRequest> WorkOfStep(uint64_t step, bool skip = false) {
  auto own = std::make_shared<protocol::ExchangeRequest>();
  own->step = step;
  own->skip = skip;
  return own;
}

// The result of `step`, which includes this rank's work of the origins.
protocol::ExchangeReply ResultWith(uint64_t step, const std::vector<uint64_t>& origins,
                                   bool skipped = false) {
  protocol::ExchangeReply result;
  result.step = result.record.step = step;
  for (const uint64_t origin : origins) {
    result.record.included.push_back({.rank = 0, .origin_step = origin, .skipped = skipped});
  }
  result.record.included.push_back({.rank = 1, .origin_step = step});
  return result;
}

TEST(LateWork, TheRestOfALateContributionReturnsOnce) {
  const PipelineOptions options = LateWorkOptions(kHalf);
  LateWork late(options);
  late.Resolve(0, ResultWith(1, {}), WorkOfStep(1));
  EXPECT_THAT(late.Take(0, 0), IsEmpty()) << "no result includes it yet";
  late.Resolve(0, ResultWith(2, {}), WorkOfStep(2, /*skip=*/true));
  late.Resolve(0, ResultWith(3, {1, 3}), WorkOfStep(3));
  const std::vector<ReturnedWork> returned = late.Take(0, 0);
  ASSERT_EQ(returned.size(), 1u);
  EXPECT_EQ(returned[0].contribution->step, 1u);
  EXPECT_THAT(returned[0].share, FloatEq(0.75f));
  EXPECT_THAT(late.Take(0, 0), IsEmpty());
  EXPECT_THAT(late.TakeAll().returned, IsEmpty());
}

TEST(LateWork, AgeCountsExchangesOfTheFragment) {
  PipelineOptions options = LateWorkOptions(kHalf);
  options.layout.fragments = 4;
  LateWork late(options);
  late.Resolve(0, ResultWith(1, {}), WorkOfStep(1));
  late.Resolve(0, ResultWith(5, {1}), WorkOfStep(5));
  std::vector<ReturnedWork> returned = late.TakeAll().returned;
  ASSERT_EQ(returned.size(), 1u);
  EXPECT_THAT(returned[0].share, FloatEq(0.5f));
  // The work of step 5 was late too.
  late.Resolve(0, ResultWith(9, {5, 9}), WorkOfStep(9));
  returned = late.TakeAll().returned;
  ASSERT_EQ(returned.size(), 1u);
  EXPECT_EQ(returned[0].contribution->step, 5u);
}

TEST(LateWork, NothingReturnsOfWorkInTimeOrSkippedOrOfAnotherHolder) {
  const PipelineOptions options = LateWorkOptions(kHalf);
  LateWork late(options);
  late.Resolve(0, ResultWith(7, {7}), WorkOfStep(7));
  late.Resolve(0, ResultWith(8, {}), WorkOfStep(8, /*skip=*/true));
  late.Resolve(0, ResultWith(9, {5, 9}), WorkOfStep(9));  // Step 5 is its predecessor's.
  late.Resolve(0, ResultWith(10, {}), WorkOfStep(10));
  late.Resolve(0, ResultWith(11, {10, 11}, /*skipped=*/true), WorkOfStep(11));
  EXPECT_THAT(late.TakeAll().returned, IsEmpty()) << "a guard left out the work of step 10";
}

TEST(LateWork, WithoutDecayNothingReturns) {
  const PipelineOptions options = LateWorkOptions(0);
  LateWork late(options);
  late.Resolve(0, ResultWith(1, {}), WorkOfStep(1));
  late.Resolve(0, ResultWith(2, {1, 2}), WorkOfStep(2));
  EXPECT_THAT(late.TakeAll().returned, IsEmpty());
}

TEST(LateWork, WithoutAQuorumNothingIsKept) {
  PipelineOptions options = LateWorkOptions(0);
  options.exchange.quorum = 0;
  LateWork late(options);
  const auto own = WorkOfStep(1);
  late.Resolve(0, ResultWith(1, {}), own);
  EXPECT_EQ(own.use_count(), 1);
}

TEST(LateWork, LateBuffersAreDropped) {
  PipelineOptions options = LateWorkOptions(kHalf);
  options.layout.bundles[0][0].buffers = true;
  LateWork late(options);
  late.Resolve(0, ResultWith(1, {}), WorkOfStep(1));
  EXPECT_THAT(late.TakeAll().pending, IsEmpty());
}

TEST(LateWork, WhatIsInNoResultIsPending) {
  const PipelineOptions options = LateWorkOptions(kHalf);
  LateWork late(options);
  late.Resolve(0, ResultWith(1, {}), WorkOfStep(1));
  for (int i = 0; i < 2; ++i) {
    const std::vector<ReturnedWork> pending = late.TakeAll().pending;
    ASSERT_EQ(pending.size(), 1u) << "it stays pending";
    EXPECT_EQ(pending[0].contribution->step, 1u);
    EXPECT_EQ(pending[0].share, 1);
  }
  late.Resolve(0, ResultWith(2, {1, 2}), WorkOfStep(2));
  EXPECT_THAT(late.TakeAll().pending, IsEmpty());
}

// A pipeline and an encoder, whose shard damps a late contribution.
TEST(LateWork, TheNextContributionContainsTheRest) {
  PipelineOptions options = LateWorkOptions(kHalf);
  Pipeline pipeline(options);
  BundleEncoder encoder(options.table, options.layout, options.exchange.compression, 0);
  const std::vector<float> gradient = {8, 4, 2, 1};
  Pipeline::Effects effects;
  std::vector<float> sent;
  const auto contribute = [&] {
    pipeline.StartStep();
    ASSERT_TRUE(pipeline.TensorReady(0, gradient).ok());
    const std::optional<EncodeTask> task = pipeline.NextEncoding();
    ASSERT_TRUE(task.has_value());
    EncodedBundle encoded = encoder.Encode(*task);
    sent.assign(4, 0);
    ASSERT_TRUE(
        compress::DecodeAddFrames(protocol::FrameBytes(encoded.frames.at(0)), absl::MakeSpan(sent))
            .ok());
    pipeline.Encoded(std::move(encoded), &effects);
  };
  const auto answer = [&](const std::vector<uint64_t>& origins) {
    protocol::ExchangeReply reply = ResultWith(pipeline.step(), origins);
    reply.outcome = protocol::Outcome::kResult;
    for (protocol::Included& included : reply.record.included) {
      if (included.rank != 0) included.skipped = true;
      if (included.rank != 0 || included.origin_step != pipeline.step()) continue;
      included.checksum =
          protocol::BundleChecksum(std::get<SendExchange>(effects.back()).exchange->frames);
    }
    reply.record.n = static_cast<uint32_t>(origins.size());
    if (!origins.empty()) {
      reply.results = std::get<SendExchange>(effects.back()).exchange->frames;
    }
    reply.record.result_checksum = protocol::BundleChecksum(reply.results);
    pipeline.Answer(0, std::move(reply), &effects);
    ASSERT_FALSE(pipeline.step_open()) << pipeline.status();
  };
  contribute();
  EXPECT_EQ(sent, gradient);
  answer({});
  // A checkpoint now has it in the residual.
  ASSERT_TRUE(encoder.Settle(pipeline.TakeLate()).ok());
  EXPECT_EQ(encoder.Save().chunks[0].state.at(compress::kResidualState), gradient);
  contribute();
  EXPECT_EQ(sent, gradient) << "the late contribution is in no result yet";
  answer({1, 2});
  contribute();
  EXPECT_THAT(sent, testing::ElementsAre(12, 6, 3, 1.5f)) << "half of step 1's is left";
  answer({3});
  ASSERT_TRUE(encoder.Settle(pipeline.TakeLate()).ok());
  EXPECT_THAT(encoder.Save().chunks[0].state.at(compress::kResidualState), testing::Each(0));
  contribute();
  EXPECT_EQ(sent, gradient);
}

}  // namespace
}  // namespace sluice::worker
