// SPDX-License-Identifier: Apache-2.0
#include "server/control/accuracy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/random.h"
#include "tests/server/control/small_tensors.h"

namespace sluice::server {
namespace {

AccuracyOptions Options(const char* sparse) {
  AccuracyOptions options;
  options.ranks = 2;
  options.tensors = {{.elements = 1000000}};
  options.sparse = *compress::ParseCodecSpec(sparse);
  options.reference = {{100, 50}, {1000, 80}, {5000, 90}};
  return options;
}

StepMeasurements At(uint64_t step, std::optional<double> metric) {
  StepMeasurements measured;
  measured.step = step;
  if (metric) measured.validation = {.step = step, .metric = *metric};
  return measured;
}

TEST(Accuracy, ReadsTheReferenceOffAtAnyStep) {
  const std::vector<job::CurvePoint> curve = Options("topk:1%").reference;
  EXPECT_FALSE(MetricAt(curve, 99).has_value());
  EXPECT_EQ(MetricAt(curve, 100), 50);
  EXPECT_NEAR(*MetricAt(curve, 550), 65, 1e-9);
  EXPECT_EQ(MetricAt(curve, 5000), 90);
  EXPECT_EQ(MetricAt(curve, 1000000), 90);
}

TEST(Accuracy, SendsMoreAtOnceWhereARunFallsBehind) {
  auto policy = *MakeAccuracyPolicy(Options("topk:0.1%"));
  EXPECT_NEAR(policy->First().up[1].codecs[0].level, 0.001, 1e-12);
  EXPECT_FALSE(policy->Next(At(50, 0)).has_value()) << "the reference begins after step 50";
  EXPECT_FALSE(policy->Next(At(1000, std::nullopt)).has_value());
  EXPECT_FALSE(policy->Next(At(1000, std::nan(""))).has_value());
  EXPECT_FALSE(policy->Next(At(5000, 89.3)).has_value()) << "a single low test has no effect";
  const auto more = policy->Next(At(5000, 89.3));
  ASSERT_TRUE(more.has_value());
  EXPECT_NEAR(more->down.codecs[0].level, 0.002, 1e-12);
  EXPECT_NE(more->reason.find("89.30 % at step 5000"), std::string::npos) << more->reason;
  // Density rises more the further the metric is below the reference, but less if reports are
  // scattered.
  EXPECT_NEAR(policy->Next(At(5000, 88.4))->down.codecs[0].level, 0.004, 1e-12);
  EXPECT_NEAR(policy->Next(At(5000, 40))->down.codecs[0].level, 0.016, 1e-12);
  for (int i = 0; i < 10; ++i) policy->Next(At(5000 + i, 0));
  EXPECT_FALSE(policy->Next(At(6000, 0)).has_value()) << "the density is already at density_max";
}

// Early in a run, the metric rises fast and every run lags. The test expects that the allowed lag
// shrinks towards the end of the run.
TEST(Accuracy, ARunMayBeBehindInTimeAndLessSoTowardsTheEnd) {
  auto policy = *MakeAccuracyPolicy(Options("topk:1%"));
  // The allowed lag is a quarter of 1000 steps x the four fifths that remain, so the policy
  // compares with the reference at step 800.
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(policy->Next(At(1000, 73)).has_value());
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(policy->Next(At(1000, 72.7)).has_value());
  const auto more = policy->Next(At(1000, 72.7));
  ASSERT_TRUE(more.has_value());
  EXPECT_NE(more->reason.find("73.33 % at step 800"), std::string::npos) << more->reason;
  // At step 4900, the allowed lag is only 24 steps.
  policy = *MakeAccuracyPolicy(Options("topk:1%"));
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(policy->Next(At(4900, 89.3)).has_value());
  policy = *MakeAccuracyPolicy(Options("topk:1%"));
  EXPECT_FALSE(policy->Next(At(4900, 89.1)).has_value());
  EXPECT_TRUE(policy->Next(At(4900, 89.1)).has_value());
}

TEST(Accuracy, SendsLessAfterSomeGoodReports) {
  auto policy = *MakeAccuracyPolicy(Options("topk:10%"));
  EXPECT_FALSE(policy->Next(At(5000, 90)).has_value());
  EXPECT_FALSE(policy->Next(At(5100, 90)).has_value());
  EXPECT_FALSE(policy->Next(At(5200, 89.2)).has_value())
      << "the mean lag is more than half the tolerance";
  EXPECT_FALSE(policy->Next(At(5300, 89.9)).has_value());
  const auto less = policy->Next(At(5400, 90.2));
  ASSERT_TRUE(less.has_value());
  EXPECT_NEAR(less->up[0].codecs[0].level, 0.05, 1e-12);
}

TEST(Accuracy, APointOfTheReferenceThatStandsOutDoesNotCount) {
  AccuracyOptions options = Options("topk:1%");
  options.reference = {{100, 50}, {1000, 80}, {2000, 95}, {3000, 82}, {4000, 84}};
  auto policy = *MakeAccuracyPolicy(options);
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(policy->Next(At(2000, 81)).has_value());
  // At the end of the reference, no lag is allowed: the last point counts.
  policy = *MakeAccuracyPolicy(options);
  EXPECT_FALSE(policy->Next(At(4000, 83)).has_value());
  EXPECT_TRUE(policy->Next(At(4000, 83)).has_value());
}

// The metric of a synthetic job lags behind the reference, depending on its density and on noise.
// The run must end within the tolerance, whether the first density is too low or too high. The test
// does not prove that real training behaves like this job.
TEST(Accuracy, EndsWithinTheToleranceFromEitherSide) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    for (const char* first : {"topk:0.05%", "topk:10%"}) {
      AccuracyOptions options = Options(first);
      auto policy = *MakeAccuracyPolicy(options);
      CounterRandom random(seed);
      double density = policy->First().down.codecs[0].level;
      double lag = 0;
      double mean_lag = 0;
      double mean_density = 0;
      for (int report = 0; report < 60; ++report) {
        const double wanted = 2.5 * std::pow(0.0005 / density, 0.7);
        lag += 0.3 * (wanted - lag);
        const double noise = 0.1 * Normal(&random);
        if (report >= 40) {
          mean_lag += lag / 20;
          mean_density += density / 20;
        }
        if (auto choice = policy->Next(At(5000 + 100 * report, 90 - lag + noise))) {
          density = choice->down.codecs[0].level;
        }
      }
      EXPECT_LE(mean_lag, 0.5) << "seed " << seed << " from " << first;
      EXPECT_LE(mean_density, 0.02) << "seed " << seed << " from " << first;
    }
  }
}

TEST(Accuracy, RefusesWhatCannotBe) {
  AccuracyOptions options = Options("int8");
  EXPECT_FALSE(MakeAccuracyPolicy(options).ok());
  options = Options("topk:1%");
  options.reference.clear();
  EXPECT_FALSE(MakeAccuracyPolicy(options).ok());
  options = Options("topk:1%");
  options.reference[1].step = 100;
  EXPECT_FALSE(MakeAccuracyPolicy(options).ok());
  options = Options("topk:1%");
  options.reference[1].metric = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(MakeAccuracyPolicy(options).ok());
  options = Options("topk:1%");
  options.tolerance = 0;
  EXPECT_FALSE(MakeAccuracyPolicy(options).ok());
  options = Options("topk:1%");
  options.density_min = 0.5;
  EXPECT_FALSE(MakeAccuracyPolicy(options).ok());
  options = Options("topk:1%");
  options.ranks = 0;
  EXPECT_FALSE(MakeAccuracyPolicy(options).ok());
}

}  // namespace
}  // namespace sluice::server
