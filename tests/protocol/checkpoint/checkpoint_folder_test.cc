// SPDX-License-Identifier: Apache-2.0
#include "protocol/checkpoint/checkpoint_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/crc32c.h"
#include "base/random.h"
#include "tests/temporary_folder.h"

namespace sluice::protocol {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr char kManifest[] = "/step-000000001000/manifest.json";
constexpr char kShardPart[] = "/step-000000001000/shard-0-term-1.state";

std::string Message(const absl::Status& status) { return std::string(status.message()); }

class CheckpointFolder : public ::testing::Test {
 protected:
  // Two nested folders, neither of which exists yet.
  std::string dir() const { return folder_.path() + "/a/b"; }

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

  // Writes the sample's manifest with `from` replaced by `to` and a matching checksum, and reads
  // the result.
  absl::Status ReadEdited(absl::string_view from, absl::string_view to) {
    WriteSample(1000);
    const std::string text = ReadText(dir() + kManifest);
    std::string edited = absl::StrReplaceAll(text, {{from, to}});
    EXPECT_NE(text, edited) << from;
    // The library does not expose the correct checksum, so the test computes it as documented.
    WriteText(dir() + kManifest, Sealed(edited));
    return ReadManifest(dir(), 1000).status();
  }

  // Inserts the checksum that docs/checkpoints.md defines: over all other fields, with sorted keys
  // and no white space. The sample's values contain no white space.
  static std::string Sealed(const std::string& text);

  TemporaryFolder folder_;
};

// Sorts the keys of the sample's flat record without a JSON library. Each line has one key.
std::string CheckpointFolder::Sealed(const std::string& text) {
  std::vector<std::string> lines;
  const size_t end = text.find(",\n  \"checksum\"");
  const size_t parts = text.find("  \"parts\": [");
  EXPECT_NE(end, text.npos);
  EXPECT_NE(parts, text.npos);
  std::string head = text.substr(2, parts - 2);
  for (size_t at = 0; at < head.size();) {
    const size_t line_end = head.find('\n', at);
    std::string line = head.substr(at, line_end - at);
    if (!line.empty() && line.back() == ',') line.pop_back();
    lines.push_back(absl::StrReplaceAll(line, {{"  \"", "\""}, {"\": ", "\":"}}));
    at = line_end + 1;
  }
  std::string list = text.substr(parts, end - parts);
  list = absl::StrReplaceAll(list, {{" ", ""}, {"\n", ""}});
  // The order of keys within a part is bytes, checksum, name.
  std::string sorted;
  for (size_t at = 0; at < list.size();) {
    const size_t open = list.find("{\"name\":", at);
    if (open == list.npos) {
      sorted += list.substr(at);
      break;
    }
    const size_t close = list.find('}', open);
    const size_t rest = list.find(",\"bytes\"", open);
    sorted += absl::StrCat(list.substr(at, open - at), "{", list.substr(rest + 1, close - rest - 1),
                           ",", list.substr(open + 1, rest - open - 1), "}");
    at = close + 1;
  }
  lines.push_back(sorted);
  std::sort(lines.begin(), lines.end());
  std::string canonical = "{";
  for (const std::string& line : lines) absl::StrAppend(&canonical, line, ",");
  canonical.back() = '}';
  const uint32_t checksum = Crc32c(canonical);
  return absl::StrCat(text.substr(0, end),
                      absl::StrFormat(",\n  \"checksum\": \"%08x\"\n}\n", checksum));
}

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
  EXPECT_THAT(AllFiles(dir()),
              UnorderedElementsAre("manifest.json", "parameters.pt", "shard-0-term-1.state",
                                   "worker-0-term-1.state"));
}

TEST_F(CheckpointFolder, TheNumberOfFragmentsIsWrittenIfThereAreSeveral) {
  CheckpointManifest manifest = WriteSample(1000);
  EXPECT_THAT(ReadText(dir() + kManifest), Not(HasSubstr("fragments"))) << "as in version 0.1";
  manifest.step = 2000;
  manifest.layout.fragments = 3;
  manifest.parts = {WritePart(dir(), 1, 2000, "parameters.pt", "bytes").value()};
  ASSERT_TRUE(WriteManifest(dir(), manifest).ok());
  const absl::StatusOr<CheckpointManifest> again = ReadManifest(dir(), 2000);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->layout.fragments, 3u);
}

TEST_F(CheckpointFolder, EveryKeyIsDocumented) {
  WriteSample(1000);
  ASSERT_TRUE(WriteRunRecord(dir(), {"sample", 7, 0, false}).ok());
  const std::string page = ReadText(SLUICE_CHECKPOINTS_PAGE);
  for (const std::string& file : {dir() + kManifest, dir() + "/run.json"}) {
    int keys = 0;
    for (const absl::string_view line : absl::StrSplit(ReadText(file), '\n')) {
      if (!absl::StartsWith(line, "  \"")) continue;
      const std::string key(line.substr(3, line.find('"', 3) - 3));
      EXPECT_THAT(page, HasSubstr(absl::StrCat("`", key, "`")));
      ++keys;
    }
    EXPECT_GE(keys, 7) << file;
  }
}

TEST_F(CheckpointFolder, ListsAndRemoves) {
  EXPECT_THAT(ListCheckpoints(dir()).value(), IsEmpty());
  WriteSample(30);
  WriteSample(4);
  ASSERT_TRUE(WritePart(dir(), 0, 500, "a", "b").ok());
  WriteSample(1234567890123);
  for (const char* stray :
       {"/step-5", "/step-00000000000x", "/step-0000000000005", "/steps", "/x"}) {
    std::filesystem::create_directory(dir() + stray);
  }
  EXPECT_THAT(ListCheckpoints(dir()).value(), ElementsAre(4, 30, 500, 1234567890123));
  EXPECT_TRUE(RemoveCheckpoint(dir(), 30).ok());
  EXPECT_TRUE(RemoveCheckpoint(dir(), 30).ok());
  EXPECT_THAT(ListCheckpoints(dir()).value(), ElementsAre(4, 500, 1234567890123));
  EXPECT_TRUE(absl::IsNotFound(ReadManifest(dir(), 30).status()));
  EXPECT_TRUE(absl::IsNotFound(ReadManifest(dir(), 500).status()));
}

TEST_F(CheckpointFolder, RemovesWhatWasNeverComplete) {
  EXPECT_TRUE(RemoveIncomplete(dir(), 100).ok());
  WriteSample(10);
  for (const uint64_t step : {5, 20, 30, 40}) {
    ASSERT_TRUE(WritePart(dir(), 0, step, "a", "b").ok());
  }
  WriteText(StepFolder(dir(), 30) + "/manifest.json", "damaged, and left for a person to see");
  ASSERT_TRUE(RemoveIncomplete(dir(), 40).ok());
  EXPECT_THAT(ListCheckpoints(dir()).value(), ElementsAre(10, 30, 40));
}

TEST_F(CheckpointFolder, KeepsTheRunRecord) {
  EXPECT_TRUE(absl::IsNotFound(ReadRunRecord(dir()).status()));
  RunRecord record{"sample", 0xFEDCBA9876543210, 4, false, uint64_t{1} << 60};
  ASSERT_TRUE(WriteRunRecord(dir(), record).ok());
  EXPECT_EQ(ReadRunRecord(dir()).value(), record);
  record.finished = true;
  WriteText(dir() + "/run.json.17-0.unfinished", "left by a writer that was killed");
  ASSERT_TRUE(WriteRunRecord(dir(), record).ok());
  EXPECT_EQ(ReadRunRecord(dir()).value(), record);
  EXPECT_THAT(AllFiles(dir()), ElementsAre("run.json"));
}

// A record from an earlier version, which did not count coordinators, must be readable.
TEST_F(CheckpointFolder, ReadsARunRecordThatCountsNoCoordinators) {
  ASSERT_TRUE(WriteRunRecord(dir(), {"sample", 7, 0, false}).ok());
  WriteText(dir() + "/run.json", R"({
  "format": "sluice run",
  "version": 1,
  "job_name": "sample",
  "job_uid": "0000000000000007",
  "term": 2,
  "finished": false,
  "checksum": "8c1d5523"
})");
  const auto read = ReadRunRecord(dir());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, (RunRecord{"sample", 7, 2, false, 0}));
}

RunRecord AnnouncedRecord() {
  RunRecord record{"sample", 0xFEDCBA9876543210, 4, false, 3};
  record.generation = 7;
  record.restore_step = uint64_t{1} << 40;
  record.parameters_agree = false;
  record.table = {
      {.name = "fc.weight", .shape = {128, 1568}, .strides = {1, 128}, .dtype = DType::kFloat16},
      {.name = "\"odd\" \xFF\n", .shape = {3}, .strides = {}, .dtype = DType::kFloat32},
      {.name = "mean", .shape = {4}, .strides = {}, .role = TensorRole::kBuffer}};
  record.members = {{.nonce = 0xFFFFFFFFFFFFFFFF,
                     .incarnation = 1,
                     .host = "a\xFF",
                     .pid = 12,
                     .parameters_sha256 = std::string("\0\x7F\xFF", 3)},
                    {}};
  return record;
}

TEST_F(CheckpointFolder, KeepsWhatWasAnnouncedOfTheTerm) {
  const RunRecord record = AnnouncedRecord();
  ASSERT_TRUE(WriteRunRecord(dir(), record).ok());
  const auto read = ReadRunRecord(dir());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, record);
}

TEST_F(CheckpointFolder, ARecordThatWouldBeTooLargeIsKeptWithoutTheAnnouncement) {
  RunRecord record = AnnouncedRecord();
  record.table.resize(kMaxTensors);
  for (TensorInfo& tensor : record.table) tensor.name = std::string(kMaxTensorNameSize, 'n');
  ASSERT_TRUE(WriteRunRecord(dir(), record).ok());
  const auto read = ReadRunRecord(dir());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, (RunRecord{"sample", 0xFEDCBA9876543210, 4, false, 3}));
}

TEST_F(CheckpointFolder, ManyWriteAtATime) {
  std::vector<std::thread> writers;
  for (uint32_t rank = 0; rank < 8; ++rank) {
    writers.emplace_back([this, rank] {
      const std::string bytes(100000 + rank, static_cast<char>(rank));
      const auto part = WritePart(dir(), 0, 9, WorkerPartName(rank, 0), bytes);
      EXPECT_TRUE(part.ok()) << part.status();
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(AllFiles(dir()).size(), 8u);
}

TEST_F(CheckpointFolder, PartsHavePlainNames) {
  for (const char* name : {"", ".", "..", "../x", "a/b", ".hidden", "manifest.json", "a b", "a\n",
                           "x.unfinished", "\xff"}) {
    const absl::Status status = WritePart(dir(), 0, 1, name, "bytes").status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << name << status;
  }
  EXPECT_TRUE(
      absl::IsInvalidArgument(WritePart(dir(), 0, 1, std::string(201, 'a'), "bytes").status()));
  EXPECT_TRUE(WritePart(dir(), 0, 1, std::string(200, 'a'), "").ok());
}

TEST_F(CheckpointFolder, DamageOfAPartIsNamed) {
  const CheckpointManifest manifest = WriteSample(1000);
  const std::string path = dir() + kShardPart;
  const std::string good = ReadText(path);
  const auto expect_damage = [&](absl::string_view what) {
    for (const absl::Status& status :
         {VerifyCheckpoint(dir(), manifest),
          ReadPart(dir(), manifest, "shard-0-term-1.state").status()}) {
      EXPECT_TRUE(absl::IsDataLoss(status)) << status;
      EXPECT_THAT(Message(status), HasSubstr(path));
      EXPECT_THAT(Message(status), HasSubstr(std::string(what)));
    }
    EXPECT_TRUE(ReadPart(dir(), manifest, "parameters.pt").ok());
  };
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string flipped = good;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    WriteText(path, flipped);
    expect_damage("its checksum is");
  }
  WriteText(path, good.substr(0, good.size() - 1));
  expect_damage("it has 32 bytes");
  expect_damage("the manifest says 33");
  WriteText(path, "");
  expect_damage("it has 0 bytes");
  WriteText(path, good + "x");
  expect_damage("it has 34 bytes");
  // The file takes no disk space, and the reader must not allocate its size.
  std::filesystem::resize_file(path, uint64_t{1} << 40);
  expect_damage("it has 1099511627776 bytes");
  std::filesystem::remove(path);
  expect_damage("No such file");
  std::filesystem::create_directory(path);
  expect_damage("is not a file");
  std::filesystem::remove(path);
  WriteText(path, good);
  EXPECT_TRUE(VerifyCheckpoint(dir(), manifest).ok());
}

TEST_F(CheckpointFolder, APartThatIsNotListedIsNotRead) {
  const CheckpointManifest manifest = WriteSample(1000);
  ASSERT_TRUE(WritePart(dir(), 2, 1000, "shard-0-term-2.state", "of another term").ok());
  EXPECT_TRUE(absl::IsDataLoss(ReadPart(dir(), manifest, "shard-0-term-2.state").status()));
  EXPECT_TRUE(VerifyCheckpoint(dir(), manifest).ok());
}

TEST_F(CheckpointFolder, EveryDamagedManifestIsSeen) {
  const CheckpointManifest manifest = WriteSample(1000);
  const std::string path = dir() + kManifest;
  const std::string good = ReadText(path);
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string flipped = good;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    WriteText(path, flipped);
    const absl::StatusOr<CheckpointManifest> read = ReadManifest(dir(), 1000);
    // The flipped bit may only replace white space by other white space.
    if (read.ok()) {
      EXPECT_EQ(*read, manifest) << "bit " << bit;
    } else {
      EXPECT_TRUE(absl::IsDataLoss(read.status())) << "bit " << bit << read.status();
    }
  }
  for (size_t size = 0; size + 1 < good.size(); ++size) {
    WriteText(path, absl::string_view(good).substr(0, size));
    EXPECT_TRUE(absl::IsDataLoss(ReadManifest(dir(), 1000).status())) << size;
  }
  WriteText(path, std::string(good.size(), '\0'));
  EXPECT_TRUE(absl::IsDataLoss(ReadManifest(dir(), 1000).status()));
}

TEST_F(CheckpointFolder, AnEditedManifestMustStillBeOne) {
  // This shows that the test computes correct checksums.
  EXPECT_TRUE(ReadEdited("sample", "ample").ok());
  EXPECT_TRUE(ReadEdited("\"version\": 1", "\"version\": 2").ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(ReadEdited("\"version\": 1", "\"version\": 3")));
  EXPECT_THAT(Message(ReadEdited("\"step\": 1000", "\"step\": 1001")), HasSubstr("of step 1001"));
  EXPECT_THAT(Message(ReadEdited("\"step\": 1000", "\"step\": -1")), HasSubstr("`step`"));
  EXPECT_THAT(Message(ReadEdited("\"term\": 1,", "\"term\": 4294967296,")), HasSubstr("`term`"));
  EXPECT_THAT(Message(ReadEdited("\"term\": 1,", "\"term\": [],")), HasSubstr("`term`"));
  EXPECT_THAT(Message(ReadEdited("\"shards\"", "\"shard\"")), HasSubstr("`shards`"));
  EXPECT_THAT(Message(ReadEdited("\"shards\": 1,", "\"shards\": 4294967295,")),
              HasSubstr("3 parts of 4294967295 shards"));
  EXPECT_THAT(Message(ReadEdited("\"0000000000000007\"", "\"7\"")), HasSubstr("`job_uid`"));
  EXPECT_THAT(Message(ReadEdited("\"sample\"", "0")), HasSubstr("`job_name`"));
  EXPECT_THAT(Message(ReadEdited("\"bytes\": 26", "\"bytes\": \"26\"")), HasSubstr("`bytes`"));
  EXPECT_THAT(Message(ReadEdited("parameters.pt", "../../../../etc/passwd")), HasSubstr("passwd"));
  EXPECT_THAT(Message(ReadEdited("parameters.pt", "shard-0-term-1.state")), HasSubstr("shard-0"));
  EXPECT_THAT(Message(ReadEdited("sluice checkpoint", "sluice run")), HasSubstr("`format`"));
}

TEST_F(CheckpointFolder, AnyTextIsAManifestOrAnError) {
  WriteSample(1000);
  const std::string path = dir() + kManifest;
  const std::string good = ReadText(path);
  const auto expect_damage = [&](absl::string_view text) {
    WriteText(path, text);
    EXPECT_TRUE(absl::IsDataLoss(ReadManifest(dir(), 1000).status())) << text.substr(0, 50);
  };
  for (const char* text :
       {"", "{}", "[]", "null", "1", "{\"format\": \"sluice checkpoint\"}",
        "{\"format\": \"sluice checkpoint\", \"checksum\": 7}", "\xff\xfe", "{\"\xff\": 1}"}) {
    expect_damage(text);
  }
  expect_damage(std::string(1000000, '['));
  expect_damage(absl::StrCat("{\"format\": ", std::string(100000, '{')));
  expect_damage(absl::StrReplaceAll(good, {{"\"sample\"", "1e999"}}));
  WriteText(path, good);
  const absl::StatusOr<CheckpointManifest> written = ReadManifest(dir(), 1000);
  ASSERT_TRUE(written.ok()) << written.status();
  std::filesystem::resize_file(path, uint64_t{1} << 40);
  EXPECT_THAT(Message(ReadManifest(dir(), 1000).status()), HasSubstr("is larger than"));
  CounterRandom random(22);
  for (int round = 0; round < 3000; ++round) {
    std::string text = good;
    for (uint64_t change = 1 + random.Below(4); change-- > 0;) {
      text[random.Below(text.size())] =
          round % 2 == 0 ? static_cast<char>(random.Next()) : good[random.Below(good.size())];
    }
    WriteText(path, text);
    const absl::StatusOr<CheckpointManifest> read = ReadManifest(dir(), 1000);
    EXPECT_TRUE(read.ok() ? *read == *written : absl::IsDataLoss(read.status()))
        << read.status() << text;
  }
}

TEST_F(CheckpointFolder, EveryDamagedRunRecordIsSeen) {
  const RunRecord record = AnnouncedRecord();
  ASSERT_TRUE(WriteRunRecord(dir(), record).ok());
  const std::string path = dir() + "/run.json";
  const std::string good = ReadText(path);
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string flipped = good;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    WriteText(path, flipped);
    const absl::StatusOr<RunRecord> read = ReadRunRecord(dir());
    EXPECT_TRUE(read.ok() ? *read == record : absl::IsDataLoss(read.status())) << read.status();
  }
}

TEST_F(CheckpointFolder, AManifestOfNonsenseIsNotWritten) {
  CheckpointManifest manifest = WriteSample(1000);
  const auto expect_refused = [&](const CheckpointManifest& nonsense) {
    EXPECT_TRUE(absl::IsInvalidArgument(WriteManifest(dir(), nonsense)));
  };
  CheckpointManifest nonsense = manifest;
  nonsense.parts[0].error = "no room";
  expect_refused(nonsense);
  nonsense = manifest;
  nonsense.parts[0].step = 999;
  expect_refused(nonsense);
  nonsense = manifest;
  nonsense.parts[0].term = 0;
  expect_refused(nonsense);
  nonsense = manifest;
  nonsense.parts[0].name = nonsense.parts[1].name;
  expect_refused(nonsense);
  EXPECT_EQ(ReadManifest(dir(), 1000).value(), manifest);
}

}  // namespace
}  // namespace sluice::protocol
