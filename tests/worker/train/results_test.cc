// SPDX-License-Identifier: Apache-2.0
// Tests the files that a run writes to its output besides the last parameters: its scalars and its
// best parameters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "tests/worker/train/memory_job.h"
#include "tests/worker/train/small_job.h"
#include "worker/scalars/scalar_csv.h"
#include "worker/train/parameters_file.h"
#include "worker/train/train.h"

namespace sluice::worker {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::Not;

job::JobSpec JobWithScalars() {
  job::JobSpec spec = SmallJob();
  spec.model.hidden = {16};
  spec.optimizer.momentum = 0;
  spec.log_interval = 5;
  return spec;
}

class ResultsTest : public ::testing::Test {
 protected:
  ResultsTest() {
    spec_.output = ::testing::TempDir() + "/results_" +
                   ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(spec_.output);
  }

  TrainReport Run(uint64_t after_step = 0) {
    MemoryJob job(1);
    session_ = job.MakeSession(0);
    session_->CheckpointEvery(1);
    if (after_step > 0) session_->RestoreAfter(after_step, saved_.at(after_step));
    const absl::StatusOr<TrainReport> report =
        RunTraining(spec_, 0, session_.get(), {}, Logger("worker-0"));
    EXPECT_TRUE(report.ok()) << report.status();
    if (after_step == 0) saved_ = session_->saved();
    return report.ok() ? *report : TrainReport{};
  }
  // Returns the rows, each with its values by column.
  std::vector<std::map<std::string, std::string>> Rows() const {
    std::ifstream file(spec_.output + "/scalars.csv");
    std::vector<std::map<std::string, std::string>> rows;
    std::string line;
    std::getline(file, line);
    const std::vector<std::string> names = absl::StrSplit(line, ',');
    while (std::getline(file, line)) {
      const std::vector<std::string> cells = absl::StrSplit(line, ',');
      EXPECT_EQ(cells.size(), names.size());
      for (size_t i = 0; i < names.size(); ++i) {
        if (i == 0) rows.emplace_back();
        rows.back()[names[i]] = cells[i];
      }
    }
    return rows;
  }
  std::vector<std::string> Column(const std::string& name) const {
    std::vector<std::string> cells;
    for (auto& row : Rows()) cells.push_back(row[name]);
    return cells;
  }
  size_t EventFiles() const {
    return std::distance(std::filesystem::directory_iterator(spec_.output + "/tensorboard"), {});
  }
  std::optional<BestTest> BestOnDisk() const {
    return ParseBestTest(ReadNote(spec_.output + "/best.pt").value_or(""));
  }

  job::JobSpec spec_ = JobWithScalars();
  std::unique_ptr<MemoryJob::RankSession> session_;
  std::map<uint64_t, std::string> saved_;
};

TEST_F(ResultsTest, ScalarsComeEverySoManyStepsAndWithTests) {
  const TrainReport report = Run();
  EXPECT_THAT(Column("step"), ElementsAre("5", "10", "15", "16", "20", "25", "30", "32"));
  EXPECT_THAT(Column("epoch"), ElementsAre("0", "0", "0", "1", "1", "1", "1", "2"));
  auto rows = Rows();
  for (auto& row : rows) {
    EXPECT_EQ(row["test_loss"].empty(), row["step"] != "16" && row["step"] != "32");
    EXPECT_THAT(row["loss"], Not(""));
    EXPECT_EQ(row["learning_rate"], "0.05");
    EXPECT_EQ(row["bytes_up"], "10");  // Bytes per step of a MemoryJob.
    EXPECT_EQ(row["bytes_down"], "0");
    EXPECT_EQ(row["ratio_down"], "");
    double number = 0;
    EXPECT_TRUE(absl::SimpleAtod(row["ratio_up"], &number));
    EXPECT_EQ(number, static_cast<double>(report.parameters) * 4 / 10);
    EXPECT_TRUE(absl::SimpleAtod(row["samples_per_second"], &number) && number > 0);
    EXPECT_TRUE(absl::SimpleAtod(row["step_ms"], &number) && number > 0);
  }
  double first = 0;
  double last = 0;
  ASSERT_TRUE(absl::SimpleAtod(rows.front()["loss"], &first));
  ASSERT_TRUE(absl::SimpleAtod(rows.back()["loss"], &last));
  EXPECT_GT(first, last) << "the loss must fall";
  double accuracy = 0;
  ASSERT_TRUE(absl::SimpleAtod(rows.back()["test_accuracy"], &accuracy));
  EXPECT_NEAR(accuracy, report.test_accuracy.value_or(-1), 1e-6);
  EXPECT_EQ(EventFiles(), 1u);
}

TEST_F(ResultsTest, NoneAreWrittenIfNoneAreWanted) {
  spec_.log_interval = 0;
  Run();
  EXPECT_FALSE(std::filesystem::exists(spec_.output + "/scalars.csv"));
  EXPECT_FALSE(std::filesystem::exists(spec_.output + "/tensorboard"));
  EXPECT_TRUE(std::filesystem::exists(spec_.output + "/best.pt"));
}

TEST_F(ResultsTest, ARunThatGoesOnEndsWithTheSameSteps) {
  const TrainReport undisturbed = Run();
  const auto steps = Column("step");
  const auto losses = Column("test_loss");
  for (const uint64_t step : {3, 16, 17, 31, 32}) {
    const TrainReport report = Run(step);
    EXPECT_EQ(Column("step"), steps) << "after step " << step;
    EXPECT_EQ(Column("test_loss"), losses) << "after step " << step;
    // The checkpoint comes from a different run than the earlier rows, so the time continues from
    // the checkpoint's time.
    double before = 0;
    const auto times = Column("wall_seconds");
    for (size_t i = 0; i < times.size(); ++i) {
      uint64_t of_step = 0;
      double seconds = 0;
      ASSERT_TRUE(absl::SimpleAtoi(steps[i], &of_step) && absl::SimpleAtod(times[i], &seconds));
      if (of_step <= step) continue;
      EXPECT_GE(seconds, before) << times[i];
      before = seconds;
    }
    EXPECT_TRUE(step >= 32 || before > 0);
    EXPECT_EQ(report.best, undisturbed.best);
  }
  EXPECT_EQ(EventFiles(), 6u);
}

TEST_F(ResultsTest, TheBestIsKeptAndReported) {
  const TrainReport report = Run();
  ASSERT_TRUE(report.best.has_value());
  // Both tests may classify every image correctly. In that case, the first one is the best.
  EXPECT_THAT(report.best->step, AnyOf(16u, 32u));
  EXPECT_GE(report.best->accuracy, report.test_accuracy);
  EXPECT_EQ(BestOnDisk(), report.best);
  EXPECT_FALSE(ReadNote(spec_.output + "/parameters.pt").has_value());
  EXPECT_FALSE(ReadNote(spec_.output + "/scalars.csv").has_value());
}

// The learning rate makes the second epoch diverge. Its worse test must not replace the best one.
TEST_F(ResultsTest, WhatIsWorseDoesNotReplaceIt) {
  spec_.lr_schedule.warmup_steps = 0;
  spec_.lr_schedule.name = "step";
  spec_.lr_schedule.step_size = 17;
  spec_.lr_schedule.gamma = 1000;
  const TrainReport report = Run();
  ASSERT_TRUE(report.best.has_value());
  EXPECT_EQ(report.best->step, 16u);
  EXPECT_LT(report.test_accuracy.value_or(1), report.best->accuracy);
  EXPECT_EQ(BestOnDisk(), report.best);
  EXPECT_EQ(Run(20).best, report.best) << "the checkpoint contains the best test";
  // If a user removes best.pt, the next test becomes the best one.
  std::filesystem::remove(spec_.output + "/best.pt");
  EXPECT_EQ(Run(20).best.value_or(BestTest{}).step, 32u);
  EXPECT_EQ(BestOnDisk().value_or(BestTest{}).step, 32u);
  // A new run must ignore an earlier run's file.
  EXPECT_EQ(Run().best, report.best);
}

TEST_F(ResultsTest, WithoutAnOutputNothingIsBest) {
  spec_.output = "";
  EXPECT_EQ(Run().best, std::nullopt);
}

TEST_F(ResultsTest, ProgressTellsTheTimeLeft) {
  Run();
  EXPECT_EQ(session_->progress().front().seconds_left, std::nullopt);
  EXPECT_EQ(session_->progress().back().seconds_left, 0);
}

}  // namespace
}  // namespace sluice::worker
