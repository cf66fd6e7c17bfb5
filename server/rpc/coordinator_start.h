// SPDX-License-Identifier: Apache-2.0
// How the coordinator of a server is started: its options follow from the job file and from the run
// that the server continues.
#pragma once

#include "server/coordinator/coordinator_options.h"
#include "server/rpc/run_folder.h"
#include "server/rpc/server.h"

namespace sluice::server {

// `folder` is null if the job has no checkpoints.
CoordinatorOptions CoordinatorOptionsOf(const ServerOptions& options, const RunFolder* folder);

}  // namespace sluice::server
