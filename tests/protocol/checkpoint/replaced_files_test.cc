// SPDX-License-Identifier: Apache-2.0
// Tests that complete files survive a failed or repeated write of another file with the same name.
#include <dlfcn.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "protocol/checkpoint/checkpoint_folder.h"
#include "protocol/checkpoint/durable_file.h"
#include "tests/temporary_folder.h"

// While this is true, this process cannot open run records for reading.
static std::atomic<bool> record_is_unreadable{false};
// While this is true, the file system has no hard links.
static std::atomic<bool> has_no_links{false};

extern "C" int link(const char* from, const char* to) noexcept {
  using Link = int (*)(const char*, const char*);
  static const auto real_link = reinterpret_cast<Link>(::dlsym(RTLD_NEXT, "link"));
  if (!has_no_links) return real_link(from, to);
  errno = EPERM;
  return -1;
}

extern "C" int open(const char* path, int flags, ...) {
  using Open = int (*)(const char*, int, ...);
  static const auto real_open = reinterpret_cast<Open>(::dlsym(RTLD_NEXT, "open"));
  va_list arguments;
  va_start(arguments, flags);
  const int mode = va_arg(arguments, int);
  va_end(arguments);
  const bool reads = (flags & O_ACCMODE) == O_RDONLY && (flags & O_DIRECTORY) == 0;
  if (reads && record_is_unreadable && std::strstr(path, "/run.json") != nullptr) {
    errno = EMFILE;
    return -1;
  }
  return real_open(path, flags, mode);
}

namespace sluice::protocol {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ReplacedFiles, ARecordThatCannotBeReadBackLeavesTheOneBefore) {
  const TemporaryFolder folder;
  RunRecord record{.job_name = "sample", .job_uid = 7, .term = 4};
  ASSERT_TRUE(WriteRunRecord(folder.path(), record).ok());
  const RunRecord before = record;
  record.term = 5;
  record_is_unreadable = true;
  const absl::Status written = WriteRunRecord(folder.path(), record);
  record_is_unreadable = false;
  EXPECT_TRUE(absl::IsUnavailable(written)) << written;
  const absl::StatusOr<RunRecord> found = ReadRunRecord(folder.path());
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*found, before);
  EXPECT_THAT(AllFiles(folder.path()), ElementsAre("run.json"));
  EXPECT_TRUE(WriteRunRecord(folder.path(), record).ok());
  EXPECT_EQ(ReadRunRecord(folder.path()).value().term, 5u);
}

class TwoWriters : public ::testing::Test {
 protected:
  CheckpointPart Write(absl::string_view name, absl::string_view bytes) {
    const absl::StatusOr<CheckpointPart> part = WritePart(folder_.path(), 3, 100, name, bytes);
    EXPECT_TRUE(part.ok()) << part.status();
    return part.value_or(CheckpointPart());
  }
  CheckpointManifest Complete(std::vector<CheckpointPart> parts) {
    CheckpointManifest manifest;
    manifest.job_name = "sample";
    manifest.job_uid = 7;
    manifest.term = 3;
    manifest.step = 100;
    manifest.world_size = 1;
    manifest.shards = 1;
    manifest.parts = std::move(parts);
    const absl::Status written = WriteManifest(folder_.path(), manifest);
    EXPECT_TRUE(written.ok()) << written;
    return ReadManifest(folder_.path(), 100).value();
  }

  TemporaryFolder folder_;
};

TEST_F(TwoWriters, ALateWriterOfTheSameTermLeavesACompleteCheckpointAsItIs) {
  for (const std::string& name : {WorkerPartName(0, 3), std::string("parameters.pt")}) {
    const CheckpointManifest manifest = Complete({Write(name, "of the one in charge")});
    Write(name, "of the one that was late");
    const absl::Status good = VerifyCheckpoint(folder_.path(), manifest);
    EXPECT_TRUE(good.ok()) << good;
    EXPECT_EQ(ReadPart(folder_.path(), manifest, name).value(), "of the one in charge");
  }
}

TEST_F(TwoWriters, TheSamePartMayBeWrittenTwice) {
  const CheckpointPart part = Write(WorkerPartName(0, 3), "bytes");
  EXPECT_EQ(Write(WorkerPartName(0, 3), "bytes"), part);
  EXPECT_EQ(part.file, "");
  EXPECT_THAT(AllFiles(folder_.path()), ElementsAre("worker-0-term-3.state"));
}

TEST_F(TwoWriters, WithoutSecondNamesEachHasAFileOfItsOwn) {
  has_no_links = true;
  const std::string name = WorkerPartName(0, 3);
  const CheckpointPart part = Write(name, "of the one in charge");
  const CheckpointManifest manifest = Complete({part});
  EXPECT_EQ(Write(name, "of the one that was late").file, "worker-0-term-3.24-c0200205.state");
  EXPECT_EQ(Write(name, "of the one in charge"), part);
  EXPECT_TRUE(VerifyCheckpoint(folder_.path(), manifest).ok());
  const std::string path = StepFolder(folder_.path(), 100) + "/parameters.pt";
  ASSERT_TRUE(NameToo(PartPath(folder_.path(), part), path).ok());
  has_no_links = false;
  EXPECT_EQ(ReadText(path), "of the one in charge");
}

TEST_F(TwoWriters, AFileOfItsOwnIsNamedPlainly) {
  CheckpointPart part = Write(WorkerPartName(0, 3), "bytes");
  CheckpointManifest manifest = Complete({part});
  for (const char* file : {"../x", "manifest.json", "x.unfinished", ".x"}) {
    manifest.parts[0].file = file;
    EXPECT_TRUE(absl::IsInvalidArgument(WriteManifest(folder_.path(), manifest))) << file;
    EXPECT_TRUE(absl::IsInvalidArgument(CheckPartNames(manifest.parts[0]))) << file;
  }
  const std::string longest(200, 'a');
  Write(longest, "x");
  part = Write(longest, "y");
  EXPECT_TRUE(CheckPartNames(part).ok());
  EXPECT_EQ(Complete({part}).parts[0].file, part.file);
}

TEST_F(TwoWriters, TheManifestSaysWhichOfTwoFilesIsThePart) {
  const std::string name = WorkerPartName(0, 3);
  Write(name, "of one that died before the manifest");
  const CheckpointManifest manifest = Complete({Write(name, "of its successor")});
  EXPECT_TRUE(VerifyCheckpoint(folder_.path(), manifest).ok());
  EXPECT_EQ(ReadPart(folder_.path(), manifest, name).value(), "of its successor");
  const std::string text = ReadText(StepFolder(folder_.path(), 100) + "/manifest.json");
  EXPECT_THAT(text, HasSubstr("\"version\": 2"));
  EXPECT_THAT(text, HasSubstr("\"file\": \"" + manifest.parts[0].file + "\""));
}

}  // namespace
}  // namespace sluice::protocol
