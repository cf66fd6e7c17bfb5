// SPDX-License-Identifier: Apache-2.0
// StoreClient: writes a worker's parts of job checkpoints to the servers' disks and reads them
// back, in jobs with `checkpoint.store: shards`. Calls block. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "net/grpc/call_gate.h"
#include "net/grpc/transport.h"
#include "protocol/exchange.h"
#include "protocol/snapshot.h"
#include "sluice/v1/checkpoint_store.grpc.pb.h"
#include "worker/rpc/membership.h"

namespace sluice::worker {

class StoreClient {
 public:
  struct Options {
    protocol::Sender sender;
    std::vector<ShardSeat> shards;
    std::shared_ptr<const net::Transport> transport = net::Transport::Plain();
    absl::Duration backoff_min;
    absl::Duration backoff_max;
    const Clock* clock = nullptr;
  };
  // Does not connect.
  explicit StoreClient(Options options);

  // Stores a part and returns it once it is durable. Rank r's parts go to shard r modulo the number
  // of shards. Retries until the server answers or Cancel is called. Fails with RESOURCE_EXHAUSTED
  // if the server could not write the part.
  absl::StatusOr<protocol::CheckpointPart> Put(uint64_t step, const std::string& name,
                                               absl::string_view bytes);
  // Reads a part from the server that stores it. Retries for `timeout` to reach that server. Fails
  // with DATA_LOSS if the part is damaged or lost, and with a RollbackError if the server is
  // unreachable or says that this worker's term is over.
  absl::StatusOr<std::string> Get(const protocol::CheckpointPart& part, absl::Duration timeout);
  // Tells the client that another process now serves the shard. Calls in progress use it from their
  // next retry on.
  void GoTo(uint32_t shard, const std::string& address, uint64_t server_incarnation);
  // Ends the calls in progress, and every later one, with CANCELLED.
  void Cancel() { gate_.Close(); }

 private:
  // A connection to the process with this incarnation.
  struct Line {
    uint64_t server_incarnation = 0;
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<v1::CheckpointStore::Stub> stub;
  };
  ShardSeat SeatOf(uint32_t shard) const;
  void Connect(uint32_t shard, Line* line) const;
  protocol::Sender SenderTo(uint32_t shard) const;
  grpc::Status TryPut(v1::CheckpointStore::Stub* stub, const v1::PutPartRequest& first,
                      absl::string_view bytes, v1::PutPartReply* reply, bool* cancelled);
  grpc::Status TryGet(v1::CheckpointStore::Stub* stub, const v1::GetPartRequest& request,
                      std::string* bytes, bool* cancelled);
  std::string Place(uint32_t shard) const;

  const Options options_;
  const uint32_t shard_count_;
  net::CallGate gate_;
  mutable Mutex mutex_;
  std::vector<ShardSeat> shards_ ABSL_GUARDED_BY(mutex_);  // Current location of each shard.
};

}  // namespace sluice::worker
