// SPDX-License-Identifier: Apache-2.0
// Heartbeat: renews a worker's lease from its own thread and connection. The replies report failure
// and rollback of the job.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "net/grpc/transport.h"
#include "protocol/membership.h"
#include "sluice/v1/coordinator.grpc.pb.h"

namespace sluice::worker {

class Heartbeat {
 public:
  struct Options {
    std::string address;
    std::shared_ptr<const net::Transport> transport = net::Transport::Plain();
    absl::Duration interval;
    absl::Duration lease;
    absl::Duration patience;          // Limit for the coordinator's absence; at least the lease.
    uint64_t server_incarnation = 0;  // Replies with a lower incarnation are ignored.
    uint32_t term = 0;                // A higher term in a reply means that the job rolled back.
    const Clock* clock = nullptr;
    Logger logger{"worker"};
    std::function<protocol::WorkerHeartbeat()> compose;
    // Called for each reply without a failure or rollback.
    std::function<void(const protocol::HeartbeatReply&)> on_reply;
    // Called once: when the job has failed or rolled back (RollbackError), or when no heartbeat got
    // through for `patience` (UNAVAILABLE).
    std::function<void(absl::Status)> on_failure;
  };
  explicit Heartbeat(Options options);
  // Stops and cancels a call in progress.
  ~Heartbeat();

  // Sends a heartbeat with this hash at once. Repeats the hash until a heartbeat gets through.
  // Keeps the newest 64 hashes.
  void ReportParameters(uint64_t step, std::string sha256);

 private:
  void Run();
  bool WaitForNext();  // Returns false to stop.
  // An error is final.
  absl::Status Beat();
  absl::Status HandleReply(const protocol::HeartbeatReply& answer);
  absl::Status Missed(const std::string& reason);
  void Answered();

  struct ParametersReport {
    uint64_t step = 0;
    std::string sha256;
  };

  const Options options_;
  const std::unique_ptr<v1::Coordinator::Stub> stub_;
  // The members below belong to the thread.
  absl::Time last_answer_;
  uint64_t server_incarnation_;  // The highest incarnation that answered.
  bool told_ = false;            // The coordinator's absence has been logged.
  Mutex mutex_;
  CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<ParametersReport> reports_ ABSL_GUARDED_BY(mutex_);
  bool report_is_new_ ABSL_GUARDED_BY(mutex_) = false;
  // Context of the call in progress.
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::thread thread_;
};

}  // namespace sluice::worker
