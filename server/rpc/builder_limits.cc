// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/builder_limits.h"

#include <algorithm>
#include <memory>
#include <vector>

namespace sluice::server {
namespace {

// Limit per connection. A worker's connection carries its stream or a few calls, a shard agent's
// connection carries its stream and one call, and those of other clients carry a few calls.
constexpr int kConcurrentCallsMax = 64;
constexpr int kKeepaliveMs = static_cast<int>(kKeepalive.count());
constexpr int kReadBytesMax = 1 << 20;

class WithoutReflection final : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments* /*arguments*/) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    std::erase_if(*plugins, [](const std::unique_ptr<grpc::ServerBuilderPlugin>& plugin) {
      return plugin->name() == "proto_server_reflection";
    });
  }
};

}  // namespace

void LimitCalls(grpc::ServerBuilder* builder, size_t message_bytes_max) {
  // Sluice checks its own, lower limit and answers at once. gRPC's limit only bounds memory; its
  // answer takes seconds.
  builder->SetMaxReceiveMessageSize(static_cast<int>(2 * message_bytes_max));
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kConcurrentCallsMax);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMs);
  // Workers and shards may send a ping every second, with or without an open call.
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
  // Limits the bytes per read. gRPC reads a peer's pending bytes, by default up to 4 MiB, before it
  // ends the connection for too many pings. Each ping of 17 bytes uses twenty times as much memory.
  builder->AddChannelArgument(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kReadBytesMax);
}

void RemoveReflection(grpc::ServerBuilder* builder) {
  builder->SetOption(std::make_unique<WithoutReflection>());
}

}  // namespace sluice::server
