// SPDX-License-Identifier: Apache-2.0
// MakeRemoteClient, MakeRelayClient: a JobClient over gRPC. gRPC itself reads `no_grpc_proxy`, or
// else `no_proxy`, from the environment.
#pragma once

#include <memory>

#include "worker/core/job_client.h"
#include "worker/core/relay_session.h"
#include "worker/rpc/remote_session_options.h"

namespace sluice::worker {

// The clients do not connect before Join.
std::unique_ptr<JobClient> MakeRemoteClient(RemoteSessionOptions options);
std::unique_ptr<RelayClient> MakeRelayClient(RemoteSessionOptions options);

}  // namespace sluice::worker
