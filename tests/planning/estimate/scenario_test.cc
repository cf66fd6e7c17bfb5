// SPDX-License-Identifier: Apache-2.0
#include "planning/estimate/scenario.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/planning/estimate/samples.h"

namespace sluice::planning {
namespace {

using ::testing::HasSubstr;

std::string ErrorWith(const std::function<void(Scenario*)>& change) {
  Scenario scenario = DenseMillion(4, 2);
  EXPECT_TRUE(CheckScenario(scenario).ok());
  change(&scenario);
  return std::string(CheckScenario(scenario).message());
}

TEST(Scenario, NamesFiguresOutsideTheirLimits) {
  EXPECT_THAT(ErrorWith([](Scenario* s) { s->workers = 0; }),
              HasSubstr("the number of workers is 0; it must be from 1 to 100000"));
  EXPECT_THAT(ErrorWith([](Scenario* s) { s->shards = 257; }), HasSubstr("the number of shards"));
  EXPECT_THAT(ErrorWith([](Scenario* s) { s->model.elements = 0; }), HasSubstr("parameters"));
  EXPECT_THAT(ErrorWith([](Scenario* s) { s->link.bits_per_second = -1; }),
              HasSubstr("the link rate is -1 bit/s"));
  EXPECT_THAT(ErrorWith([](Scenario* s) { s->link.bits_per_second = std::nan(""); }),
              HasSubstr("the link rate"));
  EXPECT_THAT(ErrorWith([](Scenario* s) { s->link.latency_s = -0.1; }), HasSubstr("the latency"));
  EXPECT_THAT(ErrorWith([](Scenario* s) { s->compute_s = -1; }), HasSubstr("the compute time"));
  EXPECT_THAT(ErrorWith([](Scenario* s) { s->overlap = 1.5; }), HasSubstr("the overlap"));
  EXPECT_THAT(ErrorWith([](Scenario* s) { s->sites = 5; }), HasSubstr("the number of sites"));
}

TEST(Scenario, NamesContradictions) {
  EXPECT_THAT(ErrorWith([](Scenario* s) { s->relays = true; }), HasSubstr("relays need sites"));
  EXPECT_THAT(ErrorWith([](Scenario* s) { s->sites = 3; }),
              HasSubstr("4 workers cannot be divided evenly among 3 sites"));
  EXPECT_THAT(ErrorWith([](Scenario* s) {
                s->sites = 2;
                s->placement = Placement::kOneMachine;
              }),
              HasSubstr("one machine has no sites"));
  EXPECT_THAT(ErrorWith([](Scenario* s) { s->local = {.steps = 10, .fragments = 4}; }),
              HasSubstr("4 fragments do not divide 10 local steps"));
  EXPECT_THAT(ErrorWith([](Scenario* s) { s->local = {.steps = 8, .fragments = 4, .delay = 2}; }),
              HasSubstr("a delay of 2 steps"));
}

TEST(Scenario, CountsSenders) {
  Scenario scenario = DenseMillion(12, 2);
  EXPECT_EQ(Links(scenario), 12u);
  EXPECT_EQ(Senders(scenario), 12u);
  scenario.sites = 3;
  EXPECT_EQ(Links(scenario), 3u);
  EXPECT_EQ(SendersPerLink(scenario), 4u);
  EXPECT_EQ(Senders(scenario), 12u);
  scenario.relays = true;
  EXPECT_EQ(SendersPerLink(scenario), 1u);
  EXPECT_EQ(Senders(scenario), 3u);
}

}  // namespace
}  // namespace sluice::planning
