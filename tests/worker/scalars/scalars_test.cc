// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "worker/scalars/event_file.h"
#include "worker/scalars/scalar_csv.h"
#include "worker/scalars/scalar_log.h"

namespace sluice::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ScalarsTest : public ::testing::Test {
 protected:
  ScalarsTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~ScalarsTest() override { std::filesystem::remove_all(folder_); }

  static std::string Read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void Write(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }
  // Returns the first cells of the rows.
  std::vector<std::string> Steps() {
    std::vector<std::string> lines = absl::StrSplit(Read(path_), '\n');
    EXPECT_EQ(lines.front() + "\n", ScalarCsvHeader());
    EXPECT_EQ(lines.back(), "") << "the last line is complete";
    std::vector<std::string> steps;
    for (size_t i = 1; i + 1 < lines.size(); ++i) {
      steps.push_back(lines[i].substr(0, lines[i].find(',')));
    }
    return steps;
  }
  ScalarCsv Open(uint64_t step) {
    absl::StatusOr<ScalarCsv> csv = ScalarCsv::Open(path_, step);
    EXPECT_TRUE(csv.ok()) << csv.status();
    return *std::move(csv);
  }

  const std::string folder_ =
      absl::StrCat(::testing::TempDir(), "/scalars_", ::getpid(), "_",
                   ::testing::UnitTest::GetInstance()->current_test_info()->name());
  const std::string path_ = folder_ + "/scalars.csv";
};

TEST_F(ScalarsTest, ALineHasEveryColumnAndNothingWhereThereIsNone) {
  EXPECT_EQ(ScalarCsvHeader(),
            "step,epoch,wall_seconds,loss,learning_rate,samples_per_second,step_ms,bytes_up,"
            "bytes_down,ratio_up,ratio_down,exposed_seconds,test_accuracy,test_loss\n");
  EXPECT_EQ(ScalarCsvLine({.step = 7,
                           .epoch = 1,
                           .wall_seconds = 1.5,
                           .loss = 0.25,
                           .bytes_up = 123456789,
                           .test_accuracy = 0.5}),
            "7,1,1.500,0.25,,,,1.234568e+08,,,,,0.5,\n");
}

TEST_F(ScalarsTest, ARunThatGoesOnKeepsWhatCameBeforeItsCheckpoint) {
  {
    ScalarCsv csv = Open(0);
    for (const uint64_t step : {10, 20, 30})
      ASSERT_TRUE(csv.Append({.step = step, .loss = 1}).ok());
    ASSERT_TRUE(csv.Append({.step = 30, .test_loss = 2}).ok());
    ASSERT_TRUE(csv.Append({.step = 40, .loss = 1}).ok());
  }
  EXPECT_THAT(Steps(), ElementsAre("10", "20", "30", "30", "40"));
  Open(35);
  EXPECT_THAT(Steps(), ElementsAre("10", "20", "30", "30"));
  Open(30);
  EXPECT_THAT(Steps(), ElementsAre("10", "20", "30")) << "the test after step 30 runs again";
  ASSERT_TRUE(Open(25).Append({.step = 26}).ok());
  EXPECT_THAT(Steps(), ElementsAre("10", "20", "26"));
  Open(0);
  EXPECT_THAT(Steps(), IsEmpty());
}

TEST_F(ScalarsTest, WhatAKilledWriterLeftIsCut) {
  const std::string row = ScalarCsvLine({.step = 10, .loss = 1});
  for (const std::string& rest :
       {row.substr(0, 9), std::string("11,garbage\n"), std::string("x") + row,
        std::string(100'000, '1'), std::string("\0\n", 2)}) {
    Write(ScalarCsvHeader() + row + rest);
    Open(1000);
    EXPECT_THAT(Steps(), ElementsAre("10"));
  }
}

TEST_F(ScalarsTest, AFileOfOthersIsMovedAside) {
  for (const std::string& theirs :
       {std::string("step,loss\n1,2\n"), std::string("no end"), std::string(100'000, 'x')}) {
    Write(theirs);
    const std::string moved_to = Open(10).moved_to();
    EXPECT_EQ(Read(moved_to), theirs);
    EXPECT_THAT(Steps(), IsEmpty());
  }
  EXPECT_TRUE(std::filesystem::exists(path_ + ".3"));
  EXPECT_THAT(Open(10).moved_to(), IsEmpty());
}

TEST_F(ScalarsTest, EventFilesAreNamedInTheirOrderWhateverTheClockSays) {
  const absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  std::ofstream(folder_ + "/events.out.tfevents.zzz.other") << "theirs";
  const auto first = EventFile::Create(folder_, now, 0);
  const auto second = EventFile::Create(folder_, now, 10);
  const auto third = EventFile::Create(folder_, now - absl::Hours(1), 20);
  ASSERT_TRUE(first.ok() && second.ok() && third.ok());
  EXPECT_EQ(first->path(), folder_ + "/events.out.tfevents.1700000000.000000.sluice");
  EXPECT_LT(first->path(), second->path());
  EXPECT_LT(second->path(), third->path());
}

TEST_F(ScalarsTest, OtherUsersMayNotReadThem) {
  const mode_t mask = ::umask(0);
  Open(0);
  ::umask(mask);
  EXPECT_EQ(std::filesystem::status(path_).permissions(), std::filesystem::perms(0640));
}

// Writes to /dev/full always fail. The run must lose only the rows, with one warning.
TEST_F(ScalarsTest, AFullDiskCostsRowsAndOneWarning) {
  std::filesystem::create_symlink("/dev/full", path_);
  const absl::StatusOr<ScalarCsv> csv = ScalarCsv::Open(path_, 0);
  EXPECT_THAT(csv.status().message(), HasSubstr(path_));
  EXPECT_THAT(csv.status().message(), HasSubstr("No space left"));
  const Logger logger("worker-0");
  ::testing::internal::CaptureStderr();
  ScalarLog log(folder_, 0, absl::UnixEpoch(), &logger);
  std::filesystem::permissions(folder_, std::filesystem::perms::none);
  for (int step = 1; step <= 3; ++step) {
    log.Append({.step = static_cast<uint64_t>(step)}, absl::UnixEpoch());
  }
  std::filesystem::permissions(folder_, std::filesystem::perms::all);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("No space left"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

TEST_F(ScalarsTest, ARecordThatWasNotWrittenWholeIsTakenBack) {
  absl::StatusOr<AppendedFile> file = AppendedFile::Open(path_, 0);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->Append("one\n").ok());
  // With this limit, the kernel writes part of a row and rejects the rest.
  struct rlimit before = {};
  ::getrlimit(RLIMIT_FSIZE, &before);
  struct rlimit limit = before;
  limit.rlim_cur = 6;
  ::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &limit);
  const absl::Status refused = file->Append("two\n");
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_THAT(refused.message(), HasSubstr("File too large"));
  EXPECT_EQ(Read(path_), "one\n");
  ASSERT_TRUE(file->Append("three\n").ok());
  EXPECT_EQ(Read(path_), "one\nthree\n");
}

}  // namespace
}  // namespace sluice::worker
