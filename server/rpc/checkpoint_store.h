// SPDX-License-Identifier: Apache-2.0
// CheckpointStore: keeps workers' parts of job checkpoints on this server's disk, for jobs with
// `checkpoint.store: shards`. Calls block gRPC threads. The number of concurrent calls is bounded,
// and so is the time that a call waits for its client. Each call holds one message in memory.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/log.h"
#include "base/mutex.h"
#include "net/grpc/transport.h"
#include "protocol/exchange.h"
#include "protocol/snapshot.h"
#include "server/rpc/client_patience.h"
#include "server/rpc/shard_host.h"
#include "sluice/v1/checkpoint_store.grpc.pb.h"

namespace sluice::server {

// Returns whether `sender` may write `part` into a store of parts of at most `part_bytes_max`
// bytes. Does not check that the sender holds its rank.
absl::Status CheckPut(const protocol::Sender& sender, const protocol::CheckpointPart& part,
                      uint64_t part_bytes_max);

class CheckpointStore final : public v1::CheckpointStore::Service {
 public:
  struct Options {
    uint32_t shard = 0;
    // The job's checkpoint.dir. It has this server's folder of parts, and those of the servers that
    // this one stands in for.
    std::string dir;
    uint64_t part_bytes_max = uint64_t{64} << 30;
    size_t transfers_max = 16;         // Limit of concurrent transfers. Further callers must retry.
    size_t transfers_of_rank_max = 2;  // Limit of a rank's concurrent writes, and of its reads.
    size_t unnamed_max = 32;  // Limit of concurrent calls that have not named their part yet.
    // Timeouts for the message that names the part, and for each later message in either direction.
    absl::Duration first_patience = absl::Seconds(10);
    absl::Duration patience = absl::Seconds(30);
    // Called with ServerContext::peer() for each call that the job allows, because interceptors of
    // blocking services do not know the peer.
    std::function<void(const std::string& peer)> on_member{};
  };
  // `host` provides the holder of each rank.
  CheckpointStore(Options options, const ShardHost* host,
                  std::shared_ptr<const net::Transport> transport, Logger logger);

  grpc::Status GetPart(grpc::ServerContext* context, const v1::GetPartRequest* request,
                       grpc::ServerWriter<v1::GetPartReply>* writer) override;

 private:
  using PutStream = grpc::ServerReaderWriter<v1::PutPartReply, v1::PutPartRequest>;

  grpc::Status Put(grpc::ServerContext* context, PutStream* stream);
  grpc::Status LetIn(const grpc::ServerContext& context, net::Method method) const;

  class Transfer;  // Counts a transfer against transfers_max.
  class Unnamed;   // Counts a call against unnamed_max.

  absl::Status CheckNow(const protocol::Sender& sender, const protocol::CheckpointPart& part) const;
  bool ReadFirst(grpc::ServerContext* context, PutStream* stream, v1::PutPartRequest* first);
  absl::StatusOr<protocol::CheckpointPart> Receive(const protocol::Sender& sender,
                                                   protocol::CheckpointPart part,
                                                   grpc::ServerContext* context, PutStream* stream);
  absl::Status Send(const protocol::CheckpointPart& part, grpc::ServerContext* context,
                    grpc::ServerWriter<v1::GetPartReply>* writer);

  const Options options_;
  const std::string folder_;  // Folder of this server's parts.
  const ShardHost* const host_;
  const std::shared_ptr<const net::Transport> transport_;
  const Logger logger_;
  Mutex mutex_;
  std::set<std::string> under_way_ ABSL_GUARDED_BY(mutex_);  // Paths that are being written.
  size_t transfers_ ABSL_GUARDED_BY(mutex_) = 0;
  // Number of transfers, by rank and by whether they read.
  std::map<std::pair<uint32_t, bool>, size_t> of_rank_ ABSL_GUARDED_BY(mutex_);
  size_t unnamed_ ABSL_GUARDED_BY(mutex_) = 0;
  ClientPatience calls_;
};

}  // namespace sluice::server
