// ParameterService: the gRPC face of a shard: decodes, calls the host, encodes. Exchange works on
// raw bytes, so that a result is serialized once for all ranks.
#pragma once

#include <memory>
#include <utility>

#include "net/grpc/transport.h"
#include "server/rpc/shard_host.h"
#include "sluice/v1/parameter_shard.grpc.pb.h"

namespace sluice::server {

class ParameterService final
    : public v1::ParameterShard::WithRawCallbackMethod_Exchange<
          v1::ParameterShard::WithCallbackMethod_Pull<
              v1::ParameterShard::WithCallbackMethod_GetUsage<v1::ParameterShard::Service>>> {
 public:
  struct Limits {
    size_t answers_max = 0;        // So many may wait for one stream to read them.
    size_t message_bytes_max = 0;  // A larger request ends its stream.
  };
  ParameterService(ShardHost* host, const Limits& limits,
                   std::shared_ptr<const net::Transport> transport)
      : host_(host), limits_(limits), transport_(std::move(transport)) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Exchange(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* Pull(grpc::CallbackServerContext* context,
                                 const v1::PullRequest* request, v1::PullReply* reply) override;
  grpc::ServerUnaryReactor* GetUsage(grpc::CallbackServerContext* context,
                                     const v1::GetUsageRequest* request,
                                     v1::GetUsageReply* reply) override;

 private:
  grpc::Status DoPull(const v1::PullRequest& request, v1::PullReply* reply);

  ShardHost* const host_;
  const Limits limits_;
  const std::shared_ptr<const net::Transport> transport_;
};

}  // namespace sluice::server
