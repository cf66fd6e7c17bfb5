// SPDX-License-Identifier: Apache-2.0
// Tests with real sessions, servers and folders that buffers which are averaged at intervals
// survive a rollback bit for bit on every rank, like all other state.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/random.h"
#include "tests/rpc/await.h"
#include "tests/rpc/job_servers.h"
#include "worker/rpc/remote_client.h"

namespace sluice {
namespace {

constexpr uint32_t kBuffersSurvivalWorkers = 3;
constexpr uint32_t kBuffersSurvivalShards = 2;
constexpr uint64_t kBuffersSurvivalSteps = 250;
constexpr uint64_t kEvery = 7;
constexpr size_t kBuffersSurvivalWeights = 3000;
constexpr size_t kStatistics = 90;

// The contents of a rank's checkpoint.
struct State {
  float weights[kBuffersSurvivalWeights];
  float statistics[kStatistics];
  // For each step, whether the statistics were replaced by the mean.
  uint8_t averaged[kBuffersSurvivalSteps + 1];
};

// Changes the statistics as a forward pass would, depending on rank and step.
void Move(uint32_t rank, uint64_t step, absl::Span<float> statistics) {
  CounterRandom random(rank, step, 8);
  for (float& value : statistics) {
    value = 0.9f * value + 0.1f * static_cast<float>(random.Uniform() + rank);
  }
}

class BuffersSurvivalTest : public ::testing::Test {
 protected:
  BuffersSurvivalTest() {
    job_.name = std::string("test");
    job_.hash = 9;
    job_.workers = kBuffersSurvivalWorkers;
    job_.shards = kBuffersSurvivalShards;
    job_.exchange.buffer_sync_interval = kEvery;
    job_.exchange.compression.uplink = *compress::ParseCodecSpec("topk:5%/ef");
    job_.exchange.compression.downlink = *compress::ParseCodecSpec("topk:10%/ef");
    job_.exchange.compression.layout = {.chunk_elements = 1000, .bundle_elements = 2000};
    job_.checkpoint.dir = absl::StrCat(servers_.folder(), "/checkpoints");
    job_.checkpoint.interval = 10;
    job_.server.heartbeat_interval = absl::Milliseconds(10);
    job_.server.rejoin_timeout = absl::Minutes(10);
  }

  // Runs a job and returns the final states of the ranks. Calls `lose` once, when two checkpoints
  // are complete.
  std::vector<std::unique_ptr<State>> Run(const std::function<void()>& lose) {
    lose_ = lose;
    servers_.StartAll(job_);
    std::vector<std::unique_ptr<State>> ended(kBuffersSurvivalWorkers);
    std::vector<std::thread> workers;
    for (uint32_t rank = 0; rank < kBuffersSurvivalWorkers; ++rank) {
      workers.emplace_back([&, rank] { ended[rank] = Train(rank); });
    }
    for (std::thread& worker : workers) worker.join();
    servers_.StopAll();
    return ended;
  }

  std::unique_ptr<State> Train(uint32_t rank) {
    for (bool rejoining = false;; rejoining = true) {
      worker::RemoteSessionOptions options =
          worker::OptionsFromJob(job_, servers_.coordinator(), rank);
      options.software_version = std::string("1");
      options.rejoining = rejoining;
      const std::unique_ptr<worker::JobClient> client =
          worker::MakeRemoteClient(std::move(options));
      auto state = std::make_unique<State>();
      const absl::Status status = TrainOn(client.get(), rank, state.get());
      if (status.ok()) return state;
      Check(worker::IsRollback(status), status.message());
    }
  }
  absl::Status TrainOn(worker::JobClient* client, uint32_t rank, State* state) {
    const protocol::TensorTable table = {
        {.name = "w", .shape = {kBuffersSurvivalWeights}, .strides = {}},
        {.name = "statistics",
         .shape = {kStatistics},
         .strides = {},
         .role = protocol::TensorRole::kBuffer}};
    const absl::StatusOr<worker::JoinedJob> joined = client->Join(table, std::string(32, 'a'));
    if (!joined.ok()) return joined.status();
    worker::Session* const session = joined->session;
    const worker::JoinInfo& info = joined->info;
    if (info.restored_step > 0) {
      Check(info.restored.size() == sizeof(State), "it is what was saved");
      std::memcpy(state, info.restored.data(), sizeof(State));
      ++restored_;
    }
    for (uint64_t step = info.first_step; step <= kBuffersSurvivalSteps; ++step) {
      if (rank == 0) BeforeStep(step);
      if (rank == 1 && lose_worker_.exchange(false)) {
        return worker::RollbackError("as if this process had been killed");
      }
      const absl::Status done = TrainStep(session, rank, step, state);
      if (!done.ok()) return done;
    }
    return session->Leave();
  }
  absl::Status TrainStep(worker::Session* session, uint32_t rank, uint64_t step, State* state) {
    const absl::Span<float> statistics = absl::MakeSpan(state->statistics);
    std::vector<float> gradient(kBuffersSurvivalWeights);
    CounterRandom random(rank, step, 4);
    for (size_t i = 0; i < kBuffersSurvivalWeights; ++i) {
      gradient[i] = 0.1f * state->weights[i] + static_cast<float>(random.Uniform() - 0.5);
    }
    Move(rank, step, statistics);
    absl::Status status = session->Submit(0, gradient);
    const bool due = session->BuffersDue();
    if (status.ok() && due) status = session->Submit(1, statistics);
    if (!status.ok()) return status;
    const absl::StatusOr<worker::StepResult> result = session->Wait();
    if (!result.ok()) return result.status();
    Check(result->buffers_averaged == due, "what is due is done");
    Check(!result->checkpoint_due || due, "checkpoints average");
    status = session->Apply(0, absl::MakeSpan(gradient));
    if (status.ok()) status = session->Apply(1, statistics);
    if (!status.ok()) return status;
    for (size_t i = 0; i < kBuffersSurvivalWeights; ++i) state->weights[i] -= 0.1f * gradient[i];
    state->averaged[step] = due ? 1 : 0;
    if (!result->checkpoint_due) return absl::OkStatus();
    if (rank == 0) saved_ = step;
    return session->SaveCheckpoint(std::string(reinterpret_cast<const char*>(state), sizeof(State)),
                                   {});
  }
  // Runs on the thread of rank 0, so that no rank advances during the call. Steps are faster than
  // the heartbeats that request checkpoints, and may be faster than the disk. Therefore this makes
  // one step per heartbeat until two checkpoints are complete, and waits for each of them.
  void BeforeStep(uint64_t step) {
    if (!lose_) return;
    AwaitThat([&] {
      const auto status = servers_[0].Status();
      return status->shards[0].highest_closed_step + 1 >= step && status->checkpoint_step >= saved_;
    });
    const uint64_t newest = servers_[0].Status()->checkpoint_step;
    if (newest > 0 && first_checkpoint_ == 0) first_checkpoint_ = newest;
    // The loss occurs between two averaging steps, so that the ranks' buffers differ.
    if (newest > first_checkpoint_ && step % kEvery == 4) std::exchange(lose_, nullptr)();
  }

  // Expects the buffers of all ranks to equal those that this thread computes alone. It uses the
  // mean in the same steps as the ranks.
  static void ExpectAsComputedAlone(const std::vector<std::unique_ptr<State>>& ended) {
    std::vector<std::vector<float>> alone(kBuffersSurvivalWorkers, std::vector<float>(kStatistics));
    uint64_t off_beat = 0;
    uint64_t differing = 0;
    for (uint64_t step = 1; step <= kBuffersSurvivalSteps; ++step) {
      for (uint32_t rank = 0; rank < kBuffersSurvivalWorkers; ++rank) {
        Move(rank, step, absl::MakeSpan(alone[rank]));
        EXPECT_EQ(ended[rank]->averaged[step], ended[0]->averaged[step]) << step;
      }
      if (ended[0]->averaged[step] == 0) {
        EXPECT_NE(step % kEvery, 0u);
        if (alone[0] != alone[1]) ++differing;
        continue;
      }
      if (step % kEvery != 0) ++off_beat;
      for (size_t i = 0; i < kStatistics; ++i) {
        float sum = 0;
        for (const std::vector<float>& one : alone) sum += one[i];
        for (std::vector<float>& one : alone) one[i] = sum / kBuffersSurvivalWorkers;
      }
    }
    EXPECT_GT(off_beat, 0u) << "a checkpoint must fall between two averaging steps";
    EXPECT_GT(differing, kBuffersSurvivalSteps / 2) << "the ranks must have different statistics";
    for (uint32_t rank = 0; rank < kBuffersSurvivalWorkers; ++rank) {
      const State& state = *ended[rank];
      EXPECT_EQ(std::memcmp(state.statistics, alone[rank].data(), sizeof(state.statistics)), 0)
          << "rank " << rank;
      EXPECT_EQ(std::memcmp(state.weights, ended[0]->weights, sizeof(state.weights)), 0);
    }
  }

  JobServers servers_;
  job::JobSpec job_;
  std::function<void()> lose_;
  uint64_t saved_ = 0;  // The last step after which rank 0 saved a checkpoint. Used on its thread.
  uint64_t first_checkpoint_ = 0;
  std::atomic<bool> lose_worker_ = false;
  std::atomic<uint32_t> restored_ = 0;
};

TEST_F(BuffersSurvivalTest, AWorkerAndAShardThatAreLost) {
  const auto ended = Run([this] {
    lose_worker_ = true;
    servers_.Restart(1);
  });
  EXPECT_GT(restored_, 0u);
  ExpectAsComputedAlone(ended);
}

TEST_F(BuffersSurvivalTest, AShardWithoutChunksIsLost) {
  job_.shards = 6;
  const auto ended = Run([this] {
    lose_worker_ = true;
    servers_.Restart(5);
  });
  EXPECT_GT(restored_, 0u);
  ExpectAsComputedAlone(ended);
}

TEST_F(BuffersSurvivalTest, AWorkerThatIsLost) {
  const auto ended = Run([this] { lose_worker_ = true; });
  EXPECT_GT(restored_, 0u);
  ExpectAsComputedAlone(ended);
}

}  // namespace
}  // namespace sluice
