// SPDX-License-Identifier: Apache-2.0
#include "planning/estimate/recommendation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/planning/estimate/samples.h"

namespace sluice::planning {
namespace {

using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;

Scenario EightWorkers(double bits_per_second) {
  Scenario scenario = {.model = ResNet50Size(), .workers = 8, .shards = 8};
  scenario.link.bits_per_second = bits_per_second;
  scenario.compute_s = 0.1;
  return scenario;
}

Recommendation Recommended(const Scenario& scenario, const SearchLimits& limits = {}) {
  const absl::StatusOr<Recommendation> recommendation = Recommend(scenario, UsualFigures(), limits);
  EXPECT_TRUE(recommendation.ok()) << recommendation.status();
  return recommendation.value_or(Recommendation{});
}

std::string Codecs(const Recommendation& recommendation) {
  const Scenario& scenario = recommendation.choice.scenario;
  return ToString(scenario.up) + " / " + ToString(scenario.down);
}

TEST(Recommendation, TakesTheMildestCodecsThatHide) {
  EXPECT_EQ(Codecs(Recommended(EightWorkers(1e11))), "fp16 / fp16");
  EXPECT_EQ(Codecs(Recommended(EightWorkers(1e8), {.local_steps = false})),
            "topk:1%+int4 / topk:3%+int4");
}

TEST(Recommendation, IsNearlyAsFastAsTheFastestChoice) {
  for (const double rate : {1e7, 1e8, 3e8, 1e9, 1e10, 1e11}) {
    const Recommendation recommendation = Recommended(EightWorkers(rate));
    EXPECT_LE(recommendation.choice.estimate.time.step_s,
              (1 + kWithin) * recommendation.fastest.estimate.time.step_s);
  }
}

TEST(Recommendation, UsesLocalStepsOnlyOnSlowLinks) {
  EXPECT_EQ(Recommended(EightWorkers(1e9)).choice.scenario.local, LocalSteps{});
  const Recommendation slow = Recommended(EightWorkers(2e6));
  EXPECT_GT(slow.choice.scenario.local.steps, 1u);
  EXPECT_THAT(slow.reasons,
              Contains(Field(&Reason::why, HasSubstr("with an exchange in each step"))));
  EXPECT_EQ(Recommended(EightWorkers(2e6), {.local_steps = false}).choice.scenario.local,
            LocalSteps{});
}

TEST(Recommendation, NeedsTheTimeOfComputingForLocalSteps) {
  Scenario scenario = EightWorkers(2e6);
  scenario.compute_s = 0;
  const Recommendation recommendation = Recommended(scenario);
  EXPECT_EQ(recommendation.choice.scenario.local, LocalSteps{});
  EXPECT_THAT(recommendation.reasons,
              Contains(Field(&Reason::why, "the time of computing is not given")));
}

TEST(Recommendation, TakesTheFewestMachinesIfEverythingHides) {
  Scenario scenario = EightWorkers(1e11);
  scenario.compute_s = 10;  // Everything hides.
  const Scenario& chosen = Recommended(scenario).choice.scenario;
  EXPECT_EQ(chosen.placement, Placement::kWithWorkers);
  EXPECT_EQ(ToString(chosen.up), "fp16");
  EXPECT_EQ(chosen.shards, 1u);
}

TEST(Recommendation, KeepsWhatIsGiven) {
  Scenario scenario = EightWorkers(1e8);
  scenario.up = Spec("int4");
  scenario.down = Spec("int8");
  scenario.shards = 3;
  scenario.placement = Placement::kSeparate;
  const Recommendation recommendation = Recommended(
      scenario, {.codecs = false, .shards = false, .placement = false, .local_steps = false});
  EXPECT_EQ(Codecs(recommendation), "int4 / int8");
  EXPECT_EQ(recommendation.choice.scenario.shards, 3u);
  EXPECT_EQ(recommendation.choice.scenario.placement, Placement::kSeparate);
  EXPECT_EQ(recommendation.considered, 1u);
  EXPECT_THAT(recommendation.reasons, Contains(Field(&Reason::why, "as given")));
}

TEST(Recommendation, NeverMovesProcessesAwayFromOneMachine) {
  Scenario scenario = EightWorkers(1e8);
  scenario.placement = Placement::kOneMachine;
  EXPECT_EQ(Recommended(scenario).choice.scenario.placement, Placement::kOneMachine);
}

TEST(Recommendation, ConsidersRelaysOfSites) {
  Scenario scenario = EightWorkers(2e7);
  scenario.model.elements = 1e6;
  scenario.model.tensors = 1;
  scenario.model.small_elements = 0;
  scenario.sites = 2;
  scenario.site_bits_per_second = 1e11;
  const Recommendation recommendation =
      Recommended(scenario, {.codecs = false, .local_steps = false});
  EXPECT_TRUE(recommendation.choice.scenario.relays);
  EXPECT_THAT(recommendation.reasons,
              Contains(Field(&Reason::why, HasSubstr("without relays, a step would take"))));
}

TEST(Recommendation, HasAReasonForEachChoice) {
  std::vector<std::string> whats;
  for (const Reason& reason : Recommended(EightWorkers(1e9)).reasons) {
    whats.push_back(reason.what);
    EXPECT_FALSE(reason.why.empty()) << reason.what;
  }
  EXPECT_EQ(whats, (std::vector<std::string>{"codec up", "codec down", "shards", "placement",
                                             "local steps"}));
}

TEST(Recommendation, RefusesAnImpossibleScenario) {
  Scenario scenario = EightWorkers(1e9);
  scenario.workers = 0;
  EXPECT_FALSE(Recommend(scenario, UsualFigures(), {}).ok());
}

}  // namespace
}  // namespace sluice::planning
