// SPDX-License-Identifier: Apache-2.0
#include "cli/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/temporary_folder.h"

namespace sluice::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Ran {
  int code = 0;
  std::string out;
  std::string err;
};

Ran SimulateAll(const SimulateCommand& command) {
  std::ostringstream out;
  std::ostringstream err;
  const int code = SimulateJob(command, out, err);
  return {code, out.str(), err.str()};
}

SimulateCommand Small() {
  SimulateCommand command;
  command.workers = 4;
  command.servers = 2;
  command.steps = 6;
  command.jitter = 0.1;
  return command;
}

std::string ReadAll(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(SimulateTest, EqualFlagsGiveEqualTexts) {
  const Ran first = SimulateAll(Small());
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.out, AllOf(HasSubstr("4 workers and 2 servers"), HasSubstr("seed 1"),
                               HasSubstr("shards, up"), HasSubstr("exchange  p50")));
  EXPECT_EQ(SimulateAll(Small()).out, first.out);
  SimulateCommand other = Small();
  other.seed = 2;
  EXPECT_NE(SimulateAll(other).out, first.out);
}

TEST(SimulateTest, WritesAReportAndCharts) {
  const TemporaryFolder folder;
  SimulateCommand command = Small();
  command.report_path = folder.path() + "/report.json";
  command.plot_folder = folder.path() + "/charts";
  ASSERT_EQ(SimulateAll(command).code, 0);
  const nlohmann::json report = nlohmann::json::parse(ReadAll(command.report_path));
  EXPECT_EQ(report.at("steps").size(), 6u);
  EXPECT_GT(report.at("step_s").at("p50"), 0.05);
  for (const char* chart : {"/steps.svg", "/loads.svg"}) {
    EXPECT_THAT(ReadAll(command.plot_folder + chart),
                AllOf(HasSubstr("<svg"), HasSubstr("</svg>")));
  }
}

TEST(SimulateTest, ATraceOfFailuresLowersTheGoodput) {
  const TemporaryFolder folder;
  SimulateCommand command = Small();
  command.failures_path = folder.path() + "/trace";
  std::ofstream(command.failures_path) << "0.2 1 down\n0.7 1 up\n";
  const Ran ran = SimulateAll(command);
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("failures  1, goodput"));
  std::ofstream(command.failures_path) << "0.2 9 down\n";
  const Ran wrong = SimulateAll(command);
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, AllOf(HasSubstr("--failures"), HasSubstr("line 1"), HasSubstr("\"9\"")));
}

TEST(SimulateTest, GoodputOfThreeWaysToTrain) {
  SimulateCommand command;
  command.goodput = true;
  command.workers = 1000;
  command.mtbf = "100h";
  command.duration = "2h";
  command.compute_ms = 1000;
  const Ran ran = SimulateAll(command);
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, AllOf(HasSubstr("1000 workers"), HasSubstr("elastic")));
}

TEST(SimulateTest, WrongFlagsAreNamed) {
  const auto error = [](auto change) {
    SimulateCommand command = Small();
    change(&command);
    const Ran ran = SimulateAll(command);
    EXPECT_EQ(ran.code, 2) << ran.err;
    return ran.err;
  };
  EXPECT_THAT(error([](auto* of) { of->link_rate = "fast"; }), HasSubstr("--link-rate"));
  EXPECT_THAT(error([](auto* of) { of->latency = "3"; }), HasSubstr("--latency"));
  EXPECT_THAT(error([](auto* of) { of->stragglers = {"1"}; }), HasSubstr("--straggler"));
  EXPECT_THAT(error([](auto* of) { of->stragglers = {"7:2"}; }), HasSubstr("straggler 7"));
  EXPECT_THAT(error([](auto* of) { of->model = "zebra"; }), HasSubstr("--model"));
  EXPECT_THAT(error([](auto* of) { of->job_path = "/nowhere.yaml"; }), HasSubstr("/nowhere.yaml"));
  EXPECT_THAT(error([](auto* of) { of->failures_path = "/nowhere"; }), HasSubstr("/nowhere"));
  EXPECT_THAT(error([](auto* of) { of->mtbf = "-1h"; }), HasSubstr("--mtbf"));
}

}  // namespace
}  // namespace sluice::cli
