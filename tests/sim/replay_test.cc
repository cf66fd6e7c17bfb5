// SPDX-License-Identifier: Apache-2.0
// Replays jobs that once violated a promise. Each script is independent of the generator;
// docs/simulation.md describes the format.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "tests/sim/replay_script.h"
#include "tests/sim/sim_failure.h"

namespace sluice {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// SLUICE_SIM_REPLAY=FILE runs only that file.
std::vector<std::string> Scripts() {
  if (const char* path = std::getenv("SLUICE_SIM_REPLAY"); path != nullptr) return {path};
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(SLUICE_REPLAYS)) {
    if (entry.path().extension() == ".replay") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

class ReplayTest : public testing::TestWithParam<std::string> {};

TEST_P(ReplayTest, KeepsEveryPromise) {
  const absl::StatusOr<ReplayScript> script = ParseReplay(ReadAll(GetParam()));
  ASSERT_TRUE(script.ok()) << GetParam() << ": " << script.status().message();
  const SurvivalReport report = RunReplay(*script);
  EXPECT_TRUE(report.violations.empty())
      << GetParam() << "\n  " << absl::StrJoin(report.violations, "\n  ")
      << "\n  before the bug was fixed, the violation was: " << script->shows;
  // The events that the script is about must happen; otherwise the replay tests nothing.
  EXPECT_FALSE(script->expected.empty()) << GetParam();
  for (const auto& [name, count] : script->expected) {
    EXPECT_GE(*CountOf(name, report), count) << GetParam() << ": " << name;
  }
}

std::string NameOfScript(const testing::TestParamInfo<std::string>& info) {
  return std::filesystem::path(info.param).stem().string();
}

INSTANTIATE_TEST_SUITE_P(All, ReplayTest, testing::ValuesIn(Scripts()), NameOfScript);

TEST(ReplayScriptTest, ThereAreScripts) { EXPECT_GE(Scripts().size(), 1u); }

// A script that lists every draw must repeat the run of its seed, also after the script was written
// and parsed.
void ExpectTheSameRun(const ReplayScript& script, const SurvivalReport& report,
                      const std::string& job) {
  const std::string text = FormatReplay(script);
  const absl::StatusOr<ReplayScript> parsed = ParseReplay(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(FormatReplay(*parsed), text);
  const SurvivalReport replayed = RunReplay(*parsed);
  EXPECT_TRUE(replayed.violations.empty()) << absl::StrJoin(replayed.violations, "\n");
  EXPECT_EQ(report.trace_hash, replayed.trace_hash) << job;
  EXPECT_EQ(report.parameters_hash, replayed.parameters_hash) << job;
}

TEST(ReplayScriptTest, GoesAsTheSeedThatItWasWrittenFrom) {
  for (const auto job : {RandomSurvivalOptions, RandomQuorumOptions, RandomElasticOptions,
                         RandomPlanOptions, RandomMeasuredOptions, RandomPlannedAsyncOptions}) {
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      const SurvivalOptions options = job(seed);
      SurvivalReport report;
      const ReplayScript script = Record(options, &report);
      EXPECT_EQ(report.trace_hash, RunSurvival(options).trace_hash)
          << "recording must not change the run";
      ExpectTheSameRun(script, report, Describe(options));
    }
  }
}

TEST(ReplayScriptTest, AJobWithRelaysGoesAsItsSeed) {
  for (uint64_t seed = 1; seed <= 16; ++seed) {
    const RelaySimOptions options = RandomRelayOptions(seed);
    SurvivalReport report;
    const ReplayScript script = Record(options, &report);
    EXPECT_EQ(report.trace_hash, RunRelays(options).all.trace_hash)
        << "recording must not change the run";
    ExpectTheSameRun(script, report, Describe(options));
  }
}

// Draws that a script does not list come from streams independent of the job's seed and generator.
TEST(ReplayScriptTest, WithoutListedDrawsItGoesItsOwnWay) {
  SurvivalReport report;
  ReplayScript script = Record(RandomSurvivalOptions(3), &report);
  script.draws.clear();
  const SurvivalReport first = RunReplay(script);
  EXPECT_TRUE(first.violations.empty()) << absl::StrJoin(first.violations, "\n");
  EXPECT_NE(first.trace_hash, report.trace_hash);
  script.options.fault_seed += 1;
  EXPECT_EQ(first.trace_hash, RunReplay(script).trace_hash);
  script.otherwise += 1;
  EXPECT_NE(first.trace_hash, RunReplay(script).trace_hash);
}

struct BadLine {
  const char* line;
  const char* says;
};

TEST(ReplayScriptTest, AnErrorNamesTheLineAndTheReason) {
  for (const auto& [line, says] :
       {BadLine{"option rank 3", "line 3: there is no option \"rank\""},
        BadLine{"option ranks three", "line 3: option ranks cannot have the value \"three\""},
        BadLine{"option ranks -1", "line 3: option ranks cannot have the value"},
        BadLine{"option elastic true", "cannot have the value \"true\""},
        BadLine{"option compression.uplink zip", "cannot have the value \"zip\""},
        BadLine{"option ranks", "found \"option ranks\""},
        BadLine{"fault 10", "line 3: a fault needs a time and a name"},
        BadLine{"fault soon break", "\"soon\" is no number"},
        BadLine{"fault 10 flood", "there is no fault \"flood\""},
        BadLine{"fault 10 break rank", "a choice is a name"},
        BadLine{"struck flood up/0/0: 1", "a fault of messages must follow"},
        BadLine{"struck delayed up/0/0 1", "a channel with a colon"},
        BadLine{"draws up/0/0:", "a channel with a colon"},
        BadLine{"draws up/0/0: x", "\"x\" is no number"},
        BadLine{"otherwise x", "\"x\" is no number"},
        BadLine{"racks two", "\"two\" is no number"},
        BadLine{"rack_uplink zip", "zip"},
        BadLine{"expect wonders 1", "a report has no count of \"wonders\""},
        BadLine{"expect break often", "\"often\" is no number"},
        BadLine{"faults 1", "a line is a comment or begins with option"}}) {
    const absl::StatusOr<ReplayScript> script =
        ParseReplay(absl::StrCat("sluice-replay 1\n# A comment.\n", line, "\n"));
    ASSERT_FALSE(script.ok()) << line;
    EXPECT_TRUE(absl::StrContains(script.status().message(), says)) << script.status().message();
  }
  EXPECT_EQ(ParseReplay("option ranks 3\n").status().message(),
            "line 1: a replay script begins with \"sluice-replay 1\"");
}

}  // namespace
}  // namespace sluice
