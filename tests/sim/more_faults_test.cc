// SPDX-License-Identifier: Apache-2.0
// Jobs with many more faults than the usual seeds. The faults follow one another throughout the
// run, so that each fault meets the state that the previous one left behind.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "base/random.h"
#include "tests/sim/relay_sim.h"
#include "tests/sim/seeds.h"
#include "tests/sim/sim_failure.h"
#include "tests/sim/survival.h"

namespace sluice {
namespace {

#ifdef SLUICE_SANITIZED
constexpr uint64_t kMoreFaultsSeeds = 10;
#else
constexpr uint64_t kMoreFaultsSeeds = 150;
#endif
constexpr size_t kFaults = 24;

// Draws a fault. It excludes kOtherBytes, which may end the job before the other faults strike.
Fault SomeFault(CounterRandom* random, bool elastic) {
  if (elastic && random->Below(4) == 0) {
    return random->Below(2) == 0 ? Fault::kAway : Fault::kGivesUp;
  }
  Fault fault = Fault::kOtherBytes;
  while (fault == Fault::kOtherBytes) {
    fault = kScheduledFaults[random->Below(std::size(kScheduledFaults))];
  }
  return fault;
}

void ExpectSurvives(SurvivalOptions (*job)(uint64_t seed)) {
  const uint64_t seeds = SeedCount(kMoreFaultsSeeds);
  uint64_t struck = 0;
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + seeds; ++seed) {
    SurvivalOptions options = job(seed);
    CounterRandom random(seed, 28);
    options.checkpoint_interval =
        std::max<uint64_t>(options.checkpoint_interval, 1 + random.Below(6));
    options.steps = 60 + random.Below(80);
    // With checkpoints, a shard under memory pressure would drop results that replay needs.
    options.tight_memory = false;
    options.rejoin_us = SurvivalOptions().rejoin_us;
    options.faults.clear();
    while (options.faults.size() < kFaults) {
      options.faults.push_back(SomeFault(&random, options.elastic));
    }
    const SurvivalReport report = RunSurvival(options);
    ASSERT_TRUE(report.violations.empty()) << Failure(options, report);
    for (const Fault fault : kScheduledFaults) {
      const auto count = report.faults.find(fault);
      if (count != report.faults.end()) struck += count->second;
    }
  }
  GTEST_LOG_(INFO) << "faults that struck, per job: " << static_cast<double>(struck) / seeds;
  if (seeds < 20) return;
  EXPECT_GT(struck, 10 * seeds);
}

// Jobs with relays take longer, so that fewer of them run.
TEST(MoreFaultsTest, Relays) {
  const uint64_t seeds = SeedCount(kMoreFaultsSeeds / 5);
  uint64_t struck = 0;
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + seeds; ++seed) {
    RelaySimOptions options = RandomRelayOptions(seed);
    CounterRandom random(seed, 28);
    options.above.checkpoint_interval =
        std::max<uint64_t>(options.above.checkpoint_interval, 1 + random.Below(6));
    options.above.steps = 60 + random.Below(80);
    options.faults.clear();
    while (options.faults.size() < kFaults) options.faults.push_back(SomeRelayStrike(&random));
    const RelaySimReport report = RunRelays(options);
    ASSERT_TRUE(report.all.violations.empty()) << Failure(options, report);
    for (const auto* level : {&report.faults_above, &report.faults_in_racks}) {
      for (const auto& [fault, count] : *level) struck += count;
    }
  }
  GTEST_LOG_(INFO) << "faults that struck, per job: " << static_cast<double>(struck) / seeds;
  if (seeds < 20) return;
  EXPECT_GT(struck, 10 * seeds);
}

TEST(MoreFaultsTest, Fixed) { ExpectSurvives(RandomSurvivalOptions); }
TEST(MoreFaultsTest, Quorum) { ExpectSurvives(RandomQuorumOptions); }
TEST(MoreFaultsTest, Elastic) { ExpectSurvives(RandomElasticOptions); }
TEST(MoreFaultsTest, Async) { ExpectSurvives(RandomAsyncOptions); }
TEST(MoreFaultsTest, PlannedAsync) { ExpectSurvives(RandomPlannedAsyncOptions); }
TEST(MoreFaultsTest, Planned) { ExpectSurvives(RandomPlanOptions); }
TEST(MoreFaultsTest, Measured) { ExpectSurvives(RandomMeasuredOptions); }

}  // namespace
}  // namespace sluice
