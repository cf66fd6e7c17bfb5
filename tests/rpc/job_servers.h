// SPDX-License-Identifier: Apache-2.0
// JobServers: the servers of a job with checkpoints, in this process and on loopback. Each server
// can be killed and restarted on the same port.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "job/job_spec.h"
#include "server/rpc/server.h"

namespace sluice {

class JobServers {
 public:
  // Creates a separate folder for job.checkpoint.dir.
  JobServers() : folder_(absl::StrCat(::testing::TempDir(), "/servers_XXXXXX")) {
    Check(::mkdtemp(folder_.data()) != nullptr, "there is a folder for tests");
  }
  ~JobServers() { std::filesystem::remove_all(folder_); }

  const std::string& folder() const { return folder_; }

  void StartAll(const job::JobSpec& job) {
    job_ = job;
    ports_.resize(job.shards);
    servers_.resize(job.shards);
    for (uint32_t shard = 0; shard < job.shards; ++shard) Start(shard);
  }
  // Starts the server of a shard and replaces the previous one, if any.
  void Start(uint32_t shard) {
    MutexLock lock(&mutex_);
    job::JobSpec job = job_;
    if (job.checkpoint.enabled() && job.checkpoint.at_shards()) job.checkpoint.dir = DirOf(shard);
    absl::StatusOr<std::unique_ptr<server::Server>> server = server::Server::Start(
        {.job = job,
         .shard = shard,
         .listen = absl::StrCat("127.0.0.1:", ports_[shard]),
         .coordinator = shard == 0 ? "" : absl::StrCat("127.0.0.1:", ports_[0]),
         .software_version = std::string("1"),
         .job_uid = 77},
        &clock_);
    Check(server.ok(), server.status().message());
    servers_[shard] = *std::move(server);
    ports_[shard] = servers_[shard]->port();
  }
  // Starts another server of the shard on another port. The previous server keeps running.
  void StartBeside(uint32_t shard) {
    before_.push_back(std::move(servers_[shard]));
    ports_[shard] = 0;
    Start(shard);
  }
  void Restart(uint32_t shard) {
    servers_[shard].reset();
    Start(shard);
  }
  // Stops the last server first. The next StartAll begins another run on other ports.
  void StopAll() {
    while (!servers_.empty()) servers_.pop_back();
    before_.clear();
    ports_.clear();
  }

  // Returns the folder of the server's checkpoints with store `shards`. Each server has its own
  // folder, as on separate machines.
  std::string DirOf(uint32_t shard) const { return absl::StrCat(folder_, "/machine-", shard); }

  std::string coordinator() const { return absl::StrCat("127.0.0.1:", ports_[0]); }
  const server::Server& operator[](uint32_t shard) const { return *servers_[shard]; }
  server::Server& before(size_t index) { return *before_[index]; }
  // As in the program, shard 0 ends once all processes know of the end or had time to learn of it.
  std::optional<absl::Status> Outcome(uint32_t shard) { return servers_[shard]->Outcome(); }
  void Stop(uint32_t shard) { servers_[shard].reset(); }

 private:
  SteadyClock clock_;
  std::string folder_;
  job::JobSpec job_;
  Mutex mutex_;
  std::vector<int> ports_;
  std::vector<std::unique_ptr<server::Server>> servers_;
  std::vector<std::unique_ptr<server::Server>> before_;  // Servers that StartBeside has replaced.
};

}  // namespace sluice
