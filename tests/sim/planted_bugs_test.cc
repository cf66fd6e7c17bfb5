// The simulation is only worth something if it finds what is wrong: each planted bug, within a few
// seeds.
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/sim/cluster.h"

namespace sluice {
namespace {

constexpr uint64_t kSeedsToFind = 10;

struct BugCase {
  PlantedBug bug;
  const char* name;
  const char* uplink;
  const char* symptom;  // What one of the violations must say.
};

ClusterOptions CaseOptions(const BugCase& c, PlantedBug bug, uint64_t seed) {
  ClusterOptions options;
  options.data_seed = seed;
  options.network_seed = seed;
  options.ranks = 4;
  options.compression.uplink = *ParseCodecSpec(c.uplink);
  options.compression.min_elements = 0;
  options.compression.layout = {.chunk_elements = 256, .bundle_elements = 256};
  options.bug = bug;
  return options;
}

class PlantedBugTest : public testing::TestWithParam<BugCase> {};

TEST_P(PlantedBugTest, IsFound) {
  for (uint64_t seed = 1; seed <= kSeedsToFind; ++seed) {
    const ClusterReport report = RunCluster(CaseOptions(GetParam(), GetParam().bug, seed));
    for (const std::string& violation : report.violations) {
      if (absl::StrContains(violation, GetParam().symptom)) return;
    }
    for (const std::string& violation : report.violations) ADD_FAILURE() << violation;
  }
  FAIL() << "not found within " << kSeedsToFind << " seeds";
}

// Without it the same runs are clean, so it was the bug that was found.
TEST_P(PlantedBugTest, IsAlone) {
  for (uint64_t seed = 1; seed <= kSeedsToFind; ++seed) {
    const ClusterOptions options = CaseOptions(GetParam(), PlantedBug::kNone, seed);
    const ClusterReport report = RunCluster(options);
    EXPECT_TRUE(report.violations.empty()) << Describe(options) << ": " << report.violations[0];
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, PlantedBugTest,
    testing::Values(
        BugCase{PlantedBug::kRetryEncodesAgain, "RetryEncodesAgain", "topk:5%", "failed"},
        BugCase{PlantedBug::kRepeatCountsAgain, "RepeatCountsAgain", "int8", "failed"},
        BugCase{PlantedBug::kResultAppliedTwice, "ResultAppliedTwice", "int8", "other parameters"},
        BugCase{PlantedBug::kSumInArrivalOrder, "SumInArrivalOrder", "fp16", "not the mean"},
        BugCase{PlantedBug::kDividedByWorldSize, "DividedByWorldSize", "none", "not the mean"},
        BugCase{PlantedBug::kResidualLostOnSkip, "ResidualLostOnSkip", "topk:5%", "add up"},
        BugCase{PlantedBug::kResidualTakenBackTwice, "ResidualTakenBackTwice", "ternary:0.5",
                "add up"}),
    [](const testing::TestParamInfo<BugCase>& c) { return std::string(c.param.name); });

}  // namespace
}  // namespace sluice
