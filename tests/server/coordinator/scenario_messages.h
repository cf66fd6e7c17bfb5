// SPDX-License-Identifier: Apache-2.0
// The messages of workers and shards that a scenario's commands describe (scenario_run.h).
#pragma once

#include <cstdint>

#include "protocol/membership.h"
#include "protocol/shard_control.h"
#include "protocol/snapshot.h"
#include "server/coordinator/coordinator_options.h"
#include "tests/server/coordinator/scenario_text.h"

namespace sluice::server {

// Returns `options` with the changes that the command names.
CoordinatorOptions OptionsFrom(const ScenarioCommand& command, CoordinatorOptions options);

protocol::WorkerJoin JoinFrom(const ScenarioCommand& command, uint32_t rank);
protocol::ShardArrival ArrivalFrom(const ScenarioCommand& command, uint32_t shard);

// Returns a heartbeat. `last` keeps what later heartbeats of the worker repeat.
protocol::WorkerHeartbeat HeartbeatFrom(const ScenarioCommand& command,
                                        protocol::WorkerHeartbeat* last);

// Returns a part of a checkpoint. Its name is empty unless the command has one.
protocol::CheckpointPart PartFrom(const ScenarioCommand& command, uint32_t term);

}  // namespace sluice::server
