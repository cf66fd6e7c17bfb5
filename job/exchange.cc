#include "job/exchange.h"

#include "absl/types/span.h"
#include "base/crc32c.h"
#include "compress/frame.h"

namespace sluice {

uint32_t BundleChecksum(const std::vector<std::string>& frames) {
  uint32_t crc = 0;
  for (const std::string& frame : frames) {
    const auto* bytes = reinterpret_cast<const std::byte*>(frame.data());
    const uint32_t checksum =
        frame.size() < kFrameHeaderSize ? 0 : FrameChecksum({bytes, frame.size()});
    crc = ExtendCrc32c(
        crc, absl::MakeSpan(reinterpret_cast<const std::byte*>(&checksum), sizeof(checksum)));
  }
  return crc;
}

}  // namespace sluice
