// SPDX-License-Identifier: Apache-2.0
// Runs several hundred seeds. SLUICE_SIM_SEED=<seed> repeats one seed; SLUICE_SIM_SEEDS=<count>
// changes their number.
#include "tests/sim/survival.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "tests/sim/seeds.h"
#include "tests/sim/sim_failure.h"

namespace sluice {
namespace {

// Sanitizers make a run about ten times slower. With so few seeds, tests do not check how often
// each fault struck.
#ifdef SLUICE_SANITIZED
constexpr uint64_t kSurvivalSeeds = 60;
#else
constexpr uint64_t kSurvivalSeeds = 1'000;
#endif

void Add(const SurvivalReport& report, SurvivalReport* total) {
  for (const auto& [fault, count] : report.faults) total->faults[fault] += count;
  total->delivered += report.delivered;
  total->rollbacks += report.rollbacks;
  total->shards_replayed += report.shards_replayed;
  total->ranks_reexecuted += report.ranks_reexecuted;
  total->checkpoints += report.checkpoints;
  total->damaged_refused += report.damaged_refused;
  total->repeats += report.repeats;
  total->busy += report.busy;
  total->not_finite += report.not_finite;
  total->not_reproducible += report.not_reproducible;
}

TEST(SurvivalTest, EveryStepGoesAsInTheReferenceForEverySeed) {
  SurvivalReport total;
  const uint64_t seeds = SeedCount(kSurvivalSeeds);
  uint64_t alarms = 0;
  uint64_t timeouts = 0;
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + seeds; ++seed) {
    const SurvivalOptions options = RandomSurvivalOptions(seed);
    const SurvivalReport report = RunSurvival(options);
    ASSERT_TRUE(report.violations.empty()) << Failure(options, report);
    Add(report, &total);
    alarms += report.ended_by_alarm ? 1 : 0;
    timeouts += report.ended_by_timeout ? 1 : 0;
  }
  const auto record = [](const std::string& name, uint64_t count) {
    RecordProperty(name, static_cast<int>(count));
    GTEST_LOG_(INFO) << name << " " << count;
  };
  uint64_t faults = 0;
  for (const auto& [fault, count] : total.faults) {
    record(ToString(fault), count);
    if (fault != Fault::kDelayed) faults += count;
  }
  record("delivered per seed", total.delivered / seeds);
  record("faults", faults);
  record("rollbacks", total.rollbacks);
  record("shards replayed", total.shards_replayed);
  record("ranks executed again", total.ranks_reexecuted);
  record("checkpoints", total.checkpoints);
  record("damaged files refused", total.damaged_refused);
  record("repeats", total.repeats);
  record("busy", total.busy);
  record("bundles not finite", total.not_finite);
  record("not reproducible", total.not_reproducible);
  record("ended by an alarm", alarms);
  record("ended by a timeout", timeouts);
  if (seeds < 100) return;
  // The messages and faults must have occurred often enough.
  EXPECT_GT(total.delivered, 200 * seeds);
  EXPECT_GT(faults, 3 * seeds);
  for (const Fault fault : kMessageFaults) EXPECT_GT(33 * total.faults[fault], seeds);
  for (const Fault fault : kScheduledFaults) {
    EXPECT_GT(33 * total.faults[fault], seeds) << ToString(fault);
  }
  EXPECT_GT(timeouts, seeds / 300);
  EXPECT_GT(total.checkpoints, seeds);
  EXPECT_GT(total.repeats, seeds);
  EXPECT_GT(4 * total.busy, seeds);
  EXPECT_GT(4 * total.not_finite, seeds);
}

TEST(SurvivalTest, EveryCodecBothWays) {
  for (const char* spec :
       {"none", "fp16", "bf16", "int8", "topk:1%", "topk:5%+int4", "ternary:0.5", "topk:5%/noef"}) {
    for (uint64_t seed = FirstSeed(); seed < FirstSeed() + 5; ++seed) {
      SurvivalOptions options = RandomSurvivalOptions(seed);
      options.compression.uplink = *compress::ParseCodecSpec(spec);
      options.compression.downlink = options.compression.uplink;
      options.compression.min_elements = 0;
      options.ranks = 3;
      const SurvivalReport report = RunSurvival(options);
      ASSERT_TRUE(report.violations.empty()) << Failure(options, report);
    }
  }
}

// The compensators' state at both ends must advance once per frame, whatever faults strike the
// frame.
TEST(SurvivalTest, CompensatorsWithAMemory) {
  for (const char* spec : {"topk:5%/ef21", "int4/ef21", "intsum:4/ef21", "qsgd:4/diana"}) {
    for (uint64_t seed = FirstSeed(); seed < FirstSeed() + 10; ++seed) {
      SurvivalOptions options = RandomSurvivalOptions(seed);
      options.compression.uplink = *compress::ParseCodecSpec(spec);
      options.compression.downlink = *compress::ParseCodecSpec("int8");
      options.compression.min_elements = 0;
      const SurvivalReport report = RunSurvival(options);
      ASSERT_TRUE(report.violations.empty()) << Failure(options, report);
    }
  }
}

TEST(SurvivalTest, OneSeedGivesOneRun) {
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + 20; ++seed) {
    const SurvivalOptions options = RandomSurvivalOptions(seed);
    const SurvivalReport first = RunSurvival(options);
    const SurvivalReport second = RunSurvival(options);
    ASSERT_EQ(first.trace_hash, second.trace_hash) << Describe(options);
    ASSERT_EQ(first.parameters_hash, second.parameters_hash) << Describe(options);
  }
}

TEST(SurvivalTest, OtherDataGivesOtherParameters) {
  SurvivalOptions options = UsualJob(1);
  const uint32_t first = RunSurvival(options).parameters_hash;
  ++options.data_seed;
  EXPECT_NE(first, RunSurvival(options).parameters_hash);
}

TEST(SurvivalTest, OtherDelaysGiveTheSameParameters) {
  SurvivalOptions options = UsualJob(1);
  const SurvivalReport first = RunSurvival(options);
  ++options.fault_seed;
  const SurvivalReport second = RunSurvival(options);
  EXPECT_NE(first.trace_hash, second.trace_hash);
  EXPECT_EQ(first.parameters_hash, second.parameters_hash);
}

}  // namespace
}  // namespace sluice
