// SPDX-License-Identifier: Apache-2.0
// SurvivalTest: the servers and workers of a job in this process, with real sessions and folders.
// Tests kill some of them while the job trains.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/random.h"
#include "protocol/checkpoint/checkpoint_folder.h"
#include "tests/rpc/await.h"
#include "tests/rpc/job_servers.h"
#include "worker/rpc/remote_client.h"

namespace sluice {

inline constexpr uint32_t kWorkers = 2;
inline constexpr uint32_t kShards = 2;
inline constexpr uint64_t kSteps = 60;
inline constexpr size_t kWeights = 4500;
inline constexpr size_t kBiases = 5;

using Parameters = std::vector<float>;  // Weights, then biases.

inline std::string BytesOf(const Parameters& parameters) {
  std::string bytes(parameters.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), parameters.data(), bytes.size());
  return bytes;
}

class SurvivalTest : public ::testing::TestWithParam<const char*> {
 protected:
  SurvivalTest() {
    job_.name = std::string("test");
    job_.hash = 9;
    job_.workers = kWorkers;
    job_.shards = kShards;
    job_.exchange.compression.uplink = *compress::ParseCodecSpec(GetParam());
    job_.exchange.compression.downlink = *compress::ParseCodecSpec("topk:10%/ef");
    job_.exchange.compression.min_elements = 8;
    job_.exchange.compression.layout = {.chunk_elements = 1000, .bundle_elements = 2000};
    job_.server.heartbeat_interval = absl::Milliseconds(10);
    job_.server.rejoin_timeout = absl::Minutes(10);
  }

  // Runs a whole job and returns the final parameters, which must be equal on all ranks. Calls
  // `lose` once, when two checkpoints are complete.
  Parameters Run(const std::function<void()>& lose) {
    lose_ = lose;
    servers_.StartAll(job_);
    std::vector<Parameters> ended(job_.workers);
    std::vector<std::thread> workers;
    for (uint32_t rank = 0; rank < job_.workers; ++rank) {
      workers.emplace_back([&, rank] { ended[rank] = Train(rank); });
    }
    for (std::thread& worker : workers) worker.join();
    for (const Parameters& other : ended) EXPECT_EQ(other, ended[0]);
    if (const auto status = servers_[0].Status()) {
      repairs_ = status->repairs;
      rollbacks_ = status->rollbacks;
    }
    servers_.StopAll();
    return ended[0];
  }

  uint64_t NewestCheckpoint() { return servers_[0].Status()->checkpoint_step; }

  // Trains as a worker program does: whenever the job rolls back, joins again and continues from
  // the checkpoint.
  Parameters Train(uint32_t rank) {
    for (bool rejoining = false;; rejoining = true) {
      worker::RemoteSessionOptions options =
          worker::OptionsFromJob(job_, servers_.coordinator(), rank);
      options.software_version = std::string("1");
      options.rejoining = rejoining;
      const std::unique_ptr<worker::JobClient> client =
          worker::MakeRemoteClient(std::move(options));
      Parameters parameters(kWeights + kBiases);
      const absl::Status status = TrainOn(client.get(), rank, &parameters);
      if (status.ok() || (ends_at_ <= kSteps && absl::IsCancelled(status))) return parameters;
      Check(worker::IsRollback(status), status.message());
    }
  }
  absl::Status TrainOn(worker::JobClient* client, uint32_t rank, Parameters* parameters) {
    const protocol::TensorTable table = {
        {.name = "w", .shape = {50, 90}, .strides = {}, .dtype = protocol::DType::kFloat32},
        {.name = "b", .shape = {kBiases}, .strides = {}, .dtype = protocol::DType::kFloat32}};
    const absl::StatusOr<worker::JoinedJob> joined = client->Join(table, std::string(32, 'a'));
    if (!joined.ok()) return joined.status();
    worker::Session* const session = joined->session;
    const worker::JoinInfo& info = joined->info;
    if (!info.parameters_agree) {
      const absl::Span<float> all = absl::MakeSpan(*parameters);
      const absl::Span<float> parts[] = {all.first(kWeights), all.subspan(kWeights)};
      if (absl::Status agreed = session->AgreeOnParameters(parts); !agreed.ok()) return agreed;
    }
    if (info.restored_step > 0) {
      Check(info.restored.size() == parameters->size() * sizeof(float), "it is what was saved");
      std::memcpy(parameters->data(), info.restored.data(), info.restored.size());
      restored_ = true;
      restored_world_size_ = info.restored_world_size;
      if (rank == 0) began_with_ = *parameters;
    }
    for (uint64_t step = info.first_step; step <= kSteps; ++step) {
      if (rank == 0) BeforeStep(step);
      if (rank == 1 && lose_worker_.exchange(false)) {
        return worker::RollbackError("as if this process had been killed");
      }
      bool saved = false;
      const absl::Status done = TrainStep(session, rank, step, parameters, &saved);
      if (!done.ok()) return done;
      // The disk may be slower than all remaining steps, so this waits for the checkpoint.
      if (saved && rank == 0 && (lose_ || ends_at_ <= kSteps)) AwaitCheckpoint(step);
      if (saved && step >= ends_at_) {
        AwaitCheckpoint(step);
        return absl::CancelledError("as if this process had been killed");
      }
    }
    return session->Leave();
  }
  // Returns the number of processes that fail to read their initial state, according to the status.
  size_t FailingReads() {
    const server::JobStatus status = *servers_[0].Status();
    return static_cast<size_t>(
        std::count_if(status.waits.begin(), status.waits.end(), [](const server::LongWait& wait) {
          return !wait.trouble.empty() && absl::EndsWith(wait.what, "to be read");
        }));
  }
  bool OnShards() const { return job_.optimizer.location == job::UpdateLocation::kShards; }
  static absl::Status Descend(worker::Session* session, absl::Span<float> mean,
                              Parameters* parameters) {
    absl::Status status = session->Apply(0, mean.first(kWeights));
    if (status.ok()) status = session->Apply(1, mean.subspan(kWeights));
    if (!status.ok()) return status;
    for (size_t i = 0; i < mean.size(); ++i) (*parameters)[i] -= 0.1f * mean[i];
    return absl::OkStatus();
  }
  static absl::Status TakeUpdate(worker::Session* session, Parameters* parameters) {
    const absl::Span<float> all = absl::MakeSpan(*parameters);
    absl::Status status = session->ApplyUpdate(0, all.first(kWeights));
    return status.ok() ? session->ApplyUpdate(1, all.subspan(kWeights)) : status;
  }
  absl::Status TrainStep(worker::Session* session, uint32_t rank, uint64_t step,
                         Parameters* parameters, bool* saved) {
    Parameters gradient(*parameters);
    CounterRandom random(rank, step, 4);
    for (float& value : gradient) {
      value = 0.1f * value + static_cast<float>(random.Uniform() - 0.5);
    }
    const absl::Span<float> all = absl::MakeSpan(gradient);
    if (OnShards()) session->SetRate(0.1f);
    absl::Status status = session->Submit(1, all.subspan(kWeights));
    if (status.ok()) status = session->Submit(0, all.first(kWeights));
    if (!status.ok()) return status;
    const absl::StatusOr<worker::StepResult> result = session->Wait();
    if (!result.ok()) return result.status();
    if (rank == 0 && result->plan != nullptr) momenta_[step] = result->plan->momentum;
    status = OnShards() ? TakeUpdate(session, parameters) : Descend(session, all, parameters);
    if (!status.ok()) return status;
    *saved = result->checkpoint_due;
    return result->checkpoint_due ? session->SaveCheckpoint(BytesOf(*parameters), {})
                                  : absl::OkStatus();
  }
  void AwaitCheckpoint(uint64_t step) {
    AwaitThat([&] { return NewestCheckpoint() >= step; });
  }
  // Runs on the thread of rank 0, so that no rank advances during the call. Steps are faster than
  // the heartbeats that request checkpoints. Therefore this makes one step per heartbeat until two
  // checkpoints are complete.
  void BeforeStep(uint64_t step) {
    if (!lose_ && ends_at_ > kSteps) return;
    AwaitThat([&] { return servers_[0].Status()->shards[0].highest_closed_step + 1 >= step; });
    if (lose_ && step == lose_at_) std::exchange(lose_, nullptr)();
    if (lose_at_ > 0) return;
    const uint64_t newest = NewestCheckpoint();
    if (newest > 0 && first_checkpoint_ == 0) first_checkpoint_ = newest;
    if (lose_ && newest > first_checkpoint_) std::exchange(lose_, nullptr)();
  }
  // Checks the repairs and rollbacks that the coordinator has counted since its last start.
  void ExpectRepaired() const {
    EXPECT_GE(repairs_, 1u);
    EXPECT_EQ(rollbacks_, 0u);
  }
  // Runs the job without checkpoints, and then enables checkpoints. Returns the result, which every
  // other run must reach.
  Parameters Undisturbed() {
    job_.checkpoint = protocol::CheckpointSpec();
    const Parameters expected = Run(nullptr);
    job_.checkpoint.dir = absl::StrCat(servers_.folder(), "/checkpoints");
    job_.checkpoint.interval = 10;
    job_.checkpoint.replay_limit = replay_limit_;
    return expected;
  }

  JobServers servers_;
  job::JobSpec job_;
  std::function<void()> lose_;
  uint64_t lose_at_ = 0;  // Step before which `lose_` is called; 0 means after two checkpoints.
  uint64_t first_checkpoint_ = 0;
  std::atomic<bool> lose_worker_ = false;
  std::atomic<bool> restored_ = false;
  uint64_t replay_limit_ = protocol::CheckpointSpec().replay_limit;
  uint32_t repairs_ = 0;
  uint32_t rollbacks_ = 0;
  std::atomic<uint32_t> restored_world_size_ = 0;
  // All workers are killed after the first step at or after this one that has a checkpoint.
  uint64_t ends_at_ = kSteps + 1;
  Parameters began_with_;
  // By step: the momentum of the plan in effect on rank 0.
  std::map<uint64_t, std::optional<float>> momenta_;
};

}  // namespace sluice
