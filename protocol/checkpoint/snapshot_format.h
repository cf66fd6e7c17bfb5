// SPDX-License-Identifier: Apache-2.0
// Conversion of snapshots to and from bytes. The format is versioned and little-endian and has one
// checksum per section. docs/checkpoints.md is the normative description. Parsing accepts any input
// and returns a snapshot or an error.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "protocol/snapshot.h"

namespace sluice::protocol {

std::string FormatShardSnapshot(const ShardSnapshot& snapshot);
std::string FormatWorkerSnapshot(const WorkerSnapshot& snapshot);

// These fail with DATA_LOSS if the bytes are damaged, FAILED_PRECONDITION if the version is newer
// than this program, and INVALID_ARGUMENT if the bytes are not a snapshot of this kind. The message
// names the place of the damage.
absl::StatusOr<ShardSnapshot> ParseShardSnapshot(absl::string_view bytes);
absl::StatusOr<WorkerSnapshot> ParseWorkerSnapshot(absl::string_view bytes);

}  // namespace sluice::protocol
