// SPDX-License-Identifier: Apache-2.0
// Tests the expected bytes of frames under a plan.
#include "server/control/plan_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/control/codec_rate_distortion.h"

namespace sluice::server {
namespace {

using testing::ElementsAre;

protocol::TensorTable Table() {
  return {{.name = "large", .shape = {1000}, .strides = {}},
          {.name = "small", .shape = {10}, .strides = {}}};
}

protocol::CompressionSpec Compression() {
  protocol::CompressionSpec compression;
  compression.min_elements = 100;  // Smaller tensors use at most fp16.
  compression.uplink = *compress::ParseCodecSpec("none");
  compression.downlink = *compress::ParseCodecSpec("fp16");
  return compression;
}

TEST(PlanBytesTest, WhatThePlanDoesNotNameIsAsTheJobFileSays) {
  const std::optional<PlanBytes> bytes = BytesUnder({}, Compression(), Table(), 2);
  ASSERT_TRUE(bytes.has_value());
  EXPECT_THAT(bytes->up, ElementsAre(4040, 4040));
  EXPECT_EQ(bytes->down, 2020);
}

TEST(PlanBytesTest, EachRankHasItsOwn) {
  const compress::CodecSpec int8 = *compress::ParseCodecSpec("int8"),
                            topk = *compress::ParseCodecSpec("topk:1%+int4");
  const protocol::CompressionPlan plan{
      .entries = {{.codec = int8, .tensors = {0}, .ranks = {1}},
                  {.direction = protocol::Direction::kDownlink, .codec = topk, .tensors = {0}}}};
  const std::optional<PlanBytes> bytes = BytesUnder(plan, Compression(), Table(), 3);
  ASSERT_TRUE(bytes.has_value());
  EXPECT_THAT(bytes->up, ElementsAre(4040, 125 * PriceOf(int8)->bits + 40, 4040));
  EXPECT_EQ(bytes->down, 125 * PriceOf(topk)->bits + 20);
}

TEST(PlanBytesTest, NothingIsKnownWithACodecWithoutAPrice) {
  protocol::CompressionSpec compression = Compression();
  compression.uplink = *compress::ParseCodecSpec("qsgd:4");
  EXPECT_FALSE(BytesUnder({}, compression, Table(), 1).has_value());
}

}  // namespace
}  // namespace sluice::server
