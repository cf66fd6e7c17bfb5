// The launcher with shell scripts in place of the programs: how it takes every kind of end. Real
// ones: tests/e2e.
#include "cli/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace sluice {
namespace {

using ::testing::HasSubstr;

// A worker that leaves the report of a run at once. $rank and $report are set before it.
constexpr char kGoodWorker[] = R"(
printf '{"rank":%d,"steps":5,"parameters":100,"bytes_up":500,"bytes_down":1000,"wall_seconds":1,' $rank >$report
printf '"step_ms_p50":2,"step_ms_p95":3,"parameters_sha256":"%s"}' ${sha:-ab} >>$report
)";

constexpr char kJob[] = R"(
name: scripted
workers: 2
shards: 1
model: {name: mlp, hidden: [8]}
data: {format: synthetic, limit: 64}
batch_size_per_worker: 8
steps: 5
optimizer: {name: sgd, lr: 0.1}
)";

class RunTest : public ::testing::Test {
 protected:
  RunTest() {
    std::string folder = ::testing::TempDir() + "/run-XXXXXX";
    folder_ = ::mkdtemp(folder.data());
    std::filesystem::create_directory(folder_ + "/tmp");
    std::ofstream(folder_ + "/job.yaml") << kJob;
    options_.job_path = folder_ + "/job.yaml";
    options_.program_folder = folder_;
    options_.temporary_folder = folder_ + "/tmp";
    options_.json_path = folder_ + "/report.json";
    options_.http_listen = "off";
    options_.environment = {"PATH=/usr/bin:/bin"};
    out_ = std::tmpfile();
    options_.console.out = out_;
    options_.console.err = out_;
  }
  ~RunTest() override {
    std::fclose(out_);
    std::filesystem::remove_all(folder_);
  }

  void Script(const std::string& name, const std::string& body) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << "#!/bin/sh\n"
                           "while [ $# -gt 0 ]; do\n"
                           "case $1 in --rank) rank=$2;; --report) report=$2;; esac\nshift\ndone\n"
                        << body << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }
  std::string Output() const {
    std::string text(65536, '\0');
    std::rewind(out_);
    text.resize(std::fread(text.data(), 1, text.size(), out_));
    return text;
  }
  nlohmann::json Report() const {
    std::ifstream file(options_.json_path);
    return nlohmann::json::parse(file, nullptr, false);
  }

  std::string folder_;
  std::FILE* out_;
  RunOptions options_;
};

TEST_F(RunTest, EndsWellWithAReportAndNoTraces) {
  Script("sluice-server", "exit 0");
  Script("sluice-worker", kGoodWorker);
  EXPECT_EQ(RunJob(options_), 0) << Output();
  EXPECT_EQ(Report()["ok"], true);
  EXPECT_EQ(Report()["bytes_up"], 100);
  EXPECT_EQ(Report()["exit_codes"].size(), 3u);
  EXPECT_THAT(Output(), HasSubstr("scripted finished"));
  EXPECT_TRUE(std::filesystem::is_empty(options_.temporary_folder));
}

TEST_F(RunTest, AFailedWorkerEndsTheRestAndIsQuoted) {
  Script("sluice-server", "exec sleep 1000");
  Script("sluice-worker", "[ $rank = 0 ] && exec sleep 1000; echo no data here >&2; exit 4");
  EXPECT_EQ(RunJob(options_), 1);
  EXPECT_THAT(Output(), HasSubstr("worker 1 (process "));
  EXPECT_THAT(Output(), HasSubstr("exited with code 4"));
  EXPECT_THAT(Output(), HasSubstr("    no data here\n"));
  EXPECT_EQ(Report()["ok"], false);
  EXPECT_EQ(Report()["exit_codes"]["worker 1"], 4);
  EXPECT_EQ(Report()["exit_codes"]["worker 0"], 128 + SIGTERM);
  // What helps to see why is kept.
  EXPECT_FALSE(std::filesystem::is_empty(options_.temporary_folder));
}

TEST_F(RunTest, AKilledShardEndsTheRest) {
  Script("sluice-server", "kill -9 $$");
  Script("sluice-worker", "exec sleep 1000");
  EXPECT_EQ(RunJob(options_), 1);
  EXPECT_THAT(Output(), HasSubstr("was killed by signal 9"));
  EXPECT_THAT(Output(), HasSubstr("out of memory"));
}

TEST_F(RunTest, AStopSignalEndsEverything) {
  Script("sluice-server", "kill -TERM $PPID; exec sleep 1000");
  Script("sluice-worker", "exec sleep 1000");
  EXPECT_EQ(RunJob(options_), 128 + SIGTERM);
  EXPECT_EQ(Report()["exit_codes"].size(), 3u);
}

TEST_F(RunTest, WorkersThatDisagreeFailTheRun) {
  Script("sluice-server", "exit 0");
  Script("sluice-worker", std::string("sha=ab$rank\n") + kGoodWorker);
  EXPECT_EQ(RunJob(options_), 1);
  EXPECT_THAT(Output(), HasSubstr("different parameters"));
  EXPECT_EQ(Report()["ok"], false);
}

TEST_F(RunTest, AMissingReportIsNamed) {
  Script("sluice-server", "exit 0");
  Script("sluice-worker", "exit 0");
  EXPECT_EQ(RunJob(options_), 1);
  EXPECT_THAT(Output(), HasSubstr("left no report"));
}

TEST_F(RunTest, MissingProgramsAreNamedBeforeAnythingStarts) {
  EXPECT_EQ(RunJob(options_), 1);
  EXPECT_THAT(Output(), HasSubstr(folder_ + "/sluice-server"));
}

TEST_F(RunTest, WrongFlagsAndFilesAreUsageErrors) {
  Script("sluice-server", "exit 0");
  Script("sluice-worker", kGoodWorker);
  RunOptions wrong = options_;
  wrong.link_rate = "fast";
  EXPECT_EQ(RunJob(wrong), 2);
  wrong = options_;
  wrong.json_path = folder_ + "/no/such/folder.json";
  EXPECT_EQ(RunJob(wrong), 2);
  wrong = options_;
  wrong.sets = {"sead=3"};
  EXPECT_EQ(RunJob(wrong), 2);
  wrong = options_;
  wrong.job_path = folder_ + "/nothing.yaml";
  EXPECT_EQ(RunJob(wrong), 2);
}

TEST_F(RunTest, LogsAreKeptWhereAskedFor) {
  Script("sluice-server", "exit 0");
  Script("sluice-worker", std::string("echo worker $rank speaks\n") + kGoodWorker);
  options_.log_folder = folder_ + "/logs/deep";
  EXPECT_EQ(RunJob(options_), 0) << Output();
  std::ifstream log(options_.log_folder + "/worker-1.log");
  std::ostringstream text;
  text << log.rdbuf();
  EXPECT_EQ(text.str(), "worker 1 speaks\n");
}

}  // namespace
}  // namespace sluice
