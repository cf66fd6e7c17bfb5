// SPDX-License-Identifier: Apache-2.0
#include "cli/bundle/log_tails.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/temporary_folder.h"

namespace sluice::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;

class LogTailsTest : public ::testing::Test {
 protected:
  // Returns the collected files by name, without missing.txt.
  std::map<std::string, std::string> Collect(size_t files_left = kLogFilesMax) {
    CollectLogs(folder_.path(), "logs-1", &files_left, &contents_);
    std::map<std::string, std::string> files;
    for (BundleContents::Entry& file : contents_.Files()) files[file.name] = file.text;
    missing_ = files["missing.txt"];
    files.erase("missing.txt");
    return files;
  }

  TemporaryFolder folder_;
  BundleContents contents_;
  std::string missing_;
};

TEST_F(LogTailsTest, TakesShortFilesWhole) {
  folder_.Write("shard-0.log", "one\ntwo\n");
  folder_.Write("empty", "");
  EXPECT_THAT(Collect(),
              ElementsAre(Pair("logs-1/empty", ""), Pair("logs-1/shard-0.log", "one\ntwo\n")));
  EXPECT_THAT(contents_.missing(), IsEmpty());
}

TEST_F(LogTailsTest, CutsALongFileAtTheBeginningOfALine) {
  std::string text;
  while (text.size() < 2 * kLogTailBytes) absl::StrAppend(&text, "line ", text.size(), "\n");
  folder_.Write("shard-0.log", text);
  const std::string tail = Collect()["logs-1/shard-0.log"];
  EXPECT_GT(tail.size(), kLogTailBytes - 100);
  EXPECT_LE(tail.size(), kLogTailBytes);
  EXPECT_EQ(tail.substr(0, 5), "line ");
  EXPECT_THAT(text, EndsWith(tail));
}

TEST_F(LogTailsTest, LeavesOutSecretsAndRemovesThemFromOtherFiles) {
  folder_.Write("token", "0123456789abcdef\n");
  folder_.Write("tls.key", "-----BEGIN PRIVATE KEY-----\n");
  folder_.Write("clients", "worker token fedcba9876543210\n");
  folder_.Write("shard-0.log", "started with 0123456789abcdef\n");
  EXPECT_THAT(Collect(),
              ElementsAre(Pair("logs-1/shard-0.log", "started with [secret removed]\n")));
  for (const char* const name : {"/token: ", "/tls.key: ", "/clients: it holds a token"}) {
    EXPECT_THAT(missing_, HasSubstr(absl::StrCat(folder_.path(), name)));
  }
}

TEST_F(LogTailsTest, LeavesOutWhatIsNoLog) {
  const std::string outside = folder_.Write("shard-0.log", "one\n");
  ASSERT_EQ(::symlink(outside.c_str(), folder_.Path("link.log").c_str()), 0);
  ASSERT_EQ(::mkfifo(folder_.Path("pipe.log").c_str(), 0600), 0);  // Opening it would block.
  ASSERT_TRUE(std::filesystem::create_directory(folder_.Path("more")));
  folder_.Write("old.log.gz", "x");
  folder_.Write("core", std::string("\0\1\2", 3));
  folder_.Write("a\nb", "x");
  EXPECT_THAT(Collect(), ElementsAre(Key("logs-1/shard-0.log")));
  EXPECT_EQ(contents_.missing().size(), 6u) << missing_;
  EXPECT_THAT(missing_, HasSubstr("/link.log: is not a regular file"));
  EXPECT_THAT(missing_, HasSubstr("/core: is not text"));
  EXPECT_THAT(missing_, HasSubstr("a\\nb: "));
}

TEST_F(LogTailsTest, TakesTheNewestFiles) {
  int age = 0;
  for (const char* const name : {"a", "b", "c"}) {
    folder_.Write(name, name);
    const timespec times[] = {{.tv_sec = 1000 + age, .tv_nsec = 0},
                              {.tv_sec = 1000 + age, .tv_nsec = 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, folder_.Path(name).c_str(), times, 0), 0);
    ++age;
  }
  EXPECT_THAT(Collect(2), ElementsAre(Key("logs-1/b"), Key("logs-1/c")));
  EXPECT_THAT(missing_, HasSubstr(": its 1 oldest files"));
}

TEST_F(LogTailsTest, SaysThatThereIsNoFolder) {
  size_t files_left = kLogFilesMax;
  CollectLogs(folder_.Path("none"), "logs-1", &files_left, &contents_);
  ASSERT_EQ(contents_.missing().size(), 1u);
  EXPECT_THAT(contents_.missing()[0], HasSubstr("none: cannot be listed: No such file"));
  EXPECT_EQ(files_left, kLogFilesMax);
}

}  // namespace
}  // namespace sluice::cli
