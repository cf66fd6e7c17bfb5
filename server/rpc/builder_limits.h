// SPDX-License-Identifier: Apache-2.0
// Limits and settings that all gRPC servers of Sluice share.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstddef>

namespace sluice::server {

// Interval of keepalive pings, and the timeout for an answer to a ping.
inline constexpr std::chrono::milliseconds kKeepalive{10000};

// Limits the messages, calls and pings of each connection.
void LimitCalls(grpc::ServerBuilder* builder, size_t message_bytes_max);

// Removes gRPC's reflection from a server. Once any code in the process has enabled reflection, it
// adds itself to every server.
void RemoveReflection(grpc::ServerBuilder* builder);

}  // namespace sluice::server
