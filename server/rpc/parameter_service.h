// SPDX-License-Identifier: Apache-2.0
// ParameterService: the gRPC service of a shard. It decodes requests, calls the host, and encodes
// answers. Exchange uses raw bytes, so that a result is serialized only once for all ranks.
#pragma once

#include <memory>
#include <utility>

#include "net/grpc/transport.h"
#include "server/rpc/shard_host.h"
#include "sluice/v1/parameter_shard.grpc.pb.h"

namespace sluice::server {

class ParameterService final
    : public v1::ParameterShard::WithRawCallbackMethod_Exchange<
          v1::ParameterShard::WithCallbackMethod_GetUsage<v1::ParameterShard::Service>> {
 public:
  struct Limits {
    size_t answers_max = 0;        // Maximum number of answers that wait for one stream.
    size_t message_bytes_max = 0;  // A larger request ends its stream.
  };
  ParameterService(ShardHost* host, const Limits& limits,
                   std::shared_ptr<const net::Transport> transport)
      : host_(host), limits_(limits), transport_(std::move(transport)) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Exchange(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* GetUsage(grpc::CallbackServerContext* context,
                                     const v1::GetUsageRequest* request,
                                     v1::GetUsageReply* reply) override;

 private:
  ShardHost* const host_;
  const Limits limits_;
  const std::shared_ptr<const net::Transport> transport_;
};

}  // namespace sluice::server
