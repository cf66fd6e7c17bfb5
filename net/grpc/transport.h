// Transport: how one process secures its connections: made once from its files, which are read
// again when they change, and shared by all that connect or listen. Header without gRPC, so that
// programs need not know it. Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/log.h"
#include "net/grpc/transport_options.h"

namespace grpc {
class Channel;
class Server;
class ServerContextBase;
class ServerCredentials;
class Status;
}  // namespace grpc

namespace sluice::net {

inline constexpr int kMessageBytesMax = 64 << 20;  // One gRPC message that a client takes or sends.

class Transport {
 public:
  virtual ~Transport() = default;

  // Plaintext without a token.
  static std::shared_ptr<const Transport> Plain();
  // INVALID_ARGUMENT: which file is wrong, and how.
  static absl::StatusOr<std::shared_ptr<const Transport>> Open(const TransportOptions& options,
                                                               const Logger& logger);

  // A channel for as long as the process lives, with a connection that no other shares. It tries
  // again soon, and notices when the other machine vanishes; gRPC's retries are off: repeating is
  // ours. `address` is HOST:PORT; with TLS the server's certificate must name HOST.
  virtual std::shared_ptr<grpc::Channel> Dial(const std::string& address) const = 0;
  // A channel for a question or two; goes round any proxy.
  virtual std::shared_ptr<grpc::Channel> DialForQuestions(const std::string& address) const = 0;

  // To listen with. Whether a call has the token is for its service to ask: MayCall.
  virtual std::shared_ptr<grpc::ServerCredentials> ToListen() const = 0;
  // To a server in this process, which asks MayCall of this object.
  virtual std::shared_ptr<grpc::Channel> DialInProcess(grpc::Server* server) const = 0;

  // UNAUTHENTICATED: `call` has no right token, and does not come through DialInProcess.
  // gRPC's own place for this (AuthMetadataProcessor) ends the process when a stranger sends a
  // header grpclb_client_stats (gRPC before 1.53).
  virtual grpc::Status MayCall(const grpc::ServerContextBase& call) const = 0;
  // INVALID_ARGUMENT: a server may not listen there: files are missing, or anybody could join,
  // which must be asked for in so many words (`allow_anonymous`).
  virtual absl::Status MayListen(absl::string_view address, bool allow_anonymous) const = 0;

  // What a user should be told of a connection to or from `address`; empty: nothing.
  virtual std::string WarningFor(absl::string_view address) const = 0;
  // The same of a server that is to listen there: what hosts that reach it can do without any
  // credential.
  virtual std::string ListenWarning(absl::string_view address) const = 0;
  // gRPC's reason for a call that failed, for a person: what is the matter, and what to look at.
  virtual std::string Explain(absl::string_view reason) const = 0;
};

}  // namespace sluice::net
