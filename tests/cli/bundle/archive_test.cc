// SPDX-License-Identifier: Apache-2.0
#include "cli/bundle/archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/temporary_folder.h"

namespace sluice::cli {
namespace {

using ::testing::HasSubstr;

class ArchiveTest : public ::testing::Test {
 protected:
  ArchiveTest() { std::filesystem::create_directory(options_.temporary_folder); }
  ~ArchiveTest() override {
    EXPECT_TRUE(std::filesystem::is_empty(options_.temporary_folder)) << "a folder was left";
  }

  absl::Status Write(const std::string& path, bool stop = false) {
    absl::StatusOr<NewFile> out = NewFile::Create(path);
    if (!out.ok()) return out.status();
    absl::Status status = WriteArchive(
        {{"version.txt", "1\n"}, {"logs-1/-rf", "line\n"}}, options_, [stop] { return stop; },
        &*out);
    return status.ok() ? out->Keep() : status;
  }

  TemporaryFolder folder_;
  ArchiveOptions options_{.name = "sluice-debug",
                          .temporary_folder = folder_.Path("temporary"),
                          .environment = {"PATH=/usr/bin:/bin"}};
  const std::string path_ = folder_.Path("out.tar.gz");
};

TEST_F(ArchiveTest, WritesAFileForItsOwnerOnly) {
  ASSERT_TRUE(Write(path_).ok());
  struct stat facts {};
  ASSERT_EQ(::stat(path_.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
  ASSERT_EQ(std::system(absl::StrCat("tar -xzf ", path_, " -C ", folder_.path()).c_str()), 0);
  EXPECT_EQ(ReadText(folder_.Path("sluice-debug/version.txt")), "1\n");
  EXPECT_EQ(ReadText(folder_.Path("sluice-debug/logs-1/-rf")), "line\n");
}

TEST_F(ArchiveTest, OverwritesNothing) {
  folder_.Write("out.tar.gz", "mine");
  EXPECT_EQ(Write(path_).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ReadText(folder_.Path("out.tar.gz")), "mine");
  const std::string link = folder_.Path("link");
  ASSERT_EQ(::symlink(folder_.Path("elsewhere").c_str(), link.c_str()), 0);
  EXPECT_EQ(Write(link).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_FALSE(std::filesystem::exists(folder_.Path("elsewhere")));
}

TEST_F(ArchiveTest, LeavesNoFileBehindWithoutTar) {
  options_.environment = {absl::StrCat("PATH=", folder_.path())};
  EXPECT_THAT(std::string(Write(path_).message()), HasSubstr("the program tar exited with code"));
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(ArchiveTest, LeavesNoFileBehindWhenItIsStopped) {
  EXPECT_EQ(Write(path_, /*stop=*/true).code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace sluice::cli
