// Snapshots as bytes: versioned, little-endian, each section with a checksum of its own. Normative
// description: docs/checkpoints.md. Reading trusts nothing: any bytes give a snapshot or an error.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "protocol/snapshot.h"

namespace sluice::protocol {

std::string FormatShardSnapshot(const ShardSnapshot& snapshot);
std::string FormatWorkerSnapshot(const WorkerSnapshot& snapshot);

// DATA_LOSS: damaged, and where. FAILED_PRECONDITION: of a newer version. INVALID_ARGUMENT: not a
// snapshot of this kind.
absl::StatusOr<ShardSnapshot> ParseShardSnapshot(absl::string_view bytes);
absl::StatusOr<WorkerSnapshot> ParseWorkerSnapshot(absl::string_view bytes);

}  // namespace sluice::protocol
