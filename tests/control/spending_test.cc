#include "server/control/spending.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "server/control/codec_price.h"
#include "tests/control/small_tensors.h"

namespace sluice {
namespace {

CodecSpec Spec(const char* text) { return *ParseCodecSpec(text); }

// A model with layers of very different size and scale.
struct Model {
  std::vector<ControlledTensor> tensors;
  std::vector<std::vector<float>> values;
  std::vector<OctaveHistogram> histograms;

  Model() {
    const size_t sizes[] = {200000, 50000, 20000, 512};
    const double scales[] = {1e-3, 1e-2, 4e-3, 1e-1};
    for (int i = 0; i < 4; ++i) {
      tensors.push_back({.elements = sizes[i], .compressed = i != 3});
      values.push_back(Values(i + 1, sizes[i], scales[i]));
      histograms.push_back(HistogramOf(values.back()));
    }
  }

  // Energy lost, and bytes, where tensor i sends what reaches thresholds[i].
  std::pair<double, double> Send(const std::vector<float>& thresholds) const {
    double lost = 0;
    double bytes = 1024;
    for (size_t i = 0; i < 3; ++i) {
      double sent = 0;
      for (const float value : values[i]) {
        if (std::abs(value) >= thresholds[i]) {
          ++sent;
        } else {
          lost += double{value} * value;
        }
      }
      const auto size = static_cast<double>(values[i].size());
      bytes += size * SparseBits(sent / size, ValueFormat::kInt4) / 8;
    }
    return {lost, bytes};
  }
};

TEST(SpendOnLargest, SpendsWhatThereIs) {
  const Model model;
  for (const double bytes : {3000.0, 10000.0, 40000.0}) {
    const Spent spent =
        SpendOnLargest(model.tensors, model.histograms, {.sparse = Spec("topk:1%+int4")}, bytes);
    EXPECT_LE(spent.coding.bytes, bytes);
    EXPECT_GT(spent.coding.bytes, 0.97 * bytes);
    const auto [lost, real] = model.Send(spent.coding.thresholds);
    EXPECT_NEAR(real / bytes, 1, 0.12) << bytes;
    double energy = 0;
    for (const OctaveHistogram& histogram : model.histograms) energy += histogram.energy();
    EXPECT_NEAR(spent.error, lost / energy, 0.03);
    EXPECT_EQ(spent.coding.codecs[3].codec, CodecId::kFp16);
  }
}

TEST(SpendOnLargest, KeepsMoreThanOneDensityForAll) {
  const Model model;
  const double bytes = 10000;
  const Spent spent =
      SpendOnLargest(model.tensors, model.histograms, {.sparse = Spec("topk:1%+int4")}, bytes);
  const auto [lost, real] = model.Send(spent.coding.thresholds);
  // The density that comes to as many bytes, on each tensor by itself.
  double low = 1e-4;
  double high = 1;
  std::vector<std::vector<float>> sorted = model.values;
  for (std::vector<float>& values : sorted) {
    for (float& value : values) value = std::abs(value);
    std::sort(values.begin(), values.end(), std::greater<>());
  }
  std::vector<float> thresholds(3);
  while (high / low > 1.01) {
    const double density = std::sqrt(low * high);
    for (size_t i = 0; i < 3; ++i) {
      const auto size = static_cast<double>(sorted[i].size());
      thresholds[i] = sorted[i][static_cast<size_t>(density * size)];
    }
    (model.Send(thresholds).second < real ? low : high) = density;
  }
  EXPECT_LT(lost, 0.8 * model.Send(thresholds).first);
}

TEST(SpendOnLargest, StaysWithinItsDensities) {
  const Model model;
  const SparseSpending options{.sparse = Spec("topk:1%"), .density_min = 0.01, .density_max = 0.05};
  EXPECT_NEAR(SpendOnLargest(model.tensors, model.histograms, options, 0).coding.bytes,
              SpendOnLargest(model.tensors, model.histograms, options, 1).coding.bytes, 1e-9);
  const double most = SpendOnLargest(model.tensors, model.histograms, options, 1e12).coding.bytes;
  const double least = SpendOnLargest(model.tensors, model.histograms, options, 0).coding.bytes;
  EXPECT_GT(least, 1024);
  EXPECT_GT(most, 2 * least);
  EXPECT_LT(most, 6 * least);
}

TEST(SpendOnLargest, ForAdamGivesQuietTensorsTheirShare) {
  const Model model;
  SparseSpending options{.sparse = Spec("topk:1%")};
  const Spent plain = SpendOnLargest(model.tensors, model.histograms, options, 10000);
  options.rms_scaled = true;
  const Spent scaled = SpendOnLargest(model.tensors, model.histograms, options, 10000);
  EXPECT_LT(plain.coding.codecs[0].level, 0.2 * plain.coding.codecs[1].level);
  EXPECT_NEAR(scaled.coding.codecs[0].level / scaled.coding.codecs[1].level, 1, 0.2);
}

TEST(SpendOnLargest, WithoutHistogramsLeavesTheThresholdToTheSender) {
  const Model model;
  const Spent spent = SpendOnLargest(model.tensors, {}, {.sparse = Spec("topk:1%")}, 20000);
  EXPECT_LE(spent.coding.bytes, 20000);
  EXPECT_GT(spent.coding.bytes, 19000);
  EXPECT_TRUE(spent.coding.thresholds.empty());
  EXPECT_EQ(spent.coding.codecs[0], spent.coding.codecs[1]);
  const CodecSpec each = Spec("topk:1%,scope=tensor");
  EXPECT_TRUE(SpendOnLargest(model.tensors, {}, {.sparse = each}, 20000)
                  .coding.codecs[0]
                  .has(kTensorScope));
}

TEST(SpendOnCodecs, IsNearTheBestOfAllWays) {
  const Model model;
  const std::vector<CodecSpec> candidates = {Spec("none"), Spec("int8"), Spec("int4"),
                                             Spec("ternary:0.5"), Spec("topk:1%+int4")};
  const auto error = [&](const std::vector<size_t>& way, double* bytes) {
    double lost = 0;
    double energy = 0;
    *bytes = 1024;
    for (size_t i = 0; i < 4; ++i) energy += model.histograms[i].energy();
    for (size_t i = 0; i < 3; ++i) {
      const CodecPrice price = *PriceOf(candidates[way[i]]);
      lost += model.histograms[i].energy() * price.error;
      *bytes += static_cast<double>(model.tensors[i].elements) * price.bits / 8;
    }
    return lost / energy;
  };
  for (const double budget : {10e3, 40e3, 100e3, 200e3, 2e6}) {
    const absl::StatusOr<Spent> spent =
        SpendOnCodecs(model.tensors, model.histograms, candidates, budget);
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
    // The hull's points: no more than one tensor is a candidate away from the best of all.
    EXPECT_LE(spent->error, best + 0.25) << budget;
    EXPECT_GE(spent->error, best - 1e-9) << budget;
  }
}

TEST(SpendOnCodecs, TakesTheCheapestIfNothingFits) {
  const Model model;
  const absl::StatusOr<Spent> spent =
      SpendOnCodecs(model.tensors, model.histograms, {Spec("int8"), Spec("topk:1%+int4")}, 10);
  ASSERT_TRUE(spent.ok());
  EXPECT_EQ(spent->coding.codecs[0], Spec("topk:1%+int4"));
}

TEST(SpendOnCodecs, NamesACodecWhosePriceIsNotKnown) {
  const Model model;
  const absl::StatusOr<Spent> spent = SpendOnCodecs(model.tensors, {}, {Spec("powersgd:4")}, 1e6);
  EXPECT_EQ(spent.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(spent.status().message().find("powersgd:4"), absl::string_view::npos);
  EXPECT_FALSE(SpendOnCodecs(model.tensors, {}, {}, 1e6).ok());
}

}  // namespace
}  // namespace sluice
