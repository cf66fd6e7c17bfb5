// SPDX-License-Identifier: Apache-2.0
#include "cli/estimate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/calibration.h"
#include "tests/temporary_folder.h"

namespace sluice::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kJob[] =
    "name: small\nworkers: 4\nshards: 2\nmodel: {name: simple_cnn}\ndata: {format: idx, path: /d}\n"
    "batch_size_per_worker: 8\nsteps: 10\noptimizer: {lr: 0.1}\n"
    "compression: {uplink: int8, downlink: int4}\n";

EstimateCommand ResNet() {
  EstimateCommand command;
  command.model = "resnet50";
  command.workers = 8;
  command.compute_ms = 50;
  return command;
}

struct Outcome {
  int code = 0;
  std::string out;
  std::string err;
};
Outcome Estimated(const EstimateCommand& command) {
  std::ostringstream out, err;
  const int code = RunEstimate(command, out, err);
  return {code, out.str(), err.str()};
}

std::string Write(const TemporaryFolder& folder, const char* name, const std::string& text) {
  const std::string path = folder.path() + "/" + name;
  WriteText(path, text);
  return path;
}

std::string ErrorOf(const EstimateCommand& command) {
  const Outcome outcome = Estimated(command);
  EXPECT_EQ(outcome.code, 2) << outcome.out;
  EXPECT_THAT(outcome.out, "");
  EXPECT_THAT(outcome.err, StartsWith("error: "));
  return outcome.err;
}

TEST(EstimateCommand, ShowsDenseColumnsAndARecommendationWithUnits) {
  const Outcome outcome = Estimated(ResNet());
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              AllOf(StartsWith("resnet50: 25.56 million parameters, 8 workers, links of 1 Gb/s"),
                    HasSubstr("dense fp32"), HasSubstr("dense fp16"), HasSubstr("recommended"),
                    HasSubstr("topk:1%+int4"), HasSubstr(" ms"), HasSubstr(" MB"),
                    HasSubstr("egress, 1000 steps"), HasSubstr(" GB"), HasSubstr(" %")));
  EXPECT_THAT(outcome.out, Not(HasSubstr("its price")));
  EXPECT_THAT(outcome.out, Not(HasSubstr("as given")));
}

TEST(EstimateCommand, ShowsTheGivenCodecs) {
  EstimateCommand command = ResNet();
  command.spec = "int4";
  command.egress_price = 0.02;
  command.shards = 2;
  const Outcome outcome = Estimated(command);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("as given"), HasSubstr("its price")));
}

TEST(EstimateCommand, WritesJsonThatAddsUp) {
  EstimateCommand command = ResNet();
  command.json = true;
  command.spec = "int8";
  command.egress_price = 0.5;
  const Outcome outcome = Estimated(command);
  const nlohmann::json json = nlohmann::json::parse(outcome.out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << outcome.out << outcome.err;
  ASSERT_EQ(json["estimates"].size(), 4u);
  EXPECT_EQ(json["recommended"], 3);
  const nlohmann::json& given = json["estimates"][0];
  EXPECT_EQ(given["name"], "as given");
  EXPECT_EQ(given["codec_up"], "int8");
  EXPECT_EQ(given["codec_down"], "int8");
  EXPECT_NEAR(given["step_ms"].get<double>(), 50 + given["exposed_ms"].get<double>(), 1e-6);
  EXPECT_NEAR(given["efficiency"].get<double>(), 50 / given["step_ms"].get<double>(), 1e-9);
  EXPECT_NEAR(given["egress_cost_per_step"].get<double>(),
              0.5e-9 * given["egress_bytes_per_step"].get<double>(), 1e-12);
  EXPECT_FALSE(json["reasons"].empty());
}

TEST(EstimateCommand, ReadsAJobAndItsOverrides) {
  const TemporaryFolder folder;
  EstimateCommand command;
  command.job_path = Write(folder, "job.yaml", kJob);
  command.parameters = 215'000;
  command.sets = {"shards=1"};
  command.json = true;
  const Outcome outcome = Estimated(command);
  const nlohmann::json json = nlohmann::json::parse(outcome.out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << outcome.err;
  const nlohmann::json& job = json["estimates"][0];
  EXPECT_EQ(job["name"], "this job");
  EXPECT_EQ(job["workers"], 4);
  EXPECT_EQ(job["shards"], 1);
  EXPECT_EQ(job["codec_up"], "int8");
  EXPECT_EQ(job["codec_down"], "int4");
  EXPECT_TRUE(job["efficiency"].is_null());
}

TEST(EstimateCommand, TellsHowToGiveTheSizeOfAModel) {
  EstimateCommand command;
  command.workers = 2;
  EXPECT_THAT(ErrorOf(command), AllOf(HasSubstr("--model NAME"), HasSubstr("--parameters N")));
  command.model = "resnet5O";
  EXPECT_THAT(ErrorOf(command), HasSubstr("did you mean `resnet50`?"));
  const TemporaryFolder folder;
  command.model = "";
  command.job_path = Write(folder, "job.yaml", kJob);
  EXPECT_THAT(ErrorOf(command), AllOf(HasSubstr("simple_cnn"), HasSubstr("--parameters N")));
}

TEST(EstimateCommand, TellsWhichFlagsStandForAJobFile) {
  EstimateCommand command = ResNet();
  command.sets = {"shards=1"};
  EXPECT_THAT(ErrorOf(command), HasSubstr("give the job file"));
  command.sets.clear();
  command.down_spec = "int8";
  EXPECT_THAT(ErrorOf(command), HasSubstr("--down-spec needs --spec"));
  command.workers.reset();
  EXPECT_THAT(ErrorOf(command), HasSubstr("--workers N or a job file"));
}

TEST(EstimateCommand, ReadsATable) {
  const TemporaryFolder folder;
  EstimateCommand command;
  command.workers = 2;
  command.table_path = Write(folder, "table", "a 1000 1000\nb 1000\n");
  EXPECT_THAT(Estimated(command).out, HasSubstr("1.001 million parameters"));
  command.table_path = folder.path() + "/none";
  EXPECT_THAT(ErrorOf(command), HasSubstr("none"));
}

TEST(EstimateCommand, NamesTheFlagOfAnAbsurdValue) {
  const auto with = [](const std::function<void(EstimateCommand*)>& change) {
    EstimateCommand command = ResNet();
    change(&command);
    return ErrorOf(command);
  };
  EXPECT_THAT(with([](EstimateCommand* c) { c->workers = 0; }),
              HasSubstr("number of workers is 0"));
  EXPECT_THAT(with([](EstimateCommand* c) { c->link_rate = "-1mbit"; }),
              HasSubstr("--link-rate: "));
  EXPECT_THAT(with([](EstimateCommand* c) { c->up_rate = "fast"; }), HasSubstr("--up-rate: "));
  EXPECT_THAT(with([](EstimateCommand* c) { c->latency = "soon"; }), HasSubstr("--latency: "));
  EXPECT_THAT(with([](EstimateCommand* c) { c->burst = "-3"; }), HasSubstr("--burst: "));
  EXPECT_THAT(with([](EstimateCommand* c) { c->spec = "topk"; }), HasSubstr("--spec: "));
  EXPECT_THAT(with([](EstimateCommand* c) { c->placement = "moon"; }),
              HasSubstr("known: separate, with-workers, one-machine"));
  EXPECT_THAT(with([](EstimateCommand* c) { c->compute_ms = -1; }), HasSubstr("compute time"));
  EXPECT_THAT(with([](EstimateCommand* c) { c->egress_price = -1; }), HasSubstr("--egress-price"));
  EXPECT_THAT(with([](EstimateCommand* c) { c->parameters = 0; }), HasSubstr("0 parameters"));
  EXPECT_THAT(with([](EstimateCommand* c) { c->relays = true; }), HasSubstr("relays need sites"));
  EXPECT_THAT(with([](EstimateCommand* c) { c->spec = "powersgd:4"; }), HasSubstr("--calibrate"));
}

TEST(EstimateCommand, ReadsTheFiguresOfAMachine) {
  const TemporaryFolder folder;
  planning::MachineFigures slow = planning::UsualFigures();
  slow.step_ms = 100;
  EstimateCommand command = ResNet();
  command.json = true;
  const auto usual = nlohmann::json::parse(Estimated(command).out, nullptr, false);
  command.figures_path = Write(folder, "slow.json", planning::MachineFiguresJson(slow));
  const auto slower = nlohmann::json::parse(Estimated(command).out, nullptr, false);
  EXPECT_NEAR(
      slower["estimates"][0]["step_ms"].get<double>(),
      usual["estimates"][0]["step_ms"].get<double>() + 100 - planning::UsualFigures().step_ms,
      1e-6);
  command.figures_path = Write(folder, "bad.json", "{}");
  EXPECT_THAT(ErrorOf(command), AllOf(HasSubstr("bad.json"), HasSubstr("schema is missing")));
  command.figures_path = folder.path() + "/absent";
  EXPECT_THAT(ErrorOf(command), HasSubstr("cannot read"));
}

TEST(Calibration, ReadsTheReportOfAnExchange) {
  const absl::StatusOr<LoopbackFigures> figures = ReadLoopbackReport(
      R"({"exchange_ms": {"median": 2.5}, "bytes_up": 100, "bytes_down": 50, "cpu_seconds": {
          "worker": 0.5, "worker_stages": {"encode": 0.125, "apply": 0.25},
          "server": 0.25, "server_stages": {"sum": 0.0625, "encode": 0.0625}}})");
  ASSERT_TRUE(figures.ok());
  EXPECT_EQ(figures->exchange_ms, 2.5);
  EXPECT_EQ(figures->worker_messages_s, 0.125);
  EXPECT_EQ(figures->shard_messages_s, 0.125);
  EXPECT_EQ(figures->moved_bytes, 150);
  for (const char* text : {"", "[]", "{}", R"({"exchange_ms": {"median": null}})"}) {
    EXPECT_FALSE(ReadLoopbackReport(text).ok()) << text;
  }
}

TEST(Calibration, FailsWithTheReasonOfAMeasurement) {
  const TemporaryFolder folder;
  const absl::StatusOr<planning::MachineFigures> figures =
      CalibrateMachine({.program = "/bin/false",
                        .temporary_folder = folder.path(),
                        .environment = {},
                        .model = "resnet50",
                        .specs = {"nonsense"},
                        .progress = {}});
  ASSERT_FALSE(figures.ok());
  EXPECT_THAT(std::string(figures.status().message()), HasSubstr("nonsense"));
}

}  // namespace
}  // namespace sluice::cli
