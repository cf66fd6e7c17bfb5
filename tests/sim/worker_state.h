// SPDX-License-Identifier: Apache-2.0
// Reads the state with which a simulated worker begins, by the same code as a real worker.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "protocol/exchange.h"
#include "protocol/membership.h"
#include "protocol/snapshot.h"
#include "tests/sim/sim_disk.h"
#include "tests/sim/survival.h"

namespace sluice {

// Returns UNAVAILABLE while a file cannot be read. `can_read` says whether the disk of a server can
// be read.
absl::StatusOr<protocol::WorkerSnapshot> ReadWorkerState(
    const SurvivalOptions& options, const protocol::JoinGrant& grant,
    const protocol::Sender& sender, SimDisk* disk,
    const std::function<bool(uint32_t server)>& can_read);

}  // namespace sluice
