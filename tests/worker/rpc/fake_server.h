// SPDX-License-Identifier: Apache-2.0
// FakeServer: a coordinator and a shard of a job with one contributing worker, on a free loopback
// port. It misbehaves as the script says. A result is the worker's own contribution.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "protocol/tensor_table.h"
#include "sluice/v1/coordinator.grpc.pb.h"
#include "sluice/v1/parameter_shard.grpc.pb.h"

namespace sluice::worker {

class FakeServer {
 public:
  struct Script {
    grpc::Status join{};        // Answer to Join if not OK.
    int joins_unavailable = 0;  // Number of initial Joins that get UNAVAILABLE.
    // Number of initial Joins that end at their deadline without an answer: each advances `clock`
    // by `join_deadline`.
    int joins_unanswered = 0;
    SimulatedClock* clock = nullptr;
    absl::Duration join_deadline{};
    grpc::Status status{};  // Answer to GetStatus if not OK.
    grpc::Status heartbeat{};
    int heartbeats_refused = 0;  // Number of initial heartbeats that get UNAUTHENTICATED.
    int streams_refused = 0;  // Number of initial streams whose first message gets UNAUTHENTICATED.
    uint64_t incarnation = 5;  // Incarnation in every answer.
    std::string failure{};     // If not empty, heartbeats report that the job failed.
    grpc::Status stream{};  // If not OK, the status with which streams end at their first message.
    // Number of initial streams that break at their second message, with no answer to the first.
    int streams_broken = 0;
    int streams_unbegun = 0;     // Number of initial streams that end before they begin.
    bool holds_streams = false;  // Streams begin when BeginStreams is called.
    int busy = 0;                // Number of initial messages that get BUSY.
    bool silent = false;         // Messages get no answer.
    bool garbage = false;        // Answers are malformed.
    bool parameters_agree = true;
    uint32_t world_size = 1;
    std::vector<std::string> values{};  // Frames of step 0, if the worker is not rank 0.
    uint32_t lease_ms = 60000;
    uint32_t heartbeat_ms = 20;
    uint32_t term = 0;          // Term in the answer to Join.
    uint64_t restore_step = 0;  // Step in the answer to Join.
    uint32_t term_now = 0;      // Term in the answers to Heartbeat and Leave.
    uint64_t name_at_step = 0;  // Results from this step to `checkpoint_step` name a checkpoint.
    uint64_t checkpoint_step = 0;
    uint32_t fence_term = 0;  // If not 0, all requests get FENCED, and this is the job's term.
    int leaves_early = 0;     // Number of initial Leaves that get RUNNING.
    int reports_early = 0;    // Number of initial reports of parts that get UNAVAILABLE.
    grpc::Status report{};    // Answer to later reports of parts if not OK.
  };

  explicit FakeServer(Script script);
  ~FakeServer();

  const std::string& address() const { return address_; }
  // Sets the shards in the answer to Join, which include this server.
  void SetShards(std::vector<std::string> addresses);

  std::vector<v1::JoinRequest> joins() const;
  int status_calls() const;
  std::vector<v1::HeartbeatRequest> heartbeats() const;
  std::vector<v1::LeaveRequest> leaves() const;
  // Requests of all streams, in order of arrival.
  std::vector<v1::ExchangeRequest> exchanges() const;
  std::vector<v1::CheckpointPart> parts() const;
  void RaiseTerm(uint32_t term);  // Sets term_now.
  // Makes later heartbeats report that shard 0 is at this address, in a process with this
  // incarnation.
  void AnnounceShard(const std::string& address, uint64_t incarnation);
  // Begins the waiting streams. Later streams begin at once.
  void BeginStreams();
  // Returns when a stream is waiting to begin.
  void AwaitHeldStream();
  // Returns after `count` reports of parts.
  void AwaitParts(size_t count);
  // Returns after `count` Leaves.
  void AwaitLeaves(size_t count);
  uint64_t bytes_read() const;  // Bytes of exchanges, with gRPC's prefix.
  uint64_t bytes_written() const;
  // Returns after another heartbeat.
  void AwaitHeartbeat();

 private:
  class CoordinatorService;
  class ShardService;

  Script script_;
  std::string address_;
  std::unique_ptr<CoordinatorService> coordinator_;
  std::unique_ptr<ShardService> shard_;
  std::unique_ptr<grpc::Server> server_;
  mutable Mutex mutex_;
  CondVar heard_;
  std::vector<std::string> shards_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::ShardAddress> told_shard_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::JoinRequest> joins_ ABSL_GUARDED_BY(mutex_);
  int status_calls_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<v1::HeartbeatRequest> heartbeats_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::LeaveRequest> leaves_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::CheckpointPart> parts_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::ExchangeRequest> exchanges_ ABSL_GUARDED_BY(mutex_);
  using Stream = grpc::ServerReaderWriter<v1::ExchangeReply, v1::ExchangeRequest>;
  std::set<Stream*> held_ ABSL_GUARDED_BY(mutex_);
  uint64_t bytes_read_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t bytes_written_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice::worker
