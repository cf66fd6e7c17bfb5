// SPDX-License-Identifier: Apache-2.0
// RelayJob: a job with relays in this process: servers, relays and workers' sessions on loopback. A
// test can kill any of them and restart it on the same port.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/random.h"
#include "job/relays.h"
#include "relay/relay.h"
#include "tests/rpc/await.h"
#include "tests/rpc/job_servers.h"
#include "worker/rpc/remote_client.h"

namespace sluice::relay {

inline constexpr size_t kWeights = 4500;
inline constexpr size_t kBiases = 5;
inline constexpr size_t kStatistics = 90;  // A buffer.
inline constexpr float kRate = 0.05f;

struct Model {
  std::vector<float> parameters = std::vector<float>(kWeights + kBiases);
  std::vector<float> statistics = std::vector<float>(kStatistics);

  friend bool operator==(const Model&, const Model&) = default;
};

class RelayJob : public ::testing::Test {
 protected:
  RelayJob() {
    job_.name = std::string("test");
    job_.hash = 9;
    job_.workers = 4;
    job_.shards = 2;
    job_.exchange.buffer_sync_interval = 7;
    job_.exchange.compression.uplink = *compress::ParseCodecSpec("none");
    job_.exchange.compression.downlink = *compress::ParseCodecSpec("none");
    job_.exchange.compression.min_elements = 8;
    job_.exchange.compression.layout = {.chunk_elements = 1000, .bundle_elements = 2000};
    job_.relays.workers = {2, 2};
    job_.relays.uplink = *compress::ParseCodecSpec("none");
    job_.server.heartbeat_interval = absl::Milliseconds(10);
    job_.server.rejoin_timeout = absl::Minutes(10);
  }
  ~RelayJob() override {
    pumping_ = false;
    if (pump_.joinable()) pump_.join();
  }

  // Runs a whole job. Returns the final models of its ranks.
  std::vector<Model> Run() {
    Start();
    std::vector<Model> ended(job_.workers);
    std::vector<std::thread> workers;
    for (uint32_t rank = 0; rank < job_.workers; ++rank) {
      workers.emplace_back([&, rank] { ended[rank] = Train(rank); });
    }
    for (std::thread& worker : workers) worker.join();
    if (const auto status = servers_[0].Status()) {
      repairs_ = status->repairs;
      rollbacks_ = status->rollbacks;
    }
    Stop();
    return ended;
  }
  void Start() {
    servers_.StartAll(job::JobOfServers(job_));
    relays_.resize(job_.relays.workers.size());
    outcomes_.assign(relays_.size(), std::nullopt);
    ports_.assign(relays_.size(), 0);
    for (uint32_t relay = 0; relay < relays_.size(); ++relay) StartRelay(relay);
    pumping_ = true;
    pump_ = std::thread([this] { Pump(); });
  }
  void StartRelay(uint32_t relay) {
    absl::StatusOr<std::unique_ptr<Relay>> started =
        Relay::Start({.job = job_,
                      .relay = relay,
                      .listen = absl::StrCat("127.0.0.1:", PortOf(relay)),
                      .upstream = servers_.coordinator(),
                      .software_version = std::string("1"),
                      .job_uid = 100 + relay},
                     &clock_);
    Check(started.ok(), started.status().message());
    const std::string address = (*started)->address();
    MutexLock lock(&mutex_);
    ports_[relay] = std::stoi(address.substr(address.rfind(':') + 1));
    relays_[relay] = *std::move(started);
  }
  int PortOf(uint32_t relay) {
    MutexLock lock(&mutex_);
    return ports_[relay];
  }
  // Ends a relay without a report, as kill -9 would.
  void LoseRelay(uint32_t relay) {
    std::unique_ptr<Relay> lost;
    {
      MutexLock lock(&mutex_);
      lost = std::move(relays_[relay]);
    }
    lost.reset();
  }
  void Stop() {
    // Waits for the end of the job on every relay.
    const absl::Time until = clock_.Now() + absl::Seconds(100);
    AwaitThat([&] {
      if (clock_.Now() > until) return true;
      MutexLock lock(&mutex_);
      for (size_t i = 0; i < relays_.size(); ++i) {
        if (relays_[i] != nullptr && !outcomes_[i].has_value()) return false;
      }
      return true;
    });
    pumping_ = false;
    pump_.join();
    ended_ = outcomes_;
    relays_.clear();
    servers_.StopAll();
  }
  // Acts as the relays' main loop.
  void Pump() {
    while (pumping_) {
      {
        MutexLock lock(&mutex_);
        for (size_t i = 0; i < relays_.size(); ++i) {
          if (relays_[i] == nullptr || outcomes_[i].has_value()) continue;
          outcomes_[i] = relays_[i]->Outcome();
        }
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  std::unique_ptr<worker::JobClient> MakeClient(uint32_t rank, bool rejoining) {
    worker::RemoteSessionOptions options;
    if (job_.relays.enabled()) {
      const job::RackPlace place = job::FindRackPlace(job_, rank);
      options = worker::OptionsFromJob(job::JobOfRack(job_, place.relay),
                                       absl::StrCat("127.0.0.1:", PortOf(place.relay)), place.rank);
    } else {
      options = worker::OptionsFromJob(job_, servers_.coordinator(), rank);
    }
    options.software_version = std::string("1");
    options.rejoining = rejoining;
    return worker::MakeRemoteClient(std::move(options));
  }
  // Acts as a worker program: restarts from the checkpoint after every rollback.
  Model Train(uint32_t rank) {
    for (bool rejoining = false;; rejoining = true) {
      const std::unique_ptr<worker::JobClient> client = MakeClient(rank, rejoining);
      Model model;
      const absl::Status status = TrainOn(client.get(), rank, &model);
      if (!worker::IsRollback(status)) {
        MutexLock lock(&mutex_);
        if (!status.ok() && failure_.ok()) failure_ = status;
        return model;
      }
    }
  }
  static protocol::TensorTable Table() {
    return {{.name = "w", .shape = {50, 90}, .strides = {}, .dtype = protocol::DType::kFloat32},
            {.name = "b", .shape = {kBiases}, .strides = {}, .dtype = protocol::DType::kFloat32},
            {.name = "mean",
             .shape = {kStatistics},
             .strides = {},
             .dtype = protocol::DType::kFloat32,
             .role = protocol::TensorRole::kBuffer}};
  }
  absl::Status TrainOn(worker::JobClient* client, uint32_t rank, Model* model) {
    // The ranks begin with different parameters. All of them must get rank 0's parameters.
    model->parameters.assign(model->parameters.size(), static_cast<float>(rank + 1));
    model->statistics.assign(kStatistics, static_cast<float>(rank));
    const absl::StatusOr<worker::JoinedJob> joined =
        client->Join(Table(), std::string(32, static_cast<char>('a' + rank)));
    if (!joined.ok()) return joined.status();
    worker::Session* const session = joined->session;
    const worker::JoinInfo& info = joined->info;
    const absl::Span<float> all = absl::MakeSpan(model->parameters);
    const absl::Span<float> statistics = absl::MakeSpan(model->statistics);
    if (info.restored_step > 0) {
      const size_t first = all.size() * sizeof(float);
      Check(info.restored.size() == first + kStatistics * sizeof(float), "it is what was saved");
      std::memcpy(all.data(), info.restored.data(), first);
      std::memcpy(statistics.data(), info.restored.data() + first, kStatistics * sizeof(float));
      restored_ = true;
    } else if (!info.parameters_agree) {
      const absl::Status agreed =
          session->AgreeOnParameters({all.first(kWeights), all.subspan(kWeights), statistics});
      if (!agreed.ok()) return agreed;
    }
    for (uint64_t step = info.first_step; step <= steps_; ++step) {
      if (rank == 0) BeforeStep(step);
      if (rank == 1 && lose_worker_.exchange(false)) {
        return worker::RollbackError("as if this process had been killed");
      }
      bool saved = false;
      const absl::Status done = TrainStep(session, rank, step, model, &saved);
      if (!done.ok()) return done;
      // The disk may be slower than all remaining steps, so this waits for the checkpoint.
      if (saved && rank == 0 && lose_) {
        AwaitThat([&] { return servers_[0].Status()->checkpoint_step >= step; });
      }
    }
    return session->Leave();
  }
  absl::Status TrainStep(worker::Session* session, uint32_t rank, uint64_t step, Model* model,
                         bool* saved) {
    CounterRandom random(rank, step, 4);
    std::vector<float> gradient(model->parameters);
    for (float& value : gradient) {
      value = 0.1f * value + static_cast<float>(random.Uniform() - 0.5);
    }
    for (float& value : model->statistics) {
      value = 0.9f * value + 0.1f * static_cast<float>(random.Uniform() + rank);
    }
    if (change_) change_(rank, step, &gradient);
    const absl::Span<float> all = absl::MakeSpan(gradient);
    const bool shards_update = job::ShardOptimizer(job_).has_value();
    if (shards_update) session->SetRate(kRate);
    absl::Status status;
    if (skips_ && skips_(rank, step)) {
      status = session->Skip();
    } else {
      if (session->BuffersDue()) status = session->Submit(2, model->statistics);
      if (status.ok()) status = session->Submit(1, all.subspan(kWeights));
      if (status.ok()) status = session->Submit(0, all.first(kWeights));
    }
    if (!status.ok()) return status;
    const absl::StatusOr<worker::StepResult> result = session->Wait();
    if (!result.ok()) return result.status();
    const absl::Span<float> parameters = absl::MakeSpan(model->parameters);
    status = shards_update ? session->ApplyUpdate(0, parameters.first(kWeights))
                           : session->Apply(0, all.first(kWeights));
    if (!status.ok()) return status;
    status = shards_update ? session->ApplyUpdate(1, parameters.subspan(kWeights))
                           : session->Apply(1, all.subspan(kWeights));
    if (status.ok() && result->buffers_averaged) {
      status = session->Apply(2, absl::MakeSpan(model->statistics));
    }
    if (!status.ok()) return status;
    for (size_t i = 0; i < gradient.size() && !shards_update; ++i) {
      parameters[i] -= kRate * gradient[i];
    }
    session->Report({.step = step, .total_steps = steps_, .loss = 1});
    if (after_step_) after_step_(rank, *result);
    *saved = result->checkpoint_due;
    if (!result->checkpoint_due) return status;
    std::string state((gradient.size() + kStatistics) * sizeof(float), '\0');
    std::memcpy(state.data(), model->parameters.data(), gradient.size() * sizeof(float));
    std::memcpy(state.data() + gradient.size() * sizeof(float), model->statistics.data(),
                kStatistics * sizeof(float));
    return session->SaveCheckpoint(std::move(state), {});
  }
  // Runs on the thread of rank 0. Calls `lose_` once, when the job has two checkpoints. Waits for
  // the servers' reports, so that the job does not end before these reports arrive.
  void BeforeStep(uint64_t step) {
    if (!lose_) return;
    AwaitThat([&] { return servers_[0].Status()->shards[0].highest_closed_step + 1 >= step; });
    const uint64_t newest = servers_[0].Status()->checkpoint_step;
    if (newest > 0 && first_checkpoint_ == 0) first_checkpoint_ = newest;
    if (newest > first_checkpoint_) std::exchange(lose_, nullptr)();
  }

  // Returns the error of the first worker that failed.
  absl::Status failure() {
    MutexLock lock(&mutex_);
    return failure_;
  }

  JobServers servers_;
  SteadyClock clock_;
  job::JobSpec job_;
  uint64_t steps_ = 30;
  // Called with rank and step. change_ changes the gradient; skips_ returns whether the rank skips.
  std::function<void(uint32_t, uint64_t, std::vector<float>*)> change_;
  std::function<bool(uint32_t, uint64_t)> skips_;
  std::function<void(uint32_t, const worker::StepResult&)> after_step_;
  std::function<void()> lose_;
  uint64_t first_checkpoint_ = 0;
  std::atomic<bool> lose_worker_ = false;
  std::atomic<bool> restored_ = false;
  uint32_t repairs_ = 0;
  uint32_t rollbacks_ = 0;
  std::vector<std::optional<absl::Status>> ended_;  // Outcomes of the relays.

  Mutex mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // The first worker's error.
  std::vector<std::unique_ptr<Relay>> relays_;
  std::vector<std::optional<absl::Status>> outcomes_;
  std::vector<int> ports_;
  std::atomic<bool> pumping_ = false;
  std::thread pump_;
};

}  // namespace sluice::relay
