// RemoteSession: a Session over gRPC. It has one Exchange stream per shard, a separate connection
// for heartbeats, and one encoder thread. It reopens broken streams and repeats unresolved
// requests. gRPC itself reads `grpc_proxy` and `no_grpc_proxy` from the environment.
#pragma once

#include <memory>

#include "worker/core/session.h"
#include "worker/rpc/remote_session_options.h"

namespace sluice::worker {

class RelaySession;

// Does not connect before Join.
std::unique_ptr<Session> MakeRemoteSession(RemoteSessionOptions options);
// The same session, with the methods that only a relay needs (worker/core/relay_session.h).
std::unique_ptr<RelaySession> MakeRelaySession(RemoteSessionOptions options);

}  // namespace sluice::worker
