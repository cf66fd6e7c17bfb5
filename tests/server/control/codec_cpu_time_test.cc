// SPDX-License-Identifier: Apache-2.0
#include "server/control/codec_cpu_time.h"

#include <gtest/gtest.h>

namespace sluice::server {
namespace {

CodecCpuTime CostOf(const char* spec, uint64_t shard_elements = 1'000'000, uint32_t ranks = 4) {
  return *UsualCost(*compress::ParseCodecSpec(spec), 1'000'000, shard_elements, ranks);
}

TEST(CodecCpuTimeTest, EveryCodecThatAPlanCanChooseHasOne) {
  for (const char* spec : {"none", "fp16", "bf16", "int8", "int4", "int2", "sign", "onebit",
                           "ternary:0.5", "eden:2", "topk:1%+int4", "topk_exact:1%"}) {
    const CodecCpuTime cost = CostOf(spec);
    EXPECT_EQ(cost.spec, *compress::ParseCodecSpec(spec));
    // A processor moves the 12 bytes of an element in about a nanosecond.
    EXPECT_GT(cost.encode_s, 0.5e-3) << spec;
    EXPECT_LT(cost.encode_s, 4e-3) << spec;
    EXPECT_GT(cost.apply_s, 0) << spec;
  }
  EXPECT_EQ(UsualCost(*compress::ParseCodecSpec("powersgd:2"), 1, 1, 1).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(CodecCpuTimeTest, AShardAddsEveryRanksFramesOfItsPartAndEncodesTheResult) {
  EXPECT_GT(CostOf("int8", 1'000'000, 8).server_s, CostOf("int8", 1'000'000, 4).server_s);
  EXPECT_DOUBLE_EQ(CostOf("int8", 250'000).server_s, CostOf("int8").server_s / 4);
  const CodecCpuTime whole = CostOf("int8", 1'000'000, 4);
  EXPECT_DOUBLE_EQ(whole.server_s, 4 * whole.apply_s + whole.encode_s);
}

TEST(CodecCpuTimeTest, WhatIsSentCostsAndWhatIsNotDoesNot) {
  EXPECT_LT(CostOf("topk:0.1%").apply_s, CostOf("topk:1%").apply_s);
  EXPECT_LT(CostOf("topk:1%").encode_s, CostOf("topk:10%").encode_s);
  EXPECT_LT(CostOf("ternary:0.9").encode_s, CostOf("ternary:0.5").encode_s);
}

}  // namespace
}  // namespace sluice::server
