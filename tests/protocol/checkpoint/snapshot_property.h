// SPDX-License-Identifier: Apache-2.0
// The property that must hold for any bytes that are read as a snapshot: they give either an error
// or a snapshot that serializes to the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "protocol/checkpoint/snapshot_format.h"

namespace sluice::protocol {

inline absl::Span<const std::byte> SnapshotBytes(absl::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// Writes the correct checksum into the header.
inline void SealHeader(std::string* file) {
  const uint32_t checksum = Crc32c(SnapshotBytes(*file).first(24));
  std::memcpy(file->data() + 24, &checksum, sizeof(checksum));
}

// Gives the file a matching header of version 1, and matching checksums of all sections that can be
// found from the sizes, because an attacker can also compute checksums. Does nothing if the file is
// shorter than a header.
inline void SealSnapshot(std::string* file) {
  if (file->size() < 28) return;
  const uint16_t version = 1;
  const uint64_t size = file->size();
  std::memcpy(file->data(), "SLUICECP", 8);
  std::memcpy(file->data() + 8, &version, sizeof(version));
  std::memcpy(file->data() + 16, &size, sizeof(size));
  SealHeader(file);
  size_t at = 28;
  while (file->size() - at >= 16) {
    uint64_t payload = 0;
    std::memcpy(&payload, file->data() + at + 8, sizeof(payload));
    if (payload > file->size() - at - 16) return;
    const absl::Span<const std::byte> bytes = SnapshotBytes(*file);
    const uint32_t checksum =
        ExtendCrc32c(Crc32c(bytes.subspan(at, 4)), bytes.subspan(at + 8, 8 + payload));
    std::memcpy(file->data() + at + 4, &checksum, sizeof(checksum));
    at += 16 + payload;
  }
}

inline void CheckSnapshotStatus(const absl::Status& status) {
  Check(absl::IsDataLoss(status) || absl::IsFailedPrecondition(status) ||
            absl::IsInvalidArgument(status),
        "errors are of the kinds that the header promises");
  Check(!status.message().empty(), "errors say something");
}

// Returns true if the bytes were read as a snapshot of either kind.
inline bool CheckAnySnapshot(absl::string_view bytes) {
  const absl::StatusOr<ShardSnapshot> shard = ParseShardSnapshot(bytes);
  if (!shard.ok()) CheckSnapshotStatus(shard.status());
  Check(!shard.ok() || FormatShardSnapshot(*shard) == bytes, "a shard's is written as it was read");
  const absl::StatusOr<WorkerSnapshot> worker = ParseWorkerSnapshot(bytes);
  if (!worker.ok()) CheckSnapshotStatus(worker.status());
  Check(!worker.ok() || FormatWorkerSnapshot(*worker) == bytes,
        "a worker's is written as it was read");
  Check(!shard.ok() || !worker.ok(), "nothing is both");
  return shard.ok() || worker.ok();
}

}  // namespace sluice::protocol
