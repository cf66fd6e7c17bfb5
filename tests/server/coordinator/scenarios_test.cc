// SPDX-License-Identifier: Apache-2.0
// Runs the scripted scenarios of the coordinator. scenario_run.h describes them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/server/coordinator/scenario_run.h"

namespace sluice::server {
namespace {

std::vector<std::string> Files() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(SLUICE_SCENARIOS)) {
    names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Splits a file into the text before the first scenario and the scenarios.
std::vector<std::string> Sections(const std::string& text) {
  std::vector<std::string> sections;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t next = text.find("\nscenario ", begin + 1);
    const size_t end = next == std::string::npos ? text.size() : next + 1;
    sections.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return sections;
}

class CoordinatorScenarios : public ::testing::TestWithParam<std::string> {};

TEST_P(CoordinatorScenarios, HaveTheEffectsThatTheFileLists) {
  const std::filesystem::path path =
      std::filesystem::path(SLUICE_SCENARIOS) / (GetParam() + ".txt");
  std::ifstream in(path);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  ASSERT_FALSE(text.empty()) << path;
  std::string seen;
  for (const std::string& section : Sections(text)) {
    SCOPED_TRACE(section.substr(0, section.find('\n')));
    const std::string now = RunScenario(section);
    EXPECT_EQ(section, now) << "read scenario_run.h";
    seen += now;
  }
  if (std::getenv("SLUICE_REWRITE_SCENARIOS") != nullptr) std::ofstream(path) << seen;
}

INSTANTIATE_TEST_SUITE_P(All, CoordinatorScenarios, ::testing::ValuesIn(Files()),
                         [](const auto& file) { return file.param; });

TEST(ScenarioText, AScenarioWithOtherEffectsIsNoticed) {
  const std::string right = RunScenario("scenario A job\njob\nattach 2\n");
  EXPECT_EQ(RunScenario(right), right);
  EXPECT_NE(right.find("INVALID_ARGUMENT"), std::string::npos) << right;
  EXPECT_NE(RunScenario("scenario A job\njob\nattach 1\n"), right);
}

}  // namespace
}  // namespace sluice::server
