// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/server_port.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net/listener.h"

namespace sluice::cli {
namespace {

constexpr int kMessageBytesMax = 1 << 20;
constexpr size_t kMemoryMax = 64 << 20;
constexpr int kThreadsMax = 16;
constexpr int kCallsPerConnection = 8;  // A connection may have this many calls at a time.
constexpr int kHandshakeMs = 5000;

}  // namespace

absl::StatusOr<std::unique_ptr<ServerPort>> ServerPort::Open(const std::string& listen,
                                                             const net::Transport& transport,
                                                             grpc::Service* service) {
  // gRPC gives no reason if it cannot listen.
  absl::StatusOr<std::vector<net::Listener>> listeners = net::ListenOnAll(listen);
  if (!listeners.ok()) return listeners.status();
  const std::string address =
      absl::StrCat(listen.substr(0, listen.rfind(':') + 1), listeners->front().port);
  net::CloseAll(&*listeners);
  int port = 0;
  grpc::ResourceQuota quota("doctor");
  quota.Resize(kMemoryMax).SetMaxThreads(kThreadsMax);
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, transport.ToListen(), &port)
      .RegisterService(service)
      .SetResourceQuota(quota)
      .SetMaxReceiveMessageSize(kMessageBytesMax)
      .AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0)
      .AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kCallsPerConnection)
      .AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    return absl::UnavailableError(absl::StrCat("gRPC cannot listen on ", address));
  }
  return std::unique_ptr<ServerPort>(new ServerPort(std::move(server), address, port));
}

ServerPort::~ServerPort() {
  server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  server_->Wait();
}

}  // namespace sluice::cli
