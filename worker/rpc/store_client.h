// StoreClient: a worker's parts of job checkpoints on their way to the servers' disks and back, for
// jobs with `checkpoint.store: shards`. Calls wait. Thread-safe.
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
#include "net/grpc/transport.h"
#include "protocol/exchange.h"
#include "protocol/snapshot.h"
#include "sluice/v1/checkpoint_store.grpc.pb.h"
#include "worker/rpc/call_gate.h"
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
  // Connects nowhere yet.
  explicit StoreClient(Options options);

  // The part once it is durable there. Rank r's go to shard r modulo the number of shards. Tries
  // until the server answers or Cancel. RESOURCE_EXHAUSTED: it could not be written there.
  absl::StatusOr<protocol::CheckpointPart> Put(uint64_t step, const std::string& name,
                                               absl::string_view bytes);
  // From the server that has it. Tries for `timeout` to reach it. DATA_LOSS: it is damaged or lost.
  // A RollbackError: the server is gone, or says that this worker's term is over.
  absl::StatusOr<std::string> Get(const protocol::CheckpointPart& part, absl::Duration timeout);
  // The shard's parts are with another process from now on: whoever asks the one before asks there
  // with its next try.
  void GoTo(uint32_t shard, const std::string& address, uint64_t server_incarnation);
  // Ends the calls that are under way, and every later one, with CANCELLED.
  void Cancel() { gate_.Close(); }

 private:
  // To the process with this number.
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
  CallGate gate_;
  mutable Mutex mutex_;
  std::vector<ShardSeat> shards_ ABSL_GUARDED_BY(mutex_);  // Where they are now.
};

}  // namespace sluice::worker
