// FakeServer: a coordinator and a shard of a job with one contributing worker, on a free loopback
// port, that misbehaves as told. A result is what the worker sent.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "protocol/tensor_table.h"
#include "sluice/v1/coordinator.grpc.pb.h"
#include "sluice/v1/parameter_shard.grpc.pb.h"

namespace sluice::worker {

class FakeServer {
 public:
  struct Script {
    grpc::Status join{};        // Not OK: the answer to Join.
    int joins_unavailable = 0;  // So many are answered UNAVAILABLE first.
    int joins_unanswered = 0;   // So many are not answered before the caller gives up.
    grpc::Status status{};      // Not OK: the answer to GetStatus.
    grpc::Status heartbeat{};
    int heartbeats_refused = 0;  // So many are answered UNAUTHENTICATED first.
    int streams_refused = 0;     // So many end likewise, at their first message.
    uint64_t incarnation = 5;    // As it says it with every answer.
    std::string failure{};       // Not empty: heartbeats say that the job has failed.
    grpc::Status stream{};       // Not OK: how streams end at their first message.
    int streams_broken = 0;  // So many break at their second message; the first is not answered.
    int busy = 0;            // So many messages are answered BUSY.
    bool silent = false;     // Messages are not answered.
    bool garbage = false;    // Answers are no messages.
    bool parameters_agree = true;
    uint32_t world_size = 1;
    std::vector<std::string> values{};  // Frames of step 0, when the worker is not rank 0.
    uint32_t lease_ms = 60000;
    uint32_t heartbeat_ms = 20;
    uint32_t term = 0;          // As Join tells it.
    uint64_t restore_step = 0;  // As Join tells it.
    uint32_t term_now = 0;      // As Heartbeat and Leave tell it.
    uint64_t name_at_step = 0;  // Results of this step and later say so, up to `checkpoint_step`.
    uint64_t checkpoint_step = 0;
    uint32_t fence_term = 0;  // Not 0: all is FENCED, and this is the job's term.
    int leaves_early = 0;     // So many Leaves are answered RUNNING.
  };

  explicit FakeServer(Script script);
  ~FakeServer();

  const std::string& address() const { return address_; }
  // Also names itself; the shards that Join tells of.
  void SetShards(std::vector<std::string> addresses);

  std::vector<v1::JoinRequest> joins() const;
  int status_calls() const;
  std::vector<v1::HeartbeatRequest> heartbeats() const;
  std::vector<v1::LeaveRequest> leaves() const;
  std::vector<v1::ExchangeRequest> exchanges() const;  // Of all streams, as they came.
  std::vector<v1::CheckpointPart> parts() const;
  void RaiseTerm(uint32_t term);  // Sets term_now.
  // From now on heartbeats say that shard 0 is there, a process with this number.
  void TellOfShard(const std::string& address, uint64_t incarnation);
  // Returns when so many parts were reported.
  void AwaitParts(size_t count);
  // Returns when so many Leaves have come.
  void AwaitLeaves(size_t count);
  uint64_t bytes_read() const;  // Of exchanges, with gRPC's prefix.
  uint64_t bytes_written() const;
  // Returns when a heartbeat has come since.
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
  uint64_t bytes_read_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t bytes_written_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice::worker
