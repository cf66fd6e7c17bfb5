// SPDX-License-Identifier: Apache-2.0
#include "server/control/bit_allocation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "server/control/codec_rate_distortion.h"

namespace sluice::server {
namespace {

compress::CodecSpec SpendingSpec(const char* text) { return *compress::ParseCodecSpec(text); }

// A model with tensors of very different size.
struct Model {
  std::vector<ControlledTensor> tensors = {{.elements = 200000},
                                           {.elements = 50000},
                                           {.elements = 20000},
                                           {.elements = 512, .compressed = false}};
};

TEST(AllocateByDensity, SpendsWhatThereIs) {
  const Model model;
  for (const double bytes : {3000.0, 10000.0, 40000.0}) {
    const Spent spent =
        AllocateByDensity(model.tensors, {.sparse = SpendingSpec("topk:1%+int4")}, bytes);
    EXPECT_LE(spent.coding.bytes, bytes);
    EXPECT_GT(spent.coding.bytes, 0.97 * bytes);
    EXPECT_EQ(spent.coding.codecs[0], spent.coding.codecs[1]);
    EXPECT_EQ(spent.coding.codecs[3].codec, compress::CodecId::kFp16);
  }
}

TEST(AllocateByDensity, StaysWithinItsDensities) {
  const Model model;
  const SparseAllocation options{
      .sparse = SpendingSpec("topk:1%"), .density_min = 0.01, .density_max = 0.05};
  EXPECT_NEAR(AllocateByDensity(model.tensors, options, 0).coding.bytes,
              AllocateByDensity(model.tensors, options, 1).coding.bytes, 1e-9);
  const double most = AllocateByDensity(model.tensors, options, 1e12).coding.bytes;
  const double least = AllocateByDensity(model.tensors, options, 0).coding.bytes;
  EXPECT_GT(least, 1024);
  EXPECT_GT(most, 2 * least);
  EXPECT_LT(most, 6 * least);
}

TEST(AllocateByDensity, KeepsTheScopeOfItsCodec) {
  const Model model;
  const compress::CodecSpec each = SpendingSpec("topk:1%,scope=tensor");
  EXPECT_TRUE(AllocateByDensity(model.tensors, {.sparse = each}, 20000)
                  .coding.codecs[0]
                  .has(compress::kTensorScope));
}

TEST(SpendOnCodecs, IsNearTheBestOfAllWays) {
  const Model model;
  const std::vector<compress::CodecSpec> candidates = {
      SpendingSpec("none"), SpendingSpec("int8"), SpendingSpec("int4"), SpendingSpec("ternary:0.5"),
      SpendingSpec("topk:1%+int4")};
  const auto error = [&](const std::vector<size_t>& way, double* bytes) {
    double lost = 0;
    double energy = 0;
    *bytes = 1024;
    for (size_t i = 0; i < 4; ++i) energy += static_cast<double>(model.tensors[i].elements);
    for (size_t i = 0; i < 3; ++i) {
      const CodecRateDistortion price = *PriceOf(candidates[way[i]]);
      const auto elements = static_cast<double>(model.tensors[i].elements);
      lost += elements * price.error;
      *bytes += elements * price.bits / 8;
    }
    return lost / energy;
  };
  for (const double budget : {10e3, 40e3, 100e3, 200e3, 2e6}) {
    const absl::StatusOr<Spent> spent = SpendOnCodecs(model.tensors, candidates, budget);
    ASSERT_TRUE(spent.ok()) << spent.status();
    EXPECT_LE(spent->coding.bytes, budget);
    double best = 1;
    for (size_t a = 0; a < 5; ++a) {
      for (size_t b = 0; b < 5; ++b) {
        for (size_t c = 0; c < 5; ++c) {
          double bytes = 0;
          const double lost = error({a, b, c}, &bytes);
          if (bytes <= budget) best = std::min(best, lost);
        }
      }
    }
    // The allocation finds points on the convex hull only. Therefore at most one tensor is one
    // candidate away from the optimum.
    EXPECT_LE(spent->error, best + 0.25) << budget;
    EXPECT_GE(spent->error, best - 1e-9) << budget;
  }
}

TEST(SpendOnCodecs, TakesTheCheapestIfNothingFits) {
  const Model model;
  const absl::StatusOr<Spent> spent =
      SpendOnCodecs(model.tensors, {SpendingSpec("int8"), SpendingSpec("topk:1%+int4")}, 10);
  ASSERT_TRUE(spent.ok());
  EXPECT_EQ(spent->coding.codecs[0], SpendingSpec("topk:1%+int4"));
}

TEST(SpendOnCodecs, NamesACodecWhosePriceIsNotKnown) {
  const Model model;
  const absl::StatusOr<Spent> spent =
      SpendOnCodecs(model.tensors, {SpendingSpec("powersgd:4")}, 1e6);
  EXPECT_EQ(spent.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(spent.status().message().find("powersgd:4"), absl::string_view::npos);
  EXPECT_FALSE(SpendOnCodecs(model.tensors, {}, 1e6).ok());
}

}  // namespace
}  // namespace sluice::server
