// SPDX-License-Identifier: Apache-2.0
#include "cli/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "protocol/checkpoint/checkpoint_folder.h"
#include "protocol/checkpoint/snapshot_format.h"
#include "tests/protocol/checkpoint/snapshot_samples.h"
#include "tests/temporary_folder.h"

namespace sluice::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Answer {
  int code = 0;
  std::string text;  // The output on both streams.
};

Answer Ask(int (*command)(const CheckpointCommand&, std::ostream&, std::ostream&),
           const std::string& dir, std::optional<uint64_t> step = std::nullopt) {
  std::ostringstream text;
  Answer answer;
  answer.code = command({dir, step}, text, text);
  answer.text = text.str();
  return answer;
}

class CheckpointCommands : public ::testing::Test {
 protected:
  const std::string& dir() const { return folder_.path(); }

  // Writes the parts of one shard and two workers. With store `shards`, writes the parts of two
  // shards.
  void Write(uint64_t step, uint64_t job_uid = 7) {
    protocol::CheckpointManifest manifest;
    manifest.job_name = "sample";
    manifest.job_uid = job_uid;
    manifest.term = 1;
    manifest.step = step;
    manifest.world_size = 2;
    manifest.shards = at_shards_ ? 2 : 1;
    manifest.at_shards = at_shards_;
    manifest.software_version = "0.1";
    for (uint32_t server = 0; server < manifest.shards; ++server) {
      protocol::ShardSnapshot shard = protocol::SampleShard();
      shard.job_uid = job_uid;
      shard.term = 1;
      shard.step = step;
      shard.shard = server;
      manifest.parts.push_back(WriteAt(server, step, protocol::ShardPartName(server, 1),
                                       protocol::FormatShardSnapshot(shard)));
    }
    for (uint32_t rank = 0; rank < 2; ++rank) {
      protocol::WorkerSnapshot worker = protocol::SampleWorker();
      worker.job_uid = job_uid;
      worker.term = 1;
      worker.step = step;
      worker.rank = same_rank_ ? 0 : rank;
      manifest.parts.push_back(WriteAt(rank % manifest.shards, step,
                                       protocol::WorkerPartName(rank, 1),
                                       protocol::FormatWorkerSnapshot(worker)));
    }
    if (forget_last_) manifest.parts.pop_back();
    ASSERT_TRUE(protocol::WriteManifest(dir(), manifest).ok());
  }
  protocol::CheckpointPart WriteAt(uint32_t server, uint64_t step, const std::string& name,
                                   const std::string& bytes) {
    const std::string folder = at_shards_ ? protocol::PartsFolder(dir(), server) : dir();
    protocol::CheckpointPart part = protocol::WritePart(folder, 1, step, name, bytes).value();
    part.server = server;
    return part;
  }
  void Begin() { ASSERT_TRUE(protocol::WriteRunRecord(dir(), {"sample", 7, 3, false}).ok()); }

  bool at_shards_ = false;
  bool same_rank_ = false;
  bool forget_last_ = false;
  TemporaryFolder folder_;
};

TEST_F(CheckpointCommands, SayThatNothingIsThere) {
  for (const auto command : {&InspectCheckpoints, &VerifyCheckpoints}) {
    for (const std::string& nothing : {dir(), dir() + "/no/such"}) {
      const Answer answer = Ask(command, nothing);
      EXPECT_EQ(answer.code, 1);
      EXPECT_THAT(answer.text, AllOf(HasSubstr("error: "), HasSubstr(nothing)));
    }
    EXPECT_THAT(Ask(command, dir(), 5).text,
                AllOf(HasSubstr("no checkpoint of step 5"), HasSubstr("it has none")));
  }
}

TEST_F(CheckpointCommands, ShowARunThatHasNoneYet) {
  Begin();
  const Answer answer = Ask(&InspectCheckpoints, dir());
  EXPECT_EQ(answer.code, 0);
  EXPECT_THAT(answer.text, AllOf(HasSubstr("run 0000000000000007 of job sample"),
                                 HasSubstr("unfinished, term 3"), HasSubstr("no checkpoint")));
  EXPECT_EQ(Ask(&VerifyCheckpoints, dir()).code, 1);
}

TEST_F(CheckpointCommands, ShowWhatIsThere) {
  Begin();
  Write(100);
  Write(200);
  ASSERT_TRUE(protocol::WritePart(dir(), 1, 300, "shard-0-term-1.state", "x").ok());
  const Answer all = Ask(&InspectCheckpoints, dir());
  EXPECT_EQ(all.code, 0);
  EXPECT_THAT(all.text, AllOf(HasSubstr("step 100, term 1: complete, 3 parts, "),
                              HasSubstr("step 300: incomplete, it has no manifest")));
  const Answer one = Ask(&InspectCheckpoints, dir(), 200);
  EXPECT_EQ(one.code, 0);
  EXPECT_THAT(one.text, AllOf(HasSubstr("2 workers, 1 shards"), HasSubstr("worker-1-term-1.state"),
                              HasSubstr("3 bundles, 7 chunks"),
                              HasSubstr("int8/ef21, none, powersgd:1, topk:25%+int4"),
                              HasSubstr("trainer's state of 21 B"), Not(HasSubstr("100"))));
  EXPECT_THAT(Ask(&InspectCheckpoints, dir(), 150).text, HasSubstr("it has: 100, 200, 300"));
  const Answer verified = Ask(&VerifyCheckpoints, dir());
  EXPECT_EQ(verified.code, 0);
  EXPECT_THAT(verified.text, AllOf(HasSubstr("step 100: good, 3 parts"),
                                   HasSubstr("step 200: good"), HasSubstr("step 300: incomplete")));
}

TEST_F(CheckpointCommands, NameWhatIsDamaged) {
  Begin();
  Write(100);
  Write(200);
  const std::string path = dir() + "/step-000000000200/worker-1-term-1.state";
  std::string bytes = ReadText(path);
  bytes[bytes.size() / 2] = static_cast<char>(~bytes[bytes.size() / 2]);
  WriteText(path, bytes);
  const Answer answer = Ask(&VerifyCheckpoints, dir());
  EXPECT_EQ(answer.code, 1);
  EXPECT_THAT(answer.text, AllOf(HasSubstr("step 100: good"), HasSubstr("step 200: DAMAGED: "),
                                 HasSubstr("worker-1-term-1.state is damaged: its checksum is")));
  EXPECT_EQ(Ask(&VerifyCheckpoints, dir(), 100).code, 0);
  EXPECT_THAT(Ask(&InspectCheckpoints, dir(), 200).text, HasSubstr("    DAMAGED: "));
  WriteText(dir() + "/run.json", "{}");
  EXPECT_EQ(Ask(&VerifyCheckpoints, dir(), 100).code, 1);
  EXPECT_EQ(Ask(&InspectCheckpoints, dir()).code, 1);
}

// All servers use the same folder, as in `sluice run`.
TEST_F(CheckpointCommands, FindPartsWithTheServers) {
  at_shards_ = true;
  Begin();
  Write(100);
  const Answer verified = Ask(&VerifyCheckpoints, dir());
  EXPECT_EQ(verified.code, 0) << verified.text;
  EXPECT_THAT(verified.text,
              AllOf(HasSubstr("step 100: good, 4 parts"), Not(HasSubstr("not here"))));
  const std::string path =
      protocol::PartsFolder(dir(), 1) + "/step-000000000100/worker-1-term-1.state";
  std::string bytes = ReadText(path);
  bytes[bytes.size() / 2] = static_cast<char>(~bytes[bytes.size() / 2]);
  WriteText(path, bytes);
  EXPECT_EQ(Ask(&VerifyCheckpoints, dir()).code, 1);
  EXPECT_THAT(Ask(&VerifyCheckpoints, dir()).text, HasSubstr("worker-1-term-1.state is damaged"));
}

TEST_F(CheckpointCommands, SayWhatLiesWithOtherServers) {
  at_shards_ = true;
  Begin();
  Write(100);
  const TemporaryFolder other;
  std::filesystem::rename(protocol::PartsFolder(dir(), 1), protocol::PartsFolder(other.path(), 1));
  for (const auto command : {&InspectCheckpoints, &VerifyCheckpoints}) {
    const Answer answer = Ask(command, dir());
    EXPECT_EQ(answer.code, 0) << answer.text;
    EXPECT_THAT(answer.text,
                AllOf(HasSubstr("; 2 of the parts"), HasSubstr("the server of shard 1")));
  }
  EXPECT_THAT(Ask(&InspectCheckpoints, dir(), 100).text,
              AllOf(HasSubstr("not here"), HasSubstr("the server of shard 1")));
  std::filesystem::remove(protocol::PartsFolder(dir(), 0) +
                          "/step-000000000100/worker-0-term-1.state");
  EXPECT_EQ(Ask(&VerifyCheckpoints, dir()).code, 1) << "worker 0's part belongs on this server";
}

TEST_F(CheckpointCommands, ShowAServersPartsWithoutManifests) {
  at_shards_ = true;
  Write(100);
  std::filesystem::remove_all(protocol::StepFolder(dir(), 100));
  std::filesystem::remove_all(protocol::PartsFolder(dir(), 0));
  ASSERT_TRUE(
      protocol::WriteRunRecord(protocol::PartsFolder(dir(), 1), {"sample", 7, 0, false}).ok());
  for (const std::string& folder :
       {dir(), protocol::PartsFolder(dir(), 1), protocol::PartsFolder(dir(), 1) + "/"}) {
    const Answer inspected = Ask(&InspectCheckpoints, folder);
    EXPECT_EQ(inspected.code, 0);
    EXPECT_THAT(inspected.text, AllOf(HasSubstr("for run 0000000000000007 of job sample"),
                                      HasSubstr("step 100: 2 parts, "), Not(HasSubstr("good")),
                                      Not(HasSubstr("incomplete"))));
    const Answer verified = Ask(&VerifyCheckpoints, folder);
    EXPECT_EQ(verified.code, 0);
    EXPECT_THAT(verified.text, HasSubstr("good by their own checksums"));
  }
  const std::string path =
      protocol::PartsFolder(dir(), 1) + "/step-000000000100/shard-1-term-1.state";
  WriteText(path, ReadText(path).substr(0, 100));
  EXPECT_EQ(Ask(&VerifyCheckpoints, dir()).code, 1);
  EXPECT_THAT(Ask(&VerifyCheckpoints, dir()).text, HasSubstr("DAMAGED: shard-1-term-1.state"));
}

TEST_F(CheckpointCommands, NameWhatDoesNotBelong) {
  Begin();
  Write(100, /*job_uid=*/8);
  EXPECT_THAT(Ask(&VerifyCheckpoints, dir()).text, HasSubstr("to another run, 0000000000000008"));
  same_rank_ = true;
  Write(100);
  EXPECT_THAT(Ask(&VerifyCheckpoints, dir()).text,
              AllOf(HasSubstr("worker-1-term-1.state: "), HasSubstr("rank 0, should be of")));
  forget_last_ = true;
  Write(100);
  EXPECT_THAT(Ask(&VerifyCheckpoints, dir()).text, HasSubstr("worker-1-term-1.state"));
  EXPECT_EQ(Ask(&VerifyCheckpoints, dir()).code, 1);
}

}  // namespace
}  // namespace sluice::cli
