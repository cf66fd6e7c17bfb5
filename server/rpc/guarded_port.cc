// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/guarded_port.h"

#include <grpcpp/support/server_interceptor.h>

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "net/grpc/host_port.h"

namespace sluice::server {
namespace {

constexpr int kTakers = 4;

// Ends a call with `status`, whatever the service answers. Used for gRPC's own services; Sluice's
// services check the caller before they act.
class Refuse final : public grpc::experimental::Interceptor {
 public:
  Refuse(grpc::Status status, bool is_health) : status_(std::move(status)), is_health_(is_health) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    using Point = grpc::experimental::InterceptionHookPoints;
    if (is_health_ && methods->QueryInterceptionHookPoint(Point::PRE_SEND_MESSAGE)) {
      methods->ModifySendMessage(&nothing_);
    }
    if (methods->QueryInterceptionHookPoint(Point::PRE_SEND_STATUS)) {
      methods->ModifySendStatus(status_);
    }
    methods->Proceed();
  }

 private:
  const grpc::Status status_;
  const bool is_health_;
  // An empty message. Messages of the health service are byte buffers of this kind.
  const grpc::Slice no_bytes_{"", 0};
  const grpc::ByteBuffer nothing_{&no_bytes_, 1};
};

// Creates an interceptor for each refused call. gRPC requests one when a call begins. Allowed calls
// get no interceptor, so they have no overhead.
class Watch final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  Watch(ConnectionAcceptor* acceptor, std::shared_ptr<const net::Transport> transport)
      : acceptor_(acceptor), transport_(std::move(transport)) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    grpc::ServerContextBase* const call = info->server_context();
    const absl::string_view method = info->method();
    const grpc::Status may = transport_->MayCall(*call, net::FindMethod(method));
    if (may.ok()) {
      const std::string address = net::AddressOfPeer(call->peer());
      if (!address.empty()) acceptor_->Admit(address);
      return nullptr;
    }
    // Answers of the reflection service would disclose the methods.
    if (absl::StartsWith(method, "/grpc.reflection.")) call->TryCancel();
    return new Refuse(may, absl::StartsWith(method, "/grpc.health."));  // gRPC owns the object.
  }

 private:
  ConnectionAcceptor* const acceptor_;
  const std::shared_ptr<const net::Transport> transport_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GuardedPort>> GuardedPort::Open(const std::string& listen,
                                                               const ConnectionLimits& limits,
                                                               std::chrono::milliseconds unheard,
                                                               const Logger& logger) {
  absl::StatusOr<std::vector<net::Listener>> listeners = net::ListenOnAll(listen);
  if (!listeners.ok()) return listeners.status();
  return std::unique_ptr<GuardedPort>(
      new GuardedPort(*std::move(listeners), limits, unheard, logger));
}

void GuardedPort::AddTo(grpc::ServerBuilder* builder,
                        const std::shared_ptr<const net::Transport>& transport) {
  const std::shared_ptr<grpc::ServerCredentials> credentials = transport->ToListen();
  using Experimental = grpc::ServerBuilder::experimental_type;
  for (int i = 0; i < kTakers; ++i) {
    takers_.push_back(builder->experimental().AddExternalConnectionAcceptor(
        Experimental::ExternalConnectionType::FROM_FD, credentials));
  }
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> watches;
  watches.push_back(std::make_unique<Watch>(&acceptor_, transport));
  builder->experimental().SetInterceptorCreators(std::move(watches));
}

void GuardedPort::Admit(const std::string& peer) {
  const std::string address = net::AddressOfPeer(peer);
  if (!address.empty()) acceptor_.Admit(address);
}

void GuardedPort::Start() {
  std::vector<ConnectionAcceptor::GiveAway> functions;
  for (const auto& taker : takers_) {
    functions.emplace_back([to = taker.get()](int fd) {
      grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
      connection.fd = fd;
      to->HandleNewConnection(&connection);
    });
  }
  acceptor_.Start(std::move(functions));
}

}  // namespace sluice::server
