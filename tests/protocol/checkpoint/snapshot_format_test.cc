// SPDX-License-Identifier: Apache-2.0
#include "protocol/checkpoint/snapshot_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "absl/strings/escaping.h"
#include "base/random.h"
#include "tests/protocol/checkpoint/snapshot_property.h"
#include "tests/protocol/checkpoint/snapshot_samples.h"
#include "tests/temporary_folder.h"

namespace sluice::protocol {
namespace {

using ::testing::HasSubstr;

template <typename T>
void Put(T value, size_t at, std::string* file) {
  std::memcpy(file->data() + at, &value, sizeof(T));
}

TEST(SnapshotFormat, ReadsWhatItWrote) {
  const ShardSnapshot shard = SampleShard();
  EXPECT_FALSE(shard.downlink.groups.empty());
  const absl::StatusOr<ShardSnapshot> shard_again = ParseShardSnapshot(FormatShardSnapshot(shard));
  ASSERT_TRUE(shard_again.ok()) << shard_again.status();
  EXPECT_EQ(*shard_again, shard);
  const WorkerSnapshot worker = SampleWorker();
  const absl::StatusOr<WorkerSnapshot> worker_again =
      ParseWorkerSnapshot(FormatWorkerSnapshot(worker));
  ASSERT_TRUE(worker_again.ok()) << worker_again.status();
  EXPECT_EQ(*worker_again, worker);
}

TEST(SnapshotFormat, NothingIsSomethingToo) {
  EXPECT_EQ(ParseShardSnapshot(FormatShardSnapshot({})).value(), ShardSnapshot());
  EXPECT_EQ(ParseWorkerSnapshot(FormatWorkerSnapshot({})).value(), WorkerSnapshot());
}

TEST(SnapshotFormat, RestoresTheCompressorThatWasSaved) {
  const WorkerSnapshot read = ParseWorkerSnapshot(FormatWorkerSnapshot(SampleWorker())).value();
  std::vector<compress::ChunkConfig> chunks;
  for (const compress::SavedCompressor::Chunk& chunk : read.uplink.chunks)
    chunks.push_back(chunk.config);
  compress::Compressor compressor(chunks, {.seed = 3, .sender = 1});
  const absl::Status restored = compressor.Restore(read.uplink);
  ASSERT_TRUE(restored.ok()) << restored;
  EXPECT_EQ(compressor.Save(), SampleCompressor());
}

TEST(SnapshotFormat, KeepsEveryBitOfANumber) {
  ShardSnapshot shard;
  shard.aggregators = {{{"a",
                         {-0.0f, std::numeric_limits<float>::denorm_min(),
                          std::numeric_limits<float>::infinity(), std::nanf("0x5a5a")}}}};
  const std::string file = FormatShardSnapshot(shard);
  const ShardSnapshot again = ParseShardSnapshot(file).value();
  EXPECT_EQ(std::memcmp(again.aggregators[0].at("a").data(), shard.aggregators[0].at("a").data(),
                        4 * sizeof(float)),
            0);
  EXPECT_EQ(FormatShardSnapshot(again), file);
}

// The layout of version 1 must stay the same byte for byte, because existing files must stay
// readable.
TEST(SnapshotFormat, LooksAsItAlwaysDid) {
  ShardSnapshot shard;
  shard.job_uid = 0x0102030405060708;
  shard.term = 2;
  shard.step = 1000;
  shard.shard = 1;
  shard.versions = {1000};
  shard.downlink.chunks = {{SampleChunk("topk:1%", 2, 3, 0), {{"r", {1.0f, -2.0f}}}}};
  shard.downlink.groups = {{{"t", {0.5f}}}};
  shard.aggregators = {{}};
  const std::string file = FormatShardSnapshot(shard);
  // clang-format off
  const std::string text =
      // magic, version, kind, sections, size, checksum
      "534c554943454350" "0100" "0100" "04000000" "e700000000000000" "540d132c"
      // identity: job_uid, step, term, shard
      "01000000" "e5151874" "1800000000000000"
      "0807060504030201" "e803000000000000" "02000000" "01000000"
      // versions
      "02000000" "2edf9882" "0800000000000000" "e803000000000000"
      // compressor: codecs; chunks with count, codec, id, tensor, rows, lists; groups
      "03000000" "9a087e09" "5f00000000000000"
      "01000000" "0700" "746f706b3a3125" "0100000000000000"
      "0200000000000000" "00000000" "03000000" "01000000" "00000000"
      "01000000" "0100" "72" "0200000000000000" "0000803f" "000000c0"
      "0100000000000000" "01000000" "0100" "74" "0100000000000000" "0000003f"
      // aggregators
      "04000000" "e9ca9135" "0c00000000000000" "0100000000000000" "00000000";
  // clang-format on
  EXPECT_EQ(absl::BytesToHexString(file), text);
  EXPECT_EQ(ParseShardSnapshot(file).value(), shard);
}

// Reads snapshots that another program wrote, based only on the documented format
// (tests/fuzz/make_corpus.py).
TEST(SnapshotFormat, ReadsWhatOthersWrote) {
  const std::string seeds = SLUICE_SNAPSHOT_SEEDS;
  const ShardSnapshot shard = ParseShardSnapshot(ReadText(seeds + "/shard")).value();
  EXPECT_EQ(shard.step, 1000u);
  EXPECT_EQ(shard.versions.size(), 2u);
  EXPECT_EQ(ToString(shard.downlink.chunks[1].config.spec), "int8/ef21");
  EXPECT_EQ(shard.downlink.chunks[2].state.at("r"), std::vector<float>{0.5f});
  EXPECT_EQ(ParseWorkerSnapshot(ReadText(seeds + "/worker")).value().trainer, "trainer");
  for (const char* name : {"/shard", "/worker", "/shard_empty", "/worker_empty"}) {
    EXPECT_TRUE(CheckAnySnapshot(ReadText(seeds + name))) << name;
  }
}

TEST(SnapshotFormat, EveryFlippedBitIsSeen) {
  const std::string shard = FormatShardSnapshot(SampleShard());
  const std::string worker = FormatWorkerSnapshot(SampleWorker());
  for (const std::string* const file : {&shard, &worker}) {
    std::string flipped = *file;
    for (size_t bit = 0; bit < 8 * file->size(); ++bit) {
      flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
      const absl::Status status = file == &shard ? ParseShardSnapshot(flipped).status()
                                                 : ParseWorkerSnapshot(flipped).status();
      // A different magic number means a different kind of file.
      EXPECT_EQ(status.code(),
                bit < 64 ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kDataLoss)
          << "bit " << bit;
      flipped[bit / 8] = (*file)[bit / 8];
    }
  }
}

TEST(SnapshotFormat, EveryLengthButItsOwnIsSeen) {
  for (const std::string& file :
       {FormatShardSnapshot(SampleShard()), FormatWorkerSnapshot(SampleWorker())}) {
    for (size_t size = 0; size < file.size(); ++size) {
      EXPECT_FALSE(CheckAnySnapshot(absl::string_view(file).substr(0, size))) << size;
    }
    EXPECT_FALSE(CheckAnySnapshot(file + '\0'));
    EXPECT_FALSE(CheckAnySnapshot(file + file));
    // A power cut may leave a file of the right length whose end was never written.
    std::string holed = file;
    std::memset(holed.data() + holed.size() / 2, 0, holed.size() - holed.size() / 2);
    EXPECT_FALSE(CheckAnySnapshot(holed));
  }
}

TEST(SnapshotFormat, NamesTheDamagedSection) {
  std::string file = FormatWorkerSnapshot(SampleWorker());
  file.back() = static_cast<char>(~file.back());
  const absl::Status status = ParseWorkerSnapshot(file).status();
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(status.message(), HasSubstr("section trainer"));
}

TEST(SnapshotFormat, OfShardsThatKeepParametersIsTheSecondVersion) {
  ShardSnapshot snapshot = SampleShard();
  EXPECT_EQ(FormatShardSnapshot(snapshot)[8], 1);
  snapshot.replica = {{{"parameters", {1.5f, -2.0f}}, {"updates", {7, 0}}}, {}};
  snapshot.clocks = {5, uint64_t{1} << 40};
  const std::string file = FormatShardSnapshot(snapshot);
  EXPECT_EQ(file[8], 2);
  const absl::StatusOr<ShardSnapshot> read = ParseShardSnapshot(file);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, snapshot);
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_FALSE(ParseShardSnapshot(file.substr(0, size)).ok()) << size;
  }
}

TEST(SnapshotFormat, OfJobsThatMakePlansIsTheThirdVersion) {
  const std::vector<CompressionPlan> plans = {
      {.id = 3,
       .effective_step = 40,
       .entries = {{.direction = Direction::kUplink,
                    .codec = *compress::ParseCodecSpec("topk:1%+int4"),
                    .tensors = {0, 2, 5},
                    .ranks = {1}},
                   {.direction = Direction::kDownlink, .codec = *compress::ParseCodecSpec("fp16")}},
       .reason = "a reason"},
      {.id = 4, .effective_step = 42}};
  ShardSnapshot shard = SampleShard();
  WorkerSnapshot worker = SampleWorker();
  EXPECT_EQ(FormatWorkerSnapshot(worker)[8], 1);
  shard.plans = worker.plans = plans;
  const std::string of_shard = FormatShardSnapshot(shard);
  const std::string of_worker = FormatWorkerSnapshot(worker);
  EXPECT_EQ(of_shard[8], 3);
  EXPECT_EQ(of_worker[8], 3);
  EXPECT_EQ(ParseShardSnapshot(of_shard).value(), shard);
  EXPECT_EQ(ParseWorkerSnapshot(of_worker).value(), worker);
  for (size_t size = 0; size < of_shard.size(); ++size) {
    EXPECT_FALSE(ParseShardSnapshot(of_shard.substr(0, size)).ok()) << size;
  }
  for (size_t size = 0; size < of_worker.size(); ++size) {
    EXPECT_FALSE(ParseWorkerSnapshot(of_worker.substr(0, size)).ok()) << size;
  }
}

TEST(SnapshotFormat, OfPlansThatLowerTheMomentumIsTheFourthVersion) {
  ShardSnapshot shard = SampleShard();
  WorkerSnapshot worker = SampleWorker();
  shard.plans = worker.plans = {{.id = 3, .effective_step = 40},
                                {.id = 4, .effective_step = 42, .momentum = 0.5f}};
  const std::string of_shard = FormatShardSnapshot(shard);
  const std::string of_worker = FormatWorkerSnapshot(worker);
  EXPECT_EQ(of_shard[8], 4);
  EXPECT_EQ(of_worker[8], 4);
  EXPECT_EQ(ParseShardSnapshot(of_shard).value(), shard);
  EXPECT_EQ(ParseWorkerSnapshot(of_worker).value(), worker);
  for (size_t size = 0; size < of_worker.size(); ++size) {
    EXPECT_FALSE(ParseWorkerSnapshot(of_worker.substr(0, size)).ok()) << size;
  }
  for (const float momentum : {1.0f, -0.5f, std::nanf("")}) {
    worker.plans[1].momentum = momentum;
    EXPECT_FALSE(ParseWorkerSnapshot(FormatWorkerSnapshot(worker)).ok()) << momentum;
  }
}

TEST(SnapshotFormat, TellsOtherVersionsKindsAndFilesApart) {
  std::string file = FormatShardSnapshot(SampleShard());
  EXPECT_TRUE(absl::IsInvalidArgument(ParseWorkerSnapshot(file).status()));
  EXPECT_THAT(ParseWorkerSnapshot(file).status().message(), HasSubstr("not a worker's snapshot"));
  EXPECT_TRUE(absl::IsInvalidArgument(ParseShardSnapshot("").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ParseShardSnapshot("PK\3\4 something else").status()));
  Put<uint16_t>(5, 8, &file);
  SealHeader(&file);
  const absl::Status newer = ParseShardSnapshot(file).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(newer));
  EXPECT_THAT(newer.message(), HasSubstr("version 5"));
}

TEST(SnapshotFormat, ACodecOfAnotherProgramIsNamed) {
  std::string file = FormatShardSnapshot(SampleShard());
  const size_t at = file.find("powersgd");
  ASSERT_NE(at, file.npos);
  file.replace(at, 8, "powersgx");
  SealSnapshot(&file);
  const absl::Status status = ParseShardSnapshot(file).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(status.message(), HasSubstr("powersgx"));
}

// A wrong count must not cause a large allocation: a count is trusted only if enough bytes follow.
TEST(SnapshotFormat, LyingCountsAskForNoMemory) {
  ShardSnapshot shard;
  shard.downlink.chunks = {{SampleChunk("topk:1%", 2, 3, 0), {{"r", {1.0f, -2.0f}}}}};
  shard.aggregators = {{}};
  const std::string file = FormatShardSnapshot(shard);
  size_t refused = 0;
  for (size_t at = 28; at + 8 <= file.size(); ++at) {
    for (const uint64_t lie : {uint64_t{1} << 62, ~uint64_t{0}, uint64_t{1} << 33}) {
      std::string lying = file;
      Put(lie, at, &lying);
      SealSnapshot(&lying);
      if (!CheckAnySnapshot(lying)) ++refused;
    }
  }
  EXPECT_GT(refused, file.size());
}

// Files are changed at random, and their checksums are made valid. Reading must give either an
// error or a snapshot that serializes to the same bytes.
TEST(SnapshotFormat, SealedDamageIsRefusedOrMeansWhatItSays) {
  const std::string files[] = {FormatShardSnapshot(SampleShard()),
                               FormatWorkerSnapshot(SampleWorker())};
  CounterRandom random(20);
  size_t read = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string file = files[random.Next() % 2];
    for (uint64_t change = random.Next() % 4; change-- > 0;) {
      const size_t at = 12 + random.Next() % (file.size() - 12);
      switch (random.Next() % 4) {
        case 0:
          file[at] = static_cast<char>(random.Next());
          break;
        case 1:
          file[at] = static_cast<char>(random.Next() % 3);
          break;
        case 2:
          file.erase(at, 1 + random.Next() % 16);
          break;
        case 3:
          file.insert(at, 1 + random.Next() % 16, static_cast<char>(random.Next() % 2));
          break;
      }
      if (file.size() < 40) break;
    }
    SealSnapshot(&file);
    if (CheckAnySnapshot(file)) ++read;
  }
  EXPECT_GT(read, 2000u);   // Files with changed numbers are still valid.
  EXPECT_LT(read, 18000u);  // Files with changed counts are not valid.
}

TEST(SnapshotFormat, NoiseIsRefused) {
  CounterRandom random(21);
  for (int round = 0; round < 20000; ++round) {
    std::string noise(random.Next() % 200, '\0');
    for (char& c : noise) c = static_cast<char>(random.Next());
    if (round % 2 == 1) SealSnapshot(&noise);
    EXPECT_FALSE(CheckAnySnapshot(noise));
  }
}

}  // namespace
}  // namespace sluice::protocol
