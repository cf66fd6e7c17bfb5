// Seeds by the hundred. To run one again: SLUICE_SIM_SEED=<seed>; for more:
// SLUICE_SIM_SEEDS=<count>.
#include "tests/sim/cluster.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/sim/seeds.h"

namespace sluice {
namespace {

constexpr uint64_t kSeeds = 4000;

std::string Failure(const ClusterOptions& options, const ClusterReport& report) {
  const size_t shown = std::min<size_t>(report.violations.size(), 8);
  return absl::StrCat(
      "SLUICE_SIM_SEED=", options.data_seed, " (", Describe(options), ")\n  ",
      absl::StrJoin(report.violations.begin(), report.violations.begin() + shown, "\n  "));
}

TEST(ClusterTest, PromisesHoldForEverySeed) {
  ClusterReport total;
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + SeedCount(kSeeds); ++seed) {
    const ClusterOptions options = RandomClusterOptions(seed);
    const ClusterReport report = RunCluster(options);
    ASSERT_TRUE(report.violations.empty()) << Failure(options, report);
    total.breaks += report.breaks;
    total.repeats += report.repeats;
    total.late += report.late;
    total.busy += report.busy;
    total.not_finite += report.not_finite;
  }
  if (SeedCount(kSeeds) < 100) return;
  // The faults were really there.
  EXPECT_GT(total.breaks, SeedCount(kSeeds));
  EXPECT_GT(total.repeats, SeedCount(kSeeds));
  EXPECT_GT(total.late, SeedCount(kSeeds) / 4);
  EXPECT_GT(total.busy, SeedCount(kSeeds) / 4);
  EXPECT_GT(total.not_finite, SeedCount(kSeeds) / 4);
}

TEST(ClusterTest, EveryCodecBothWays) {
  for (const char* spec :
       {"none", "fp16", "bf16", "int8", "topk:1%", "topk:5%+int4", "ternary:0.5", "topk:5%/noef"}) {
    for (uint64_t seed = FirstSeed(); seed < FirstSeed() + 5; ++seed) {
      ClusterOptions options = RandomClusterOptions(seed);
      options.compression.uplink = *ParseCodecSpec(spec);
      options.compression.downlink = options.compression.uplink;
      options.compression.min_elements = 0;
      options.ranks = 3;
      options.check_balance = options.compression.uplink.error_feedback();
      const ClusterReport report = RunCluster(options);
      ASSERT_TRUE(report.violations.empty()) << Failure(options, report);
    }
  }
}

// Memories of both ends move once for each frame, whatever the network does to it.
TEST(ClusterTest, CompensatorsWithAMemory) {
  for (const char* spec : {"topk:5%/ef21", "int4/ef21", "intsum:4/ef21", "qsgd:4/diana"}) {
    for (uint64_t seed = FirstSeed(); seed < FirstSeed() + 10; ++seed) {
      ClusterOptions options = RandomClusterOptions(seed);
      options.compression.uplink = *ParseCodecSpec(spec);
      options.compression.downlink = *ParseCodecSpec("int8");
      options.compression.min_elements = 0;
      options.check_balance = false;  // Nothing is owed; memories have no such balance.
      const ClusterReport report = RunCluster(options);
      ASSERT_TRUE(report.violations.empty()) << Failure(options, report);
    }
  }
}

TEST(ClusterTest, OneSeedGivesOneRun) {
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + 20; ++seed) {
    const ClusterOptions options = RandomClusterOptions(seed);
    const ClusterReport first = RunCluster(options);
    const ClusterReport second = RunCluster(options);
    ASSERT_EQ(first.trace_hash, second.trace_hash) << Describe(options);
    ASSERT_EQ(first.results_hash, second.results_hash) << Describe(options);
  }
}

TEST(ClusterTest, ResultsDoNotDependOnTheNetwork) {
  uint64_t different_runs = 0;
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + 20; ++seed) {
    ClusterOptions options = RandomClusterOptions(seed);
    const ClusterReport first = RunCluster(options);
    ASSERT_TRUE(first.violations.empty()) << Failure(options, first);
    for (uint64_t network = 1000; network < 1003; ++network) {
      options.network_seed = network;
      const ClusterReport other = RunCluster(options);
      ASSERT_TRUE(other.violations.empty()) << Failure(options, other);
      EXPECT_EQ(first.results_hash, other.results_hash) << Describe(options);
      if (first.trace_hash != other.trace_hash) ++different_runs;
    }
  }
  EXPECT_EQ(different_runs, 60);
}

TEST(ClusterTest, OtherDataGivesOtherResults) {
  ClusterOptions options = RandomClusterOptions(FirstSeed());
  const ClusterReport first = RunCluster(options);
  ++options.data_seed;
  EXPECT_NE(first.results_hash, RunCluster(options).results_hash);
}

}  // namespace
}  // namespace sluice
