// SPDX-License-Identifier: Apache-2.0
// Tests sessions of workers that do not wait for each other, over gRPC: modes async and ssp.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "tests/rpc/await.h"
#include "tests/rpc/job_servers.h"
#include "worker/rpc/remote_client.h"

namespace sluice {
namespace {

constexpr uint32_t kRanks = 3;
constexpr size_t kWeights = 3000;
constexpr uint64_t kAsyncSessionSteps = 200;

using Floats = std::vector<float>;

float Target(size_t i) { return static_cast<float>(i % 7) - 3; }

double DistanceToTarget(const Floats& parameters) {
  double sum = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    sum += std::pow(double{parameters[i]} - Target(i), 2);
  }
  return std::sqrt(sum / static_cast<double>(parameters.size()));
}

class AsyncSessionTest : public ::testing::Test {
 protected:
  AsyncSessionTest() {
    job_.name = std::string("test");
    job_.hash = 9;
    job_.exchange.mode = job::Mode::kAsync;
    job_.workers = kRanks;
    job_.shards = 2;
    job_.optimizer = {.name = "sgd", .lr = 0.05, .location = job::UpdateLocation::kShards};
    job_.exchange.compression.uplink = *compress::ParseCodecSpec("topk:10%+int4");
    job_.exchange.compression.downlink = *compress::ParseCodecSpec("int4");
    job_.exchange.compression.min_elements = 8;
    job_.exchange.compression.layout = {.chunk_elements = 1000, .bundle_elements = 1000};
    job_.server.heartbeat_interval = absl::Milliseconds(10);
    // The lease is so long that a busy machine causes no loss.
    job_.server.lease_timeout = absl::Hours(1);
    job_.server.rejoin_timeout = absl::Minutes(10);
  }

  void Run() {
    servers_.StartAll(job_);
    std::vector<std::thread> workers;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      workers.emplace_back([this, rank] { Train(rank); });
    }
    for (std::thread& worker : workers) worker.join();
    rollbacks_ = servers_[0].Status()->rollbacks;
    recovery_reason_ = servers_[0].Status()->recovery_reason;
    for (uint32_t shard = 0; shard < job_.shards; ++shard)
      stats_.push_back(servers_[shard].Stats());
    servers_.StopAll();
  }

  // Runs the job with checkpoints, and loses the shard after one of them.
  void RunAndLose(uint32_t shard) {
    job_.checkpoint.dir = servers_.folder();
    job_.checkpoint.interval = 20;
    std::atomic<bool> lost = false;
    before_step_ = [&](uint32_t rank, uint64_t step) {
      // Steps are faster than disks, so the test waits for a checkpoint.
      if (rank == 0 && step > 50 && !lost.exchange(true)) {
        AwaitThat([&] { return servers_[0].Status()->checkpoint_step > 0; });
        servers_.Restart(shard);
      }
    };
    Run();
  }

  void Train(uint32_t rank) {
    for (bool rejoining = false;; rejoining = true) {
      worker::RemoteSessionOptions options =
          worker::OptionsFromJob(job_, servers_.coordinator(), rank);
      options.software_version = std::string("1");
      options.rejoining = rejoining;
      const std::unique_ptr<worker::JobClient> client =
          worker::MakeRemoteClient(std::move(options));
      const absl::Status status = TrainOn(client.get(), rank);
      if (status.ok()) return;
      Check(worker::IsRollback(status), status.message());
    }
  }

  absl::Status TrainOn(worker::JobClient* client, uint32_t rank) {
    const protocol::TensorTable table = {{.name = "w", .shape = {30, 100}, .strides = {}}};
    const absl::StatusOr<worker::JoinedJob> joined = client->Join(table, std::string(32, 'a'));
    if (!joined.ok()) return joined.status();
    worker::Session* const session = joined->session;
    const worker::JoinInfo& info = joined->info;
    Floats& parameters = ended_[rank];
    parameters.assign(kWeights, 0.5f * static_cast<float>(rank));
    const absl::Span<float> all = absl::MakeSpan(parameters);
    if (info.restored_step > 0) {
      std::memcpy(all.data(), info.restored.data(), info.restored.size());
    } else {
      Check(!info.parameters_agree, "shards get their parameters from rank 0");
      const absl::Status agreed = session->AgreeOnParameters({&all, 1});
      if (!agreed.ok()) return agreed;
    }
    for (uint64_t step = info.first_step; step <= kAsyncSessionSteps; ++step) {
      if (before_step_) before_step_(rank, step);
      Floats gradient(kWeights);
      CounterRandom random(rank, step, 4);
      for (size_t i = 0; i < kWeights; ++i) {
        gradient[i] = parameters[i] - Target(i) + 0.1f * static_cast<float>(random.Uniform() - 0.5);
      }
      session->SetRate(0.05f);
      absl::Status status = session->Submit(0, gradient);
      if (!status.ok()) return status;
      const absl::StatusOr<worker::StepResult> result = session->Wait();
      if (!result.ok()) return result.status();
      EXPECT_EQ(result->steps_behind, 0u);
      status = session->ApplyUpdate(0, all);
      at_[rank] = step;
      if (status.ok() && result->checkpoint_due) {
        std::string state(parameters.size() * sizeof(float), '\0');
        std::memcpy(state.data(), parameters.data(), state.size());
        status = session->SaveCheckpoint(std::move(state), {});
      }
      if (!status.ok()) return status;
      session->ReportParameters(step, std::string(32, static_cast<char>('a' + rank)));
    }
    return session->Leave();
  }

  job::JobSpec job_;
  JobServers servers_;
  std::function<void(uint32_t rank, uint64_t step)> before_step_;
  Floats ended_[kRanks];
  std::atomic<uint64_t> at_[kRanks] = {};
  uint64_t rollbacks_ = 0;
  std::string recovery_reason_;
  std::vector<server::ShardStats> stats_;
};

TEST_F(AsyncSessionTest, TrainsWithCompressionBothWays) {
  Run();
  for (const Floats& ended : ended_) EXPECT_LT(DistanceToTarget(ended), 0.1);
  for (const server::ShardStats& stats : stats_) {
    EXPECT_EQ(stats.highest_closed_step, kAsyncSessionSteps);
    EXPECT_GT(stats.publications, 0u);
    EXPECT_LT(5 * stats.bytes_in, stats.dense_bytes_in);
  }
}

TEST_F(AsyncSessionTest, AMomentumOnTheShardsAndARateByStaleness) {
  job_.optimizer.momentum = 0.5;
  job_.exchange.staleness_aware_lr = true;
  Run();
  for (const Floats& ended : ended_) EXPECT_LT(DistanceToTarget(ended), 0.3);
}

TEST_F(AsyncSessionTest, NobodyWaitsForOneWhoIsSlow) {
  std::atomic<bool> others_are_done = false;
  before_step_ = [&](uint32_t rank, uint64_t step) {
    if (rank != 0 && step == kAsyncSessionSteps && at_[3 - rank] + 1 >= kAsyncSessionSteps)
      others_are_done = true;
    // Rank 0 starts its second step only when the others are at their last step.
    if (rank == 0 && step == 2) AwaitThat([&] { return others_are_done.load(); });
  };
  Run();
  for (const Floats& ended : ended_) EXPECT_LT(DistanceToTarget(ended), 0.2);
}

TEST_F(AsyncSessionTest, SspHoldsWhoIsTooFarAhead) {
  job_.exchange.mode = job::Mode::kSsp;
  job_.exchange.staleness = 2;
  std::atomic<uint64_t> furthest_ahead = 0;
  before_step_ = [&](uint32_t rank, uint64_t step) {
    if (rank == 0) {
      if (step % 20 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return;
    }
    // Rank 0 may be one step ahead of at_[0].
    const uint64_t slowest = at_[0] + 1;
    const uint64_t ahead = step > slowest ? step - slowest : 0;
    uint64_t seen = furthest_ahead;
    while (ahead > seen && !furthest_ahead.compare_exchange_weak(seen, ahead)) {
    }
  };
  Run();
  EXPECT_LE(furthest_ahead, job_.exchange.staleness + 1);
  for (const Floats& ended : ended_) EXPECT_LT(DistanceToTarget(ended), 0.1);
}

TEST_F(AsyncSessionTest, ALostShardTakesTheJobBackToACheckpoint) {
  RunAndLose(1);
  EXPECT_GE(rollbacks_, 1u);
  EXPECT_NE(recovery_reason_.find("the order of updates"), std::string::npos) << recovery_reason_;
  for (const Floats& ended : ended_) EXPECT_LT(DistanceToTarget(ended), 0.1);
}

// Three chunks on five shards.
TEST_F(AsyncSessionTest, ALostShardWithoutChunksTakesTheJobBackToACheckpoint) {
  job_.shards = 5;
  job_.exchange.mode = job::Mode::kSsp;
  job_.exchange.staleness = 3;
  RunAndLose(4);
  EXPECT_GE(rollbacks_, 1u);
  for (const Floats& ended : ended_) EXPECT_LT(DistanceToTarget(ended), 0.1);
}

}  // namespace
}  // namespace sluice
