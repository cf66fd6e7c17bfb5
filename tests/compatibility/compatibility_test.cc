// SPDX-License-Identifier: Apache-2.0
// Tests that the current code reads frames, job files and checkpoint folders of earlier releases.
// make.py writes the contents of a version's folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/checkpoint.h"
#include "job/file/job_file.h"
#include "protocol/checkpoint/checkpoint_folder.h"
#include "protocol/checkpoint/snapshot_format.h"
#include "tests/compress/golden_file.h"
#include "tests/compress/one_chunk.h"

namespace sluice {
namespace {

using Path = std::filesystem::path;

std::vector<Path> Inside(const Path& folder, bool folders) {
  std::vector<Path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.is_directory() == folders) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<Path> FramesOfAllVersions() {
  std::vector<Path> frames;
  for (const Path& version : Inside(SLUICE_COMPATIBILITY, /*folders=*/true)) {
    for (const Path& frame : Inside(version / "frames", /*folders=*/false)) frames.push_back(frame);
  }
  return frames;
}

std::vector<Path> JobsOfAllVersions() {
  std::vector<Path> jobs;
  for (const Path& version : Inside(SLUICE_COMPATIBILITY, /*folders=*/true)) {
    for (const Path& job : Inside(version, /*folders=*/true)) {
      if (job.filename() != "frames") jobs.push_back(job);
    }
  }
  return jobs;
}

// Returns, for example, "0_1_sync_store_shards".
std::string NameOf(const testing::TestParamInfo<Path>& info) {
  Path version = info.param.parent_path();
  if (version.filename() == "frames") version = version.parent_path();
  return absl::StrReplaceAll(
      absl::StrCat(version.filename().string(), "_", info.param.stem().string()),
      {{".", "_"}, {"-", "_"}});
}

class FrameOfARelease : public testing::TestWithParam<Path> {};

TEST_P(FrameOfARelease, HasTheSameValues) {
  std::map<std::string, std::string> golden = compress::ReadGolden(GetParam());
  // This frame depends on an earlier one, which is not stored. tests/golden encodes that one first.
  if (golden.contains("before"))
    GTEST_SKIP() << "the frame needs an earlier one, which is not stored";
  const std::string spec(absl::StripAsciiWhitespace(golden["spec"]));
  ASSERT_TRUE(compress::ParseCodecSpec(spec).ok()) << spec;
  const std::vector<float> wanted = compress::Floats(golden["decoded"]);
  const std::string bytes =
      absl::HexStringToBytes(absl::StrReplaceAll(golden["frame"], {{" ", ""}}));
  const std::vector<float> decoded = compress::LoneCodec(spec).Decoded(
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()),
      wanted.size());
  EXPECT_EQ(decoded, wanted);
}

INSTANTIATE_TEST_SUITE_P(All, FrameOfARelease, testing::ValuesIn(FramesOfAllVersions()), NameOf);

class JobOfARelease : public testing::TestWithParam<Path> {
 protected:
  std::string kind() const { return GetParam().filename().string(); }
  std::string dir() const { return (GetParam() / "checkpoints").string(); }
  protocol::CheckpointManifest Manifest() const {
    const absl::StatusOr<std::vector<uint64_t>> steps = protocol::ListCheckpoints(dir());
    EXPECT_TRUE(steps.ok() && !steps->empty()) << steps.status().message();
    if (!steps.ok() || steps->empty()) return {};
    absl::StatusOr<protocol::CheckpointManifest> manifest =
        protocol::ReadManifest(dir(), steps->back());
    EXPECT_TRUE(manifest.ok()) << manifest.status().message();
    return manifest.value_or(protocol::CheckpointManifest());
  }
};

TEST_P(JobOfARelease, IsAJobFileOfToday) {
  const absl::StatusOr<job::JobSpec> job =
      job::LoadJob({.path = (GetParam() / "job.yaml").string(), .set = {}, .dense = false});
  ASSERT_TRUE(job.ok()) << job.status().message();
  EXPECT_EQ(job->name, kind());
  EXPECT_TRUE(job->checkpoint.enabled());
}

TEST_P(JobOfARelease, LeftACheckpointThatARunCouldGoOnFrom) {
  std::ostringstream text;
  EXPECT_EQ(cli::VerifyCheckpoints({dir(), std::nullopt}, text, text), 0) << text.str();
  EXPECT_THAT(text.str(), testing::HasSubstr("unfinished"));
  const absl::StatusOr<protocol::RunRecord> run = protocol::ReadRunRecord(dir());
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_FALSE(run->finished);
  const protocol::CheckpointManifest manifest = Manifest();
  EXPECT_EQ(manifest.job_name, kind());
  EXPECT_EQ(manifest.job_uid, run->job_uid);
  EXPECT_EQ(manifest.world_size, 2u);
  EXPECT_EQ(manifest.at_shards, kind() == "sync-store-shards");
  const size_t parameters = kind() == "relays" ? 0 : 1;
  EXPECT_EQ(manifest.parts.size(), 4u + parameters)
      << "the shards, the workers and the parameters have parts";
}

// Each rack is a separate run, with a checkpoint after the same step.
TEST_P(JobOfARelease, LeftOneOfEachRack) {
  if (kind() != "relays") return;  // It has no racks.
  for (const char* rack : {"/rack-0", "/rack-1"}) {
    std::ostringstream text;
    EXPECT_EQ(cli::VerifyCheckpoints({dir() + rack, std::nullopt}, text, text), 0) << text.str();
    const absl::StatusOr<std::vector<uint64_t>> steps = protocol::ListCheckpoints(dir() + rack);
    ASSERT_TRUE(steps.ok()) << steps.status().message();
    EXPECT_THAT(*steps, testing::ElementsAre(Manifest().step));
  }
}

// Tests that the saved states contain the data that is specific to the kind of job.
TEST_P(JobOfARelease, LeftStatesOfItsKind) {
  const protocol::CheckpointManifest manifest = Manifest();
  size_t states = 0;
  for (const protocol::CheckpointPart& part : manifest.parts) {
    if (!part.name.ends_with(".state")) continue;
    ++states;
    const absl::StatusOr<std::string> bytes = protocol::ReadPart(dir(), manifest, part.name);
    ASSERT_TRUE(bytes.ok()) << bytes.status().message();
    if (part.name.starts_with("worker")) {
      const absl::StatusOr<protocol::WorkerSnapshot> worker = protocol::ParseWorkerSnapshot(*bytes);
      ASSERT_TRUE(worker.ok()) << worker.status().message();
      EXPECT_EQ(worker->step, manifest.step);
      EXPECT_TRUE(kind() == "relays" || !worker->trainer.empty());
      EXPECT_EQ(!worker->plans.empty(), kind() == "planned");
      continue;
    }
    const absl::StatusOr<protocol::ShardSnapshot> shard = protocol::ParseShardSnapshot(*bytes);
    ASSERT_TRUE(shard.ok()) << shard.status().message();
    EXPECT_EQ(shard->step, manifest.step);
    const bool updates = kind() == "sync-updates-on-shards" || kind() == "local-sgd";
    EXPECT_EQ(!shard->replica.empty(), updates || kind() == "async");
    EXPECT_EQ(!shard->clocks.empty(), kind() == "async");
    EXPECT_EQ(!shard->plans.empty(), kind() == "planned");
  }
  EXPECT_EQ(states, 4u);
}

INSTANTIATE_TEST_SUITE_P(All, JobOfARelease, testing::ValuesIn(JobsOfAllVersions()), NameOf);

TEST(Releases, HaveLeftAllKinds) {
  for (const Path& version : Inside(SLUICE_COMPATIBILITY, /*folders=*/true)) {
    std::set<std::string> names;
    for (const Path& path : Inside(version, /*folders=*/true)) names.insert(path.filename());
    for (const char* kind : {"frames", "sync", "sync-store-shards", "sync-updates-on-shards",
                             "async", "local-sgd", "planned", "elastic", "relays"}) {
      EXPECT_TRUE(names.contains(kind)) << version << " has no " << kind;
    }
    uint64_t bytes = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(version)) {
      if (entry.is_regular_file()) bytes += entry.file_size();
    }
    EXPECT_LE(bytes, uint64_t{1} << 20) << version << " is too large for a repository";
    for (const compress::CodecEntry& codec : compress::Codecs()) {
      bool found = false;
      for (const Path& frame : Inside(version / "frames", /*folders=*/false)) {
        const absl::StatusOr<compress::CodecSpec> spec = compress::ParseCodecSpec(
            absl::StripAsciiWhitespace(compress::ReadGolden(frame)["spec"]));
        found = found || (spec.ok() && spec->codec == codec.id);
      }
      // Release 0.1 must have a frame of each codec.
      EXPECT_TRUE(found || version.filename() != "0.1") << codec.name;
    }
  }
}

}  // namespace
}  // namespace sluice
