// SPDX-License-Identifier: Apache-2.0
// Tests the launcher with shell scripts in place of the programs, for every way that a run can end.
// Tests with the real programs are in tests/e2e.
#include "cli/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "protocol/checkpoint/checkpoint_folder.h"

namespace sluice::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

// A worker that writes its report and ends at once. $rank and $report are set before this text.
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
    options_.report_path = folder_ + "/report.json";
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
                           "case $1 in --rank) rank=$2;; --report) report=$2;; "
                           "--token-file) token=$2;; esac\nshift\ndone\n"
                        << body << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }
  std::string Output() const {
    std::string text(65536, '\0');
    std::rewind(out_);
    text.resize(std::fread(text.data(), 1, text.size(), out_));
    return text;
  }
  static std::string Text(const std::string& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  nlohmann::json Report() const {
    std::ifstream file(options_.report_path);
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

// A shell command that writes the mode and the text of the token file into a file of this name.
std::string SaveToken(const std::string& file, const std::string& token) {
  return "{ stat -c %a " + token + "; cat " + token + "; } >" + file + "\n";
}

TEST_F(RunTest, AllProcessesOfARunHaveItsOwnSecretToken) {
  Script("sluice-server", SaveToken(folder_ + "/server", "$token"));
  Script("sluice-worker", SaveToken(folder_ + "/worker-$rank", "$token") + kGoodWorker);
  options_.log_folder = folder_ + "/logs";
  EXPECT_EQ(RunJob(options_), 0) << Output();
  const std::string first = Text(folder_ + "/server");
  EXPECT_THAT(first, MatchesRegex("600\n[0-9a-f]{64}\n"));
  EXPECT_EQ(Text(folder_ + "/worker-0"), first);
  EXPECT_EQ(Text(folder_ + "/worker-1"), first);
  EXPECT_THAT(Output(), AllOf(HasSubstr("sluice status --coordinator 127.0.0.1:"),
                              HasSubstr(" --token-file " + folder_ + "/logs/token`"),
                              Not(HasSubstr(first.substr(4, 64)))));
  // The token is worthless after the run.
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/logs/token"));
  EXPECT_EQ(std::filesystem::status(folder_ + "/logs").permissions(),
            std::filesystem::perms::owner_all);
  EXPECT_EQ(RunJob(options_), 0) << Output();
  EXPECT_NE(Text(folder_ + "/server"), first);
}

TEST_F(RunTest, ALeftoverOrALinkInPlaceOfTheTokenIsReplaced) {
  Script("sluice-server", SaveToken(folder_ + "/server", "$token"));
  Script("sluice-worker", kGoodWorker);
  options_.log_folder = folder_ + "/logs";
  std::filesystem::create_directory(options_.log_folder);
  std::ofstream(folder_ + "/foreign") << "a text of another user\n";
  std::filesystem::create_symlink(folder_ + "/foreign", options_.log_folder + "/token");
  EXPECT_EQ(RunJob(options_), 0) << Output();
  EXPECT_THAT(Text(folder_ + "/server"), MatchesRegex("600\n[0-9a-f]{64}\n"));
  EXPECT_EQ(Text(folder_ + "/foreign"), "a text of another user\n");
}

TEST_F(RunTest, TheTokenOfTheUserReplacesThatOfTheRun) {
  Script("sluice-server", SaveToken(folder_ + "/server", "$token"));
  Script("program", SaveToken(folder_ + "/program-$RANK", "$SLUICE_TOKEN_FILE"));
  options_.token_file = folder_ + "/mine";
  std::ofstream(options_.token_file) << "0123456789abcdef\n";
  std::filesystem::permissions(options_.token_file, std::filesystem::perms::owner_read);
  options_.job_path.clear();
  options_.command = {folder_ + "/program"};
  options_.workers = 2;
  options_.log_folder = folder_ + "/logs";
  EXPECT_EQ(RunJob(options_), 0) << Output();
  EXPECT_EQ(Text(folder_ + "/server"), "400\n0123456789abcdef\n");
  EXPECT_EQ(Text(folder_ + "/program-1"), "400\n0123456789abcdef\n");
  EXPECT_TRUE(std::filesystem::exists(options_.token_file));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/logs/token"));
}

TEST_F(RunTest, ACommandRunsOnceForEachWorker) {
  Script("sluice-server", "exit 0");
  Script("program", R"(echo "rank $RANK of $WORLD_SIZE"; grep uplink $SLUICE_JOB >)" + folder_ +
                        "/codec-$RANK");
  options_.job_path.clear();
  options_.command = {folder_ + "/program", "an argument"};
  options_.workers = 2;
  options_.sets = {"compression.uplink=int4"};
  EXPECT_EQ(RunJob(options_), 0) << Output();
  // The console shows the output of rank 0 alone.
  EXPECT_THAT(Output(), AllOf(HasSubstr("rank 0 of 2\n"), Not(HasSubstr("rank 1 of 2"))));
  EXPECT_THAT(Output(), HasSubstr("the programs left no figures"));
  EXPECT_EQ(Text(folder_ + "/codec-1"), "  uplink: int4\n");
  EXPECT_EQ(Report()["ok"], true);
  EXPECT_EQ(Report()["exit_codes"]["worker 1"], 0);
  EXPECT_TRUE(std::filesystem::is_empty(options_.temporary_folder));
}

TEST_F(RunTest, ACommandThatDoesNotExistIsAUsageError) {
  Script("sluice-server", "exit 0");
  options_.job_path.clear();
  options_.command = {"no-such-program"};
  EXPECT_EQ(RunJob(options_), 2);
  EXPECT_THAT(Output(), HasSubstr("there is no program no-such-program in the folders of $PATH"));
}

TEST_F(RunTest, TheErrorAboutAMissingWorkerNamesItsPackage) {
  Script("sluice-server", "exit 0");
  EXPECT_EQ(RunJob(options_), 1);
  EXPECT_THAT(Output(), AllOf(HasSubstr("there is no " + folder_ + "/sluice-worker"),
                              HasSubstr("Install the package sluice-worker")));
}

TEST_F(RunTest, ACommandThatDoesNotJoinTheJobIsAFailure) {
  Script("sluice-server", "exec sleep 1000");
  options_.job_path.clear();
  options_.command = {"true"};
  EXPECT_EQ(RunJob(options_), 1);
  EXPECT_THAT(Output(), HasSubstr("none of them joined the job: the program must call sluice."));
}

TEST_F(RunTest, TheExitCodeOfAFailedCommandIsThatOfTheRun) {
  Script("sluice-server", "exec sleep 1000");
  options_.job_path.clear();
  options_.command = {"sh", "-c", "exit 7"};
  EXPECT_EQ(RunJob(options_), 7);
  options_.command = {"sh", "-c", "kill -9 $$"};
  EXPECT_EQ(RunJob(options_), 128 + 9);
  Script("sluice-server", "exit 6");
  options_.command = {"sleep", "1000"};
  EXPECT_EQ(RunJob(options_), 1);
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
  // Files that explain the failure must be kept.
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
  wrong.report_path = folder_ + "/no/such/folder.json";
  EXPECT_EQ(RunJob(wrong), 2);
  wrong = options_;
  wrong.token_file = folder_ + "/no-token";
  EXPECT_EQ(RunJob(wrong), 2);
  wrong = options_;
  wrong.sets = {"sead=3"};
  EXPECT_EQ(RunJob(wrong), 2);
  wrong = options_;
  wrong.job_path = folder_ + "/nothing.yaml";
  EXPECT_EQ(RunJob(wrong), 2);
}

// The same job with checkpoints. Processes that die must be restarted.
class SurvivingRunTest : public RunTest {
 protected:
  SurvivingRunTest() {
    folder_of_checkpoints_ = folder_ + "/checkpoints";
    std::ofstream(options_.job_path, std::ios::app)
        << "checkpoint: {dir: " << folder_of_checkpoints_ << ", interval: 2}\n";
  }

  // Returns a shell command that succeeds in its first `count` runs.
  std::string First(int count, const std::string& who) const {
    const std::string starts = folder_ + "/starts-" + who;
    return "{ echo >>" + starts + "; [ $(wc -l <" + starts + ") -le " + std::to_string(count) +
           " ]; }";
  }
  // Returns a shell command that waits until First has run `count` times.
  std::string AwaitStarts(int count, const std::string& who) const {
    const std::string starts = folder_ + "/starts-" + who;
    return "until [ -e " + starts + " ] && [ $(wc -l <" + starts + ") -ge " +
           std::to_string(count) + " ]; do sleep 0.05; done\n";
  }
  void Record(bool finished) const {
    std::filesystem::create_directory(folder_of_checkpoints_);
    const absl::Status status = protocol::WriteRunRecord(
        folder_of_checkpoints_, {.job_name = "scripted", .job_uid = 1, .finished = finished});
    ASSERT_TRUE(status.ok()) << status;
  }

  std::string folder_of_checkpoints_;
};

TEST_F(SurvivingRunTest, WhatIsKilledIsStartedAgain) {
  Script("sluice-server", "exec sleep 0.3");
  Script("sluice-worker",
         "echo hello\n[ $rank = 1 ] && " + First(2, "1") + " && kill -9 $$\n" + kGoodWorker);
  options_.log_folder = folder_ + "/logs";
  EXPECT_EQ(RunJob(options_), 0) << Output();
  EXPECT_THAT(Output(), HasSubstr("warning: worker 1 (process "));
  EXPECT_THAT(Output(), HasSubstr("was killed by signal 9"));
  EXPECT_THAT(Output(), HasSubstr("Restarting it in 200ms, restart 1."));
  EXPECT_THAT(Output(), HasSubstr("Restarting it in 400ms, restart 2."));
  EXPECT_EQ(Report()["ok"], true);
  EXPECT_EQ(Report()["restarts"], (nlohmann::json{{"worker 1", 2}}));
  EXPECT_EQ(Report()["exit_codes"]["worker 1"], 0);
  EXPECT_EQ(Text(options_.log_folder + "/worker-1.log"), "hello\nhello\nhello\n");
}

TEST_F(SurvivingRunTest, WhoLostTheOthersIsStartedAgain) {
  Script("sluice-server", First(1, "0") + " && exit 75\nexec sleep 0.1");
  Script("sluice-worker", AwaitStarts(2, "0") + kGoodWorker);
  EXPECT_EQ(RunJob(options_), 0) << Output();
  EXPECT_EQ(Report()["restarts"], (nlohmann::json{{"shard 0", 1}}));
}

TEST_F(SurvivingRunTest, AShardKeepsItsCommand) {
  const std::string commands = folder_ + "/commands";
  Script("sluice-server", "exit 9");
  std::ofstream(folder_ + "/sluice-server") << "#!/bin/sh\necho $@ >>" << commands << "\n"
                                            << First(1, "0") << " && kill -9 $$\nexit 0\n";
  Script("sluice-worker", AwaitStarts(2, "0") + kGoodWorker);
  EXPECT_EQ(RunJob(options_), 0) << Output();
  std::istringstream lines(Text(commands));
  std::string first, second;
  std::getline(lines, first);
  std::getline(lines, second);
  EXPECT_THAT(first, HasSubstr("--listen 127.0.0.1:"));
  EXPECT_EQ(first, second);
}

TEST_F(SurvivingRunTest, AGenuineErrorEndsTheRun) {
  Script("sluice-server", "exec sleep 1000");
  Script("sluice-worker", "[ $rank = 0 ] && exec sleep 1000; echo no data here >&2; exit 1");
  EXPECT_EQ(RunJob(options_), 1);
  EXPECT_THAT(Output(), HasSubstr("error: worker 1 (process "));
  EXPECT_THAT(Output(), HasSubstr("    no data here\n"));
  EXPECT_EQ(Report()["ok"], false);
  EXPECT_EQ(Report()["restarts"], nlohmann::json::object());
}

TEST_F(SurvivingRunTest, WhatDiesAllTheTimeEndsTheRun) {
  options_.restart_limits = {.first_delay = absl::Milliseconds(1), .restarts_max = 3};
  Script("sluice-server", "exec sleep 1000");
  Script("sluice-worker", "kill -SEGV $$");
  EXPECT_EQ(RunJob(options_), 1);
  EXPECT_THAT(Output(), HasSubstr("It was restarted 3 times"));
  EXPECT_THAT(Output(), HasSubstr("signal 11"));
  EXPECT_EQ(Report()["ok"], false);
}

TEST_F(SurvivingRunTest, AShardThatDiesAfterAllHaveFinishedIsNoLoss) {
  // The server dies once the launcher has reaped both workers, that is, once their process ids no
  // longer exist.
  const std::string pid = folder_ + "/pid-";
  Script("sluice-server", "for rank in 0 1; do until [ -s " + pid +
                              "$rank ]; do sleep 0.05; done\n" + "while kill -0 $(cat " + pid +
                              "$rank); do sleep 0.05; done; done\n" + "kill -9 $$");
  Script("sluice-worker", "echo $$ >" + pid + "$rank\n" + kGoodWorker);
  EXPECT_EQ(RunJob(options_), 0) << Output();
  EXPECT_THAT(Output(), HasSubstr("nothing is lost"));
  EXPECT_EQ(Report()["restarts"], nlohmann::json::object());
}

TEST_F(SurvivingRunTest, WhoDiesAfterTheJobHasFinishedIsNoLoss) {
  Record(/*finished=*/true);
  const std::string record = folder_ + "/finished.json";
  const std::string there = folder_of_checkpoints_ + "/run.json";
  std::filesystem::rename(there, record);
  Script("sluice-server",
         "cp " + record + " " + record + "2; mv " + record + "2 " + there + "; exec sleep 1000");
  // Worker 1 does not learn of the end.
  Script("sluice-worker", "until [ -e " + there + " ]; do sleep 0.05; done\n" + kGoodWorker +
                              "[ $rank = 1 ] && kill -9 $$\nexec sleep 1000");
  EXPECT_EQ(RunJob(options_), 0) << Output();
  EXPECT_THAT(Output(), HasSubstr("so nothing is lost"));
  EXPECT_EQ(Report()["ok"], true);
  EXPECT_EQ(Report()["restarts"], nlohmann::json::object());
}

TEST_F(SurvivingRunTest, AStopSignalEndsEverythingAndSaysHowToGoOn) {
  Record(/*finished=*/false);
  options_.resume = true;
  options_.sets = {"model.hidden=[16]"};
  Script("sluice-server", "kill -TERM $PPID; exec sleep 1000");
  Script("sluice-worker", "exec sleep 1000");
  EXPECT_EQ(RunJob(options_), 128 + SIGTERM);
  EXPECT_THAT(Output(), AllOf(HasSubstr("Continue after step 0"),
                              HasSubstr("sluice run --resume " + options_.job_path +
                                        " --set 'model.hidden=[16]'\n")));
}

TEST_F(SurvivingRunTest, RefusesBeforeAnythingStarts) {
  Script("sluice-server", "exit 9");
  Script("sluice-worker", "exit 9");
  options_.resume = true;
  EXPECT_EQ(RunJob(options_), 2);
  EXPECT_THAT(Output(), HasSubstr("no run was in " + folder_of_checkpoints_));
  Record(/*finished=*/false);
  options_.resume = false;
  EXPECT_EQ(RunJob(options_), 2);
  EXPECT_THAT(Output(), HasSubstr("holds an unfinished run of job scripted"));
  Record(/*finished=*/true);
  EXPECT_EQ(RunJob(options_), 2);
  EXPECT_THAT(Output(), HasSubstr("holds a finished run of job scripted"));
  EXPECT_THAT(Output(), Not(HasSubstr("process")));
}

TEST_F(RunTest, ResumeNeedsCheckpoints) {
  Script("sluice-server", "exit 0");
  Script("sluice-worker", kGoodWorker);
  options_.resume = true;
  EXPECT_EQ(RunJob(options_), 2);
  EXPECT_THAT(Output(), HasSubstr("--resume: the job has no checkpoints"));
}

TEST_F(RunTest, LogsAreKeptWhereAskedFor) {
  Script("sluice-server", "exit 0");
  Script("sluice-worker", std::string("echo worker $rank speaks\n") + kGoodWorker);
  options_.log_folder = folder_ + "/logs/deep";
  EXPECT_EQ(RunJob(options_), 0) << Output();
  EXPECT_EQ(Text(options_.log_folder + "/worker-1.log"), "worker 1 speaks\n");
}

}  // namespace
}  // namespace sluice::cli
