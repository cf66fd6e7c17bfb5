// SPDX-License-Identifier: Apache-2.0
// Transport: secures a process's connections. A process creates one Transport, which all its
// clients and listeners share. The Transport reads its files again when they change. This header
// does not include gRPC, so programs do not need gRPC's headers. Thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/log.h"
#include "net/grpc/role.h"
#include "net/grpc/transport_options.h"

namespace grpc {
class Channel;
class Server;
class ServerContextBase;
class ServerCredentials;
class Status;
}  // namespace grpc

namespace sluice::net {

// Size limit of one gRPC message that a client receives or sends.
inline constexpr int kMessageBytesMax = 64 << 20;

class Transport {
 public:
  virtual ~Transport() = default;

  // Returns a transport with plaintext connections and without a token.
  static std::shared_ptr<const Transport> Plain();
  // Fails with INVALID_ARGUMENT if a file is unusable; the message names the file and the problem.
  static absl::StatusOr<std::shared_ptr<const Transport>> Open(const TransportOptions& options,
                                                               const Logger& logger);

  // Returns a channel with a connection of its own, for the whole life of the process. The channel
  // reconnects soon after a failure and notices when the other machine vanishes. gRPC's retries are
  // off, because Sluice repeats requests itself. `address` is HOST:PORT. With TLS, the server's
  // certificate must contain HOST. Only TransportOptions::grpc_proxy names a proxy; $http_proxy has
  // no effect.
  virtual std::shared_ptr<grpc::Channel> Dial(const std::string& address) const = 0;
  // Returns a channel for a few requests. The channel bypasses any proxy.
  virtual std::shared_ptr<grpc::Channel> DialForQuestions(const std::string& address) const = 0;

  // Returns credentials for a listener. They do not check the token; each service checks it with
  // MayCall.
  virtual std::shared_ptr<grpc::ServerCredentials> ToListen() const = 0;
  // Returns a channel to a server in this process. The server's services must call this object's
  // MayCall.
  virtual std::shared_ptr<grpc::Channel> DialInProcess(grpc::Server* server) const = 0;

  // Returns UNAUTHENTICATED if `call` has no valid token and does not come through DialInProcess.
  // With a role file, returns UNAUTHENTICATED if the client has no role, and PERMISSION_DENIED if
  // none of its roles may call `method`. Without a method, any role is enough.
  // gRPC's own hook for this check (AuthMetadataProcessor) is not used: before gRPC 1.53, it
  // terminates the process if a client sends the header grpclb_client_stats.
  virtual grpc::Status MayCall(const grpc::ServerContextBase& call,
                               std::optional<Method> method) const = 0;
  // Fails with INVALID_ARGUMENT if a server must not listen on `address`, because files are missing
  // or because any host could join and `allow_anonymous` is false.
  virtual absl::Status MayListen(absl::string_view address, bool allow_anonymous) const = 0;

  // Returns a warning for the user about a connection to or from `address`, or an empty string
  // if there is nothing to warn about.
  virtual std::string WarningFor(absl::string_view address) const = 0;
  // Returns a warning about a server that will listen on `address`: what hosts can do there without
  // credentials. Returns an empty string if there is nothing to warn about.
  virtual std::string ListenWarning(absl::string_view address) const = 0;
  // Turns gRPC's reason for a failed call into an explanation for the user: the problem, and what
  // to check.
  virtual std::string Explain(absl::string_view reason) const = 0;
};

}  // namespace sluice::net
