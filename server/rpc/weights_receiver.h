// SPDX-License-Identifier: Apache-2.0
// WeightsReceiver: takes the weights that rank 0 uploads, in a job with followers whose workers
// keep the parameters, and gives them to the hub. Calls block gRPC threads; their number is
// bounded.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "compress/element_type.h"
#include "follow/rpc/weights_hub.h"
#include "net/grpc/transport.h"
#include "protocol/exchange.h"
#include "server/rpc/client_patience.h"
#include "server/rpc/shard_host.h"
#include "server/rpc/weights_source.h"
#include "sluice/v1/weights.grpc.pb.h"

namespace sluice::server {

class WeightsReceiver final : public v1::WeightsUpload::Service {
 public:
  struct Options {
    uint32_t shard = 0;
    // Limit of concurrent calls. Rank 0 has one for each type, and after a rollback or a broken
    // connection also those that have not ended yet.
    size_t calls_max = 16;
    // Timeout for a call's first message.
    absl::Duration first_patience = absl::Seconds(10);
    // Called with ServerContext::peer() for each call that the job allows, because interceptors of
    // blocking services do not know the peer.
    std::function<void(const std::string& peer)> on_member{};
  };
  // `host` knows the holder of rank 0, and `source` the size of the shard's weights.
  WeightsReceiver(Options options, follow::WeightsHub* hub, const WeightsSource* source,
                  const ShardHost* host, std::shared_ptr<const net::Transport> transport);

 private:
  using Stream = grpc::ServerReaderWriter<v1::UploadReply, v1::UploadRequest>;

  grpc::Status Upload(grpc::ServerContext* context, Stream* stream) override;
  absl::Status Receive(grpc::ServerContext* context, Stream* stream);
  // Reads updates until the call or its last follower has gone.
  absl::Status ReceiveUpdates(const protocol::Sender& sender, compress::ElementType type,
                              uint64_t update_bytes_max, Stream* stream);
  absl::Status CheckSender(const protocol::Sender& sender) const;

  const Options options_;
  follow::WeightsHub* const hub_;
  const WeightsSource* const source_;
  const ShardHost* const host_;
  const std::shared_ptr<const net::Transport> transport_;
  Mutex mutex_;
  size_t calls_ ABSL_GUARDED_BY(mutex_) = 0;
  ClientPatience patience_;
};

}  // namespace sluice::server
