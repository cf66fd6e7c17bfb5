// SPDX-License-Identifier: Apache-2.0
#include "cli/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace sluice::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

nlohmann::json WorkerJson(uint32_t rank) {
  return {{"rank", rank},
          {"steps", 10},
          {"parameters", 1000},
          {"bytes_up", 400 + 200 * rank},
          {"bytes_down", 1000},
          {"wall_seconds", 2.5 + rank},
          {"train_loss", 0.5 + rank},
          {"samples_per_second", 100.0},
          {"step_ms_p50", 4.0 + rank},
          {"step_ms_p95", 9},
          {"parameters_sha256", "ab12"}};
}

std::vector<WorkerReport> TwoWorkers() {
  nlohmann::json first = WorkerJson(0);
  first["test_accuracy"] = 0.75;
  first["test_loss"] = 0.25;
  nlohmann::json second = WorkerJson(1);
  second["test_accuracy"] = -1;
  second["test_loss"] = 0;
  return {*ParseWorkerReport(first.dump()), *ParseWorkerReport(second.dump())};
}

RunFacts Facts() {
  RunFacts facts;
  facts.job_name = "mnist";
  facts.workers = 2;
  facts.shards = 1;
  facts.seed = 7;
  facts.link_rate = "100mbit";
  facts.wall_seconds = 4;
  facts.exit_codes = {{"shard 0", 0}, {"worker 0", 0}, {"worker 1", 0}};
  return facts;
}

TEST(WorkerReportTest, NamesTheFieldThatIsWrong) {
  for (const char* key : {"rank", "steps", "parameters", "bytes_up", "bytes_down", "wall_seconds",
                          "step_ms_p50", "step_ms_p95", "parameters_sha256"}) {
    nlohmann::json json = WorkerJson(0);
    json.erase(key);
    EXPECT_THAT(std::string(ParseWorkerReport(json.dump()).status().message()), HasSubstr(key));
    json[key] = nlohmann::json::array();
    EXPECT_FALSE(ParseWorkerReport(json.dump()).ok()) << key;
  }
  for (const char* text : {"", "{", "[]", "null", "{\"rank\":-1}"}) {
    EXPECT_EQ(ParseWorkerReport(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

// If a worker was restarted or joined again, its byte counts cover only the steps since then. The
// report must divide by these steps.
TEST(CombineTest, CountsBytesOverTheStepsTheyAreOf) {
  std::vector<WorkerReport> workers = TwoWorkers();
  workers[1].exchanged_steps = 2;
  const absl::StatusOr<RunReport> report = CombineReports(Facts(), workers);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_DOUBLE_EQ(report->bytes_up, 1000.0 / 12);
  EXPECT_EQ(report->steps, 10);
}

TEST(CombineTest, TakesMeansSumsAndTheSlowest) {
  const absl::StatusOr<RunReport> report = CombineReports(Facts(), TwoWorkers());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_DOUBLE_EQ(report->bytes_up, 50);  // (400 + 600) / (2 workers x 10 steps)
  EXPECT_DOUBLE_EQ(report->bytes_down, 100);
  EXPECT_DOUBLE_EQ(report->ratio_up, 80);
  EXPECT_DOUBLE_EQ(report->ratio_down, 40);
  EXPECT_DOUBLE_EQ(report->train_loss.value_or(-1), 1);
  EXPECT_DOUBLE_EQ(report->train_seconds, 3.5);
  EXPECT_DOUBLE_EQ(report->step_ms_p50, 5);
  EXPECT_DOUBLE_EQ(report->samples_per_second, 200);
  EXPECT_EQ(report->test_accuracy, 0.75);
  EXPECT_EQ(report->test_loss, 0.25);
}

TEST(CombineTest, DifferentParametersAreAnErrorThatNamesTheRank) {
  std::vector<WorkerReport> workers = TwoWorkers();
  workers[1].parameters_sha256 = "ab13";
  const absl::Status status = CombineReports(Facts(), workers).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("worker 1 with ab13"));
}

TEST(CombineTest, DifferentRunsAreAnError) {
  std::vector<WorkerReport> workers = TwoWorkers();
  workers[1].steps = 9;
  EXPECT_FALSE(CombineReports(Facts(), workers).ok());
  EXPECT_FALSE(CombineReports(Facts(), {}).ok());
}

TEST(CombineTest, ALossThatIsNoNumberStaysNone) {
  std::vector<WorkerReport> workers = TwoWorkers();
  nlohmann::json json = WorkerJson(2);
  json["train_loss"] = nullptr;
  json["skipped"] = 3;
  workers.insert(workers.begin() + 1, *ParseWorkerReport(json.dump()));
  const absl::StatusOr<RunReport> report = CombineReports(Facts(), workers);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->train_loss, std::nullopt);
  EXPECT_TRUE(nlohmann::json::parse(ReportJson(*report))["train_loss"].is_null());
  EXPECT_EQ(report->skipped, 3u);
  EXPECT_THAT(ReportSummary(*report), HasSubstr("in 3 steps"));
}

TEST(CombineTest, NoStepsGiveNoRatios) {
  WorkerReport worker;
  worker.parameters = 1000;
  const absl::StatusOr<RunReport> report = CombineReports(Facts(), {worker});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->ratio_up, 0);
  EXPECT_EQ(report->bytes_up, 0);
  EXPECT_FALSE(nlohmann::json::parse(ReportJson(*report)).empty());
}

TEST(ReportJsonTest, HoldsWhatReadersRelyOn) {
  const nlohmann::json json =
      nlohmann::json::parse(ReportJson(*CombineReports(Facts(), TwoWorkers())));
  EXPECT_EQ(json["ok"], true);
  EXPECT_EQ(json["job"], "mnist");
  EXPECT_EQ(json["seed"], 7);
  EXPECT_EQ(json["dense"], false);
  EXPECT_EQ(json["link_rate"], "100mbit");
  EXPECT_EQ(json["test_accuracy"], 0.75);
  EXPECT_EQ(json["steps"], 10);
  EXPECT_EQ(json["wall_seconds"], 4);
  EXPECT_EQ(json["ratio_up"], 80);
  EXPECT_EQ(json["ratio_up_fp16"], 40);
  EXPECT_EQ(json["ratio_down_fp16"], 20);
  EXPECT_EQ(json["step_ms"]["p50"], 5);
  EXPECT_EQ(json["step_ms"]["p95"], 9);
  EXPECT_EQ(json["parameters_sha256"], "ab12");
  EXPECT_EQ(json["exit_codes"]["worker 1"], 0);
}

TEST(ReportTest, NamesTheBestParametersAndWhereTheyAre) {
  std::vector<WorkerReport> workers = TwoWorkers();
  RunFacts facts = Facts();
  EXPECT_TRUE(nlohmann::json::parse(ReportJson(*CombineReports(facts, workers)))["best"].is_null());
  nlohmann::json json = WorkerJson(0);
  json["test_accuracy"] = 0.75;
  json["test_loss"] = 0.25;
  json["best_step"] = 6;
  json["best_test_accuracy"] = 0.8;
  json["best_test_loss"] = 0.125;
  workers[0] = *ParseWorkerReport(json.dump());
  facts.output = "results";
  RunReport report = *CombineReports(facts, workers);
  EXPECT_THAT(ReportSummary(report), HasSubstr("  test accuracy  75.00 %, loss 0.2500\n"));
  EXPECT_THAT(ReportSummary(report),
              HasSubstr("  best           step 6: test accuracy 80.00 %; results/best.pt\n"));
  const nlohmann::json best = nlohmann::json::parse(ReportJson(report))["best"];
  EXPECT_EQ(best["step"], 6);
  EXPECT_EQ(best["test_accuracy"], 0.8);
  EXPECT_EQ(best["test_loss"], 0.125);
  json["judged_by"] = "loss";
  workers[0] = *ParseWorkerReport(json.dump());
  report = *CombineReports(facts, workers);
  EXPECT_THAT(ReportSummary(report),
              HasSubstr("  test loss      0.2500 (perplexity 1.28), accuracy "
                        "75.00 % of next tokens\n"));
  EXPECT_THAT(ReportSummary(report),
              HasSubstr("  best           step 6: test loss 0.1250; results/best.pt\n"));
}

TEST(ReportSummaryTest, APythonSessionKnowsItsWaitButNeitherSamplesNorParameters) {
  std::vector<WorkerReport> workers;
  for (const uint32_t rank : {0, 1}) {
    nlohmann::json json = WorkerJson(rank);
    json.erase("samples_per_second");
    json["parameters_sha256"] = "";
    json["wait_ms"] = 1.5 + rank;
    workers.push_back(*ParseWorkerReport(json.dump()));
  }
  const RunReport report = *CombineReports(Facts(), workers);
  EXPECT_EQ(nlohmann::json::parse(ReportJson(report))["wait_ms"], 2.5);
  EXPECT_THAT(
      ReportSummary(report),
      HasSubstr("5.0 ms p50, 9.0 ms p95; waits 2.5 ms for exchanges\n  parameters     1000"));
  EXPECT_THAT(ReportSummary(report), Not(HasSubstr("sha256")));
}

TEST(ReportJsonTest, SurvivalOnlyOfAJobWithCheckpoints) {
  RunFacts facts = Facts();
  EXPECT_FALSE(nlohmann::json::parse(FailureJson(facts, "x")).contains("restarts"));
  facts.survival = SurvivalFacts{{{"shard 0", 1}, {"worker 1", 2}}, 2, 4};
  const absl::StatusOr<RunReport> report = CombineReports(facts, TwoWorkers());
  const nlohmann::json json = nlohmann::json::parse(ReportJson(*report));
  EXPECT_EQ(json["restarts"], (nlohmann::json{{"shard 0", 1}, {"worker 1", 2}}));
  EXPECT_EQ(json["rollbacks"], 2);
  EXPECT_EQ(json["repairs"], 4);
  EXPECT_THAT(
      ReportSummary(*report),
      HasSubstr("survived       3 restarts (shard 0: 1, worker 1: 2), 4 repairs, 2 rollbacks\n"));
  facts.survival = SurvivalFacts{};
  const nlohmann::json quiet = nlohmann::json::parse(FailureJson(facts, "x"));
  EXPECT_EQ(quiet["restarts"], nlohmann::json::object());
  EXPECT_EQ(quiet["rollbacks"], 0);
}

TEST(ReportJsonTest, FailureSurvivesAnyBytes) {
  const nlohmann::json json = nlohmann::json::parse(FailureJson(Facts(), "died: \xff\xfe\n"));
  EXPECT_EQ(json["ok"], false);
  EXPECT_THAT(json["failure"].get<std::string>(), HasSubstr("died: "));
}

TEST(ReportSummaryTest, IsReadable) {
  const std::string text = ReportSummary(*CombineReports(Facts(), TwoWorkers()));
  EXPECT_THAT(text,
              AllOf(HasSubstr("mnist finished in 0:04"), HasSubstr("10 steps, sync, 2 workers")));
  EXPECT_THAT(text, HasSubstr("75.00 %"));
  EXPECT_THAT(text, AllOf(HasSubstr("50 B per worker"), HasSubstr("80.0x less than dense"),
                          HasSubstr("fp32, 40.0x")));
}

}  // namespace
}  // namespace sluice::cli
