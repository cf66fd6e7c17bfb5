// SPDX-License-Identifier: Apache-2.0
#include "protocol/checkpoint/durable_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "base/crc32c.h"
#include "protocol/checkpoint/checkpoint_folder.h"
#include "tests/temporary_folder.h"

namespace sluice::protocol {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Limits the size of this process's files. The system refuses bytes beyond the limit, as on a full
// disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*const handler_)(int);
};

std::string Noise(size_t size) {
  std::string bytes(size, '\0');
  uint32_t state = 1;
  for (char& c : bytes) c = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return bytes;
}

TEST(DurableFile, WritesAndReads) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file";
  // These sizes are around the piece size of writes.
  for (const size_t size : {0, 1, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, 9 << 20}) {
    const std::string bytes = Noise(size);
    const uint32_t checksum = Crc32c(bytes);
    EXPECT_EQ(WriteDurably(path, bytes).value(), checksum);
    EXPECT_EQ(ReadWholeFile(path, size).value(), bytes);
    EXPECT_EQ(ChecksumFile(path).value().bytes, size);
    EXPECT_EQ(ChecksumFile(path).value().checksum, checksum);
    EXPECT_EQ(StatFile(path).value().bytes, size);
    if (size > 0) {
      EXPECT_TRUE(absl::IsDataLoss(ReadWholeFile(path, size - 1).status()));
    }
  }
  EXPECT_THAT(AllFiles(folder.path()), ElementsAre("file"));
}

TEST(DurableFile, OnlyItsOwnerMayReadIt) {
  const TemporaryFolder folder;
  ASSERT_TRUE(WriteDurably(folder.path() + "/a", "bytes").ok());
  EXPECT_EQ(std::filesystem::status(folder.path() + "/a").permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST(DurableFile, AFileThatEndsTooSoonForItsDiskIsResourceExhausted) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file";
  ASSERT_TRUE(WriteDurably(path, "the old one").ok());
  {
    const FileSizeLimit limit(100000);
    EXPECT_TRUE(WriteDurably(path, Noise(100000)).ok());
    ASSERT_TRUE(WriteDurably(path, "the old one").ok());
    const absl::Status status = WriteDurably(path, Noise(100001)).status();
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  }
  EXPECT_EQ(ReadText(path), "the old one");
  EXPECT_THAT(AllFiles(folder.path()), ElementsAre("file"));
}

TEST(DurableFile, AFullDiskIsResourceExhaustedAndLeavesNothing) {
  TemporaryFolder disk;
  if (!disk.BecomeSmallDisk()) GTEST_SKIP() << "this process may not mount a disk";
  const std::string dir = disk.path() + "/checkpoints";
  ASSERT_TRUE(WritePart(dir, 0, 1, "small", Noise(50000)).ok());
  const absl::Status status = WritePart(dir, 0, 2, "large", Noise(300000)).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("step-000000000002/large"));
  EXPECT_THAT(AllFiles(disk.path()), ElementsAre("small"));
  // The disk is filled to the last block. Even a small record must not fit, and the old record must
  // stay.
  ASSERT_TRUE(WriteRunRecord(dir, {"sample", 1, 0, false}).ok());
  WriteText(disk.path() + "/filler", Noise(300000));
  const absl::Status record = WriteRunRecord(dir, {"sample", 1, 1, false});
  EXPECT_TRUE(absl::IsResourceExhausted(record)) << record;
  EXPECT_EQ(ReadRunRecord(dir).value().term, 0u);
  CheckpointManifest manifest;
  manifest.step = 1;
  EXPECT_TRUE(absl::IsResourceExhausted(WriteManifest(dir, manifest)));
  EXPECT_TRUE(absl::IsNotFound(ReadManifest(dir, 1).status()));
  // When there is free space again, writing must work.
  std::filesystem::remove(disk.path() + "/filler");
  EXPECT_TRUE(WriteRunRecord(dir, {"sample", 1, 1, false}).ok());
  EXPECT_TRUE(WritePart(dir, 0, 2, "large", Noise(100000)).ok());
}

TEST(DurableFile, OtherTroubleIsUnavailableAndNamed) {
  const TemporaryFolder folder;
  WriteText(folder.path() + "/file", "x");
  const absl::Status below = MakeFolder(folder.path() + "/file/folder");
  EXPECT_TRUE(absl::IsUnavailable(below)) << below;
  EXPECT_THAT(std::string(below.message()), HasSubstr(folder.path() + "/file"));
  EXPECT_TRUE(absl::IsUnavailable(MakeFolder(folder.path() + "/file")));
  std::filesystem::create_directory(folder.path() + "/folder");
  EXPECT_TRUE(absl::IsUnavailable(WriteDurably(folder.path() + "/folder", "x").status()));
  // The folder of a checkpoint may be removed while a late writer still writes into it.
  EXPECT_TRUE(absl::IsUnavailable(WriteDurably(folder.path() + "/gone/file", "x").status()));
  EXPECT_TRUE(absl::IsUnavailable(MakeFolder("/proc/no/such")));
  EXPECT_THAT(AllFiles(folder.path()), ElementsAre("file"));
}

TEST(DurableFile, MakesAndRemovesFolders) {
  const TemporaryFolder folder;
  EXPECT_TRUE(MakeFolder(folder.path() + "/a/b/c").ok());
  EXPECT_TRUE(MakeFolder(folder.path() + "/a/b/c/").ok());
  EXPECT_TRUE(MakeFolder(folder.path() + "/d/e/").ok());
  WriteText(folder.path() + "/outside", "x");
  WriteText(folder.path() + "/a/b/inside", "x");
  std::filesystem::create_symlink(folder.path() + "/outside", folder.path() + "/a/b/link");
  std::filesystem::create_directory_symlink(folder.path() + "/d", folder.path() + "/a/b/d");
  EXPECT_TRUE(RemoveFolder(folder.path() + "/a").ok());
  EXPECT_TRUE(RemoveFolder(folder.path() + "/a").ok());
  EXPECT_TRUE(RemoveDurably(folder.path() + "/a").ok());
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/d/e"));
  EXPECT_THAT(AllFiles(folder.path()), ElementsAre("outside"));
  EXPECT_TRUE(absl::IsNotFound(ListFolder(folder.path() + "/a").status()));
  EXPECT_THAT(ListFolder(folder.path() + "/d/e").value(), IsEmpty());
}

}  // namespace
}  // namespace sluice::protocol
