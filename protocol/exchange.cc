// SPDX-License-Identifier: Apache-2.0
#include "protocol/exchange.h"

#include "absl/types/span.h"
#include "base/crc32c.h"
#include "compress/frame.h"

namespace sluice::protocol {

uint32_t BundleChecksum(const std::vector<std::string>& frames) {
  uint32_t crc = 0;
  for (const std::string& chunk : frames) {
    absl::Span<const std::byte> left = FrameBytes(chunk);
    do {
      const absl::Span<const std::byte> frame = compress::PopFrame(&left);
      const uint32_t checksum =
          frame.size() < compress::kFrameHeaderSize ? 0 : compress::FrameChecksum(frame);
      crc = ExtendCrc32c(
          crc, absl::MakeSpan(reinterpret_cast<const std::byte*>(&checksum), sizeof(checksum)));
    } while (!left.empty());
  }
  return crc;
}

uint32_t BundleChecksum(const ExchangeRequest& exchange) {
  if (!exchange.keys_only) return BundleChecksum(exchange.frames);
  uint32_t crc = 0;
  for (const uint32_t checksum : exchange.checksums) {
    crc = ExtendCrc32c(
        crc, absl::MakeSpan(reinterpret_cast<const std::byte*>(&checksum), sizeof(checksum)));
  }
  return crc;
}

uint64_t TotalBytes(const std::vector<std::string>& frames) {
  uint64_t bytes = 0;
  for (const std::string& frame : frames) bytes += frame.size();
  return bytes;
}

}  // namespace sluice::protocol
