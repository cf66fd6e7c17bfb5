// SPDX-License-Identifier: Apache-2.0
// Patches with valid checksums, which a malicious writer can compute.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/crc32c.h"
#include "follow/patch.h"

namespace sluice::follow {

// Changes the checksums of the header and of all parts so that they match the bytes. Does nothing
// about bytes that are too few for a header or a part.
inline void SealPatch(std::vector<std::byte>* patch) {
  if (patch->size() < kPatchHeaderSize) return;
  const absl::Span<const std::byte> bytes = *patch;
  const size_t checksum_at = kPatchHeaderSize - sizeof(uint32_t);
  uint32_t table_bytes;
  std::memcpy(&table_bytes, bytes.data() + 12, sizeof(table_bytes));
  size_t at = kPatchHeaderSize + std::min<size_t>(table_bytes, bytes.size() - kPatchHeaderSize);
  const uint32_t header_checksum = ExtendCrc32c(
      Crc32c(bytes.first(checksum_at)), bytes.subspan(kPatchHeaderSize, at - kPatchHeaderSize));
  std::memcpy(patch->data() + checksum_at, &header_checksum, sizeof(header_checksum));
  while (bytes.size() - at >= kPartHeaderSize) {
    uint32_t word;
    std::memcpy(&word, bytes.data() + at, sizeof(word));
    const size_t payload_at = at + kPartHeaderSize;
    const size_t size = std::min<size_t>(word & 0xFFFFFF, bytes.size() - payload_at);
    const uint32_t checksum =
        ExtendCrc32c(Crc32c(bytes.subspan(at, sizeof(word))), bytes.subspan(payload_at, size));
    std::memcpy(patch->data() + at + sizeof(word), &checksum, sizeof(checksum));
    at = payload_at + size;
  }
}

}  // namespace sluice::follow
