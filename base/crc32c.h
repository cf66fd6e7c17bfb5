// SPDX-License-Identifier: Apache-2.0
// CRC-32C (Castagnoli, RFC 3720), the checksum of every frame and record.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace sluice {

// Continues the checksum `crc` over `bytes`. A checksum starts with 0. Extend(Extend(0, a), b) ==
// Extend(0, a + b).
uint32_t ExtendCrc32c(uint32_t crc, absl::Span<const std::byte> bytes);
inline uint32_t ExtendCrc32c(uint32_t crc, absl::string_view bytes) {
  return ExtendCrc32c(crc, {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()});
}

inline uint32_t Crc32c(absl::Span<const std::byte> bytes) { return ExtendCrc32c(0, bytes); }
inline uint32_t Crc32c(absl::string_view bytes) { return ExtendCrc32c(0, bytes); }

}  // namespace sluice
