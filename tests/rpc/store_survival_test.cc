// SPDX-License-Identifier: Apache-2.0
// Tests checkpoints whose parts the servers keep (store: shards), and runs that continue with
// another number of workers or shards, with real sessions, servers and folders.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/rpc/survival_session.h"

namespace sluice {
namespace {

// In this job, the store is `shards` and workers have no folder.
class StoreTest : public SurvivalTest {
 protected:
  Parameters UndisturbedAtShards() {
    const Parameters expected = Undisturbed();
    job_.checkpoint.store = protocol::CheckpointStore::kShards;
    job_.checkpoint.dir = "/proc/no/such/folder";
    job_.checkpoint.replay_limit = 0;  // Every loss causes a rollback, which must find the parts.
    return expected;
  }
  std::vector<std::string> FilesOf(uint32_t shard, uint64_t step) const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(
             protocol::StepFolder(protocol::PartsFolder(servers_.DirOf(shard), shard), step))) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }
};

TEST_P(StoreTest, PartsLieWithTheServersAndNowhereElse) {
  const Parameters expected = UndisturbedAtShards();
  uint64_t newest = 0;
  std::vector<std::string> files[kShards];
  EXPECT_EQ(Run([&] {
              newest = NewestCheckpoint();
              for (uint32_t shard = 0; shard < kShards; ++shard)
                files[shard] = FilesOf(shard, newest);
            }),
            expected);
  EXPECT_THAT(files[0],
              testing::UnorderedElementsAre("shard-0-term-0.state", "worker-0-term-0.state"));
  EXPECT_THAT(files[1],
              testing::UnorderedElementsAre("shard-1-term-0.state", "worker-1-term-0.state"));
  EXPECT_FALSE(restored_);
  // Two checkpoints are kept. Both servers must have all parts of both.
  const absl::StatusOr<std::vector<uint64_t>> kept = protocol::ListCheckpoints(servers_.DirOf(0));
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ(kept->size(), 2u);
  for (uint32_t shard = 0; shard < kShards; ++shard) {
    // There may be one more checkpoint if the last one became complete when the job ended. In that
    // case no server got the command to remove the oldest.
    EXPECT_THAT(*protocol::ListCheckpoints(protocol::PartsFolder(servers_.DirOf(shard), shard)),
                testing::IsSupersetOf(*kept))
        << shard;
  }
  EXPECT_FALSE(std::filesystem::exists(protocol::PartsFolder(servers_.DirOf(0), 1)));
  EXPECT_FALSE(std::filesystem::exists(servers_.DirOf(1) + "/run.json"));
}

TEST_P(StoreTest, AShardThatIsLost) {
  const Parameters expected = UndisturbedAtShards();
  EXPECT_EQ(Run([this] { servers_.Restart(1); }), expected);
  EXPECT_TRUE(restored_);
}

TEST_P(StoreTest, TheCoordinatorThatIsLost) {
  const Parameters expected = UndisturbedAtShards();
  EXPECT_EQ(Run([this] { servers_.Restart(0); }), expected);
  EXPECT_TRUE(restored_);
}

TEST_P(StoreTest, AWorkerThatIsLost) {
  const Parameters expected = UndisturbedAtShards();
  EXPECT_EQ(Run([this] { lose_worker_ = true; }), expected);
  EXPECT_TRUE(restored_);
}

// The coordinator cannot see the damage. The worker that requests the part must find it.
TEST_P(StoreTest, AWorkersPartThatIsDamagedOnAnotherServer) {
  const Parameters expected = UndisturbedAtShards();
  uint64_t newest = 0;
  EXPECT_EQ(Run([&] {
              newest = NewestCheckpoint();
              const std::string path = absl::StrCat(
                  protocol::StepFolder(protocol::PartsFolder(servers_.DirOf(1), 1), newest), "/",
                  protocol::WorkerPartName(1, 0));
              std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
              file.seekp(100);
              const int old = file.peek();
              file.put(static_cast<char>(old ^ 1));
              Check(file.good(), "a test can damage a file");
              lose_worker_ = true;
            }),
            expected);
  EXPECT_TRUE(restored_);
}

// Exact recovery must also get its state from the other servers.
TEST_P(StoreTest, LossesAreRepaired) {
  const Parameters expected = UndisturbedAtShards();
  job_.checkpoint.replay_limit = protocol::CheckpointSpec().replay_limit;
  for (const bool lose_shard : {true, false}) {
    SCOPED_TRACE(lose_shard ? "a shard" : "a worker");
    restored_ = false;
    first_checkpoint_ = 0;
    EXPECT_EQ(Run([&] {
                if (lose_shard) {
                  servers_.Restart(1);
                } else {
                  lose_worker_ = true;
                }
              }),
              expected);
    EXPECT_EQ(restored_, !lose_shard);
    ExpectRepaired();
    std::filesystem::remove_all(servers_.folder());
  }
}

// Two of eight shards have no chunk. They keep parts of checkpoints as the others do.
TEST_P(StoreTest, AJobWithFewerChunksThanShards) {
  job_.shards = 8;
  const Parameters expected = UndisturbedAtShards();
  const std::vector<std::pair<std::string, std::function<void()>>> losses = {
      {"a shard without chunks", [this] { servers_.Restart(7); }},
      {"a worker", [this] { lose_worker_ = true; }},
      {"the coordinator", [this] { servers_.Restart(0); }}};
  for (const uint64_t replay_limit : {uint64_t{0}, protocol::CheckpointSpec().replay_limit}) {
    for (const auto& [name, lose] : losses) {
      SCOPED_TRACE(absl::StrCat(name, ", replay limit ", replay_limit));
      job_.checkpoint.replay_limit = replay_limit;
      restored_ = false;
      first_checkpoint_ = 0;
      EXPECT_EQ(Run(lose), expected);
      if (replay_limit == 0) {
        EXPECT_TRUE(restored_);
      } else {
        EXPECT_EQ(rollbacks_, 0u);
      }
      std::filesystem::remove_all(servers_.folder());
    }
  }
}

TEST_P(StoreTest, TheNewestOfADiskThatIsLost) {
  const Parameters expected = UndisturbedAtShards();
  EXPECT_EQ(Run([this] {
              std::filesystem::remove_all(protocol::StepFolder(
                  protocol::PartsFolder(servers_.DirOf(1), 1), NewestCheckpoint()));
              servers_.Restart(1);
            }),
            expected);
  EXPECT_TRUE(restored_);
}

// A server cannot write, as if its disk were full. Training must continue without checkpoints.
TEST_P(StoreTest, AServerThatCannotWrite) {
  const Parameters expected = UndisturbedAtShards();
  std::filesystem::create_directories(servers_.DirOf(1));
  std::ofstream(protocol::PartsFolder(servers_.DirOf(1), 1)) << "a file";
  EXPECT_EQ(Run(nullptr), expected);
  EXPECT_THAT(*protocol::ListCheckpoints(servers_.DirOf(0)), testing::IsEmpty());
}

// The run continues from its checkpoint with a different number of workers. The results differ from
// those of the original run, but they must be equal on all workers.
class OtherWorkersTest : public StoreTest {};

TEST_P(OtherWorkersTest, GoOn) {
  job_.checkpoint.interval = 10;
  for (const uint32_t workers : {3u, 1u}) {
    for (const auto store :
         {protocol::CheckpointStore::kShards, protocol::CheckpointStore::kPath}) {
      SCOPED_TRACE(absl::StrCat(workers, " workers, store ", NameOf(store)));
      std::filesystem::remove_all(servers_.folder());
      job_.checkpoint.store = store;
      job_.checkpoint.dir = job_.checkpoint.at_shards()
                                ? "/proc/no/such/folder"
                                : absl::StrCat(servers_.folder(), "/shared");
      job_.workers = kWorkers;
      job_.hash = 9;
      ends_at_ = 50;
      const Parameters stopped = Run(nullptr);
      restored_world_size_ = 0;
      job_.workers = workers;
      job_.hash = 10;
      ends_at_ = kSteps + 1;
      const Parameters ended = Run(nullptr);
      EXPECT_EQ(restored_world_size_, kWorkers);
      EXPECT_EQ(began_with_, stopped) << "every rank must begin with the stopped job's parameters";
      EXPECT_NE(ended, stopped);
    }
  }
}

// The run continues from its checkpoint with a different number of shards. The parameters are those
// of a run that was not stopped.
class OtherShardsTest : public StoreTest {
 protected:
  // Stops a run of two shards and continues it with other numbers.
  void GoOnWith(const std::vector<uint32_t>& numbers, const Parameters& expected) {
    job_.shards = kShards;
    job_.hash = 9;
    ends_at_ = 20;
    Run(nullptr);
    for (const uint32_t shards : numbers) {
      SCOPED_TRACE(absl::StrCat(shards, " shards"));
      if (job_.checkpoint.at_shards()) CopyPartsOfFormerServers(shards);
      restored_ = false;
      job_.shards = shards;
      ++job_.hash;
      ends_at_ += 10;
      if (shards == numbers.back()) ends_at_ = kSteps + 1;
      const Parameters ended = Run(nullptr);
      EXPECT_TRUE(restored_);
      if (shards == numbers.back()) {
        EXPECT_EQ(ended, expected);
      }
    }
  }
  // As a person does before servers are removed.
  void CopyPartsOfFormerServers(uint32_t shards) {
    for (uint32_t former = shards; former < job_.shards; ++former) {
      std::filesystem::copy(protocol::PartsFolder(servers_.DirOf(former), former),
                            protocol::PartsFolder(servers_.DirOf(former % shards), former),
                            std::filesystem::copy_options::recursive);
    }
  }
};

TEST_P(OtherShardsTest, GoOnBitForBit) {
  job_.exchange.compression.downlink = *compress::ParseCodecSpec("int8/ef");
  for (const auto store : {protocol::CheckpointStore::kShards, protocol::CheckpointStore::kPath}) {
    SCOPED_TRACE(NameOf(store));
    std::filesystem::remove_all(servers_.folder());
    ends_at_ = kSteps + 1;
    job_.shards = kShards;
    const Parameters expected = UndisturbedAtShards();
    job_.checkpoint.store = store;
    if (!job_.checkpoint.at_shards()) job_.checkpoint.dir = servers_.folder() + "/shared";
    GoOnWith({3, 8, 1, 2}, expected);  // Two of eight shards have no chunk.
  }
}

TEST_P(OtherShardsTest, LossesBeforeTheNextCheckpointAreRepaired) {
  job_.exchange.compression.downlink = *compress::ParseCodecSpec("int8/ef");
  for (const uint32_t lost : {0u, 2u}) {
    SCOPED_TRACE(lost);
    std::filesystem::remove_all(servers_.folder());
    job_.shards = kShards;
    ends_at_ = kSteps + 1;
    const Parameters expected = UndisturbedAtShards();
    job_.checkpoint.replay_limit = replay_limit_;
    ends_at_ = 20;
    Run(nullptr);
    restored_ = false;
    job_.shards = 3;
    ends_at_ = kSteps + 1;
    // The job has no checkpoint of three shards yet.
    lose_at_ = 23;
    EXPECT_EQ(Run([&] { servers_.Restart(lost); }), expected);
    EXPECT_TRUE(restored_);
    if (lost != 0) ExpectRepaired();  // A new coordinator goes back to the checkpoint.
    lose_at_ = 0;
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, StoreTest, ::testing::Values("topk:5%+int4/ef"),
                         [](const auto&) { return std::string("topk"); });
// With `lsh`, the shard keeps state for each rank. With the thread sanitizer, one codec is enough,
// because the saving of a codec's state does not depend on threads.
#ifdef SLUICE_THREAD_SANITIZED
constexpr const char* kGoingOn[] = {"topk:5%+int4/ef"};
#else
constexpr const char* kGoingOn[] = {"topk:5%+int4/ef", "int8/ef21", "lsh"};
#endif
// Each exercises another state of a chunk: a residual, a memory, and a receiver's memory.
INSTANTIATE_TEST_SUITE_P(Codecs, OtherShardsTest,
                         ::testing::Values("topk:5%+int4/ef", "int8/ef21", "lsh"),
                         [](const auto& test) {
                           return std::string(test.param).substr(0, 4) == "int8" ? "ef21"
                                  : std::string(test.param) == "lsh"             ? "lsh"
                                                                                 : "topk";
                         });
INSTANTIATE_TEST_SUITE_P(Codecs, OtherWorkersTest, ::testing::ValuesIn(kGoingOn),
                         [](const auto& test) {
                           return std::string(test.param).substr(0, 4) == "int8" ? "ef21"
                                  : std::string(test.param) == "lsh"             ? "lsh"
                                                                                 : "topk";
                         });

}  // namespace
}  // namespace sluice
