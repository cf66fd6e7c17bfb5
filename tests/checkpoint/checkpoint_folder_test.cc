#include "job/checkpoint/checkpoint_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;

class CheckpointFolder : public ::testing::Test {
 protected:
  CheckpointFolder() {
    std::string name = ::testing::TempDir() + "/checkpoint_XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  ~CheckpointFolder() override { std::filesystem::remove_all(folder_); }

  std::string dir() const { return folder_ + "/a/b"; }

  CheckpointManifest WriteSample(uint64_t step) {
    CheckpointManifest manifest;
    manifest.job_name = "sample";
    manifest.job_hash = 0xFEDCBA9876543210;
    manifest.job_uid = 7;
    manifest.term = 1;
    manifest.step = step;
    manifest.world_size = 1;
    manifest.shards = 1;
    manifest.table_hash = 0xFFFFFFFFFFFFFFFF;
    manifest.layout = {1024, 4096};
    manifest.software_version = "1.2.3";
    for (const std::string& name :
         {std::string("parameters.pt"), ShardPartName(0, 1), WorkerPartName(0, 1)}) {
      const auto part = WritePart(dir(), 1, step, name, absl::StrCat("the bytes of ", name));
      EXPECT_TRUE(part.ok()) << part.status();
      manifest.parts.push_back(part.value_or(CheckpointPart()));
    }
    const absl::Status written = WriteManifest(dir(), manifest);
    EXPECT_TRUE(written.ok()) << written;
    return manifest;
  }

  std::string folder_;
};

TEST_F(CheckpointFolder, ReadsWhatItWrote) {
  const CheckpointManifest manifest = WriteSample(1000);
  EXPECT_EQ(manifest.parts[1].bytes, 33u);
  EXPECT_EQ(manifest.parts[1].term, 1u);
  const absl::StatusOr<CheckpointManifest> again = ReadManifest(dir(), 1000);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, manifest);
  EXPECT_TRUE(VerifyCheckpoint(dir(), manifest).ok());
  EXPECT_EQ(ReadPart(dir(), manifest, "shard-0-term-1.state").value(),
            "the bytes of shard-0-term-1.state");
  EXPECT_TRUE(std::filesystem::exists(dir() + "/step-000000001000/manifest.json"));
}

TEST_F(CheckpointFolder, ListsAndRemoves) {
  EXPECT_THAT(ListCheckpoints(dir()).value(), ElementsAre());
  WriteSample(30);
  WriteSample(4);
  ASSERT_TRUE(WritePart(dir(), 0, 500, "a", "b").ok());
  EXPECT_THAT(ListCheckpoints(dir()).value(), ElementsAre(4, 30, 500));
  EXPECT_TRUE(RemoveCheckpoint(dir(), 30).ok());
  EXPECT_TRUE(RemoveCheckpoint(dir(), 30).ok());
  EXPECT_THAT(ListCheckpoints(dir()).value(), ElementsAre(4, 500));
  EXPECT_TRUE(absl::IsNotFound(ReadManifest(dir(), 30).status()));
}

TEST_F(CheckpointFolder, KeepsTheRunRecord) {
  EXPECT_TRUE(absl::IsNotFound(ReadRunRecord(dir()).status()));
  RunRecord record{"sample", 0xFEDCBA9876543210, 4, false};
  ASSERT_TRUE(WriteRunRecord(dir(), record).ok());
  EXPECT_EQ(ReadRunRecord(dir()).value(), record);
  record.finished = true;
  ASSERT_TRUE(WriteRunRecord(dir(), record).ok());
  EXPECT_EQ(ReadRunRecord(dir()).value(), record);
}

}  // namespace
}  // namespace sluice
