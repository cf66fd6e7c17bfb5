// What must hold for any bytes that claim to be a frame.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/crc32c.h"
#include "compress/codec_table.h"
#include "compress/frame.h"

namespace sluice {

// Reads `bytes` as a frame of `count` elements, as they are and with a checksum that fits: either
// it is refused and the sum untouched, or finite values have been added. Returns true if one was
// accepted.
inline bool CheckFrameProperty(std::vector<std::byte> bytes, size_t count) {
  bool accepted = false;
  for (const bool sealed : {false, true}) {
    if (sealed && bytes.size() >= kFrameHeaderSize) {
      const auto payload_size = static_cast<uint32_t>(bytes.size() - kFrameHeaderSize);
      std::memcpy(bytes.data(), "SL\1", 3);
      std::memcpy(bytes.data() + 8, &payload_size, sizeof(payload_size));
      std::memset(bytes.data() + 12, 0, 4);
      const absl::Span<const std::byte> frame = bytes;
      const uint32_t checksum =
          ExtendCrc32c(Crc32c(frame.first(16)), frame.subspan(kFrameHeaderSize));
      std::memcpy(bytes.data() + 16, &checksum, sizeof(checksum));
    }
    std::vector<float> sum(count, 0.0f);
    const bool valid = ValidateFrame(bytes, count).ok();
    Check(DecodeAddFrame(bytes, absl::MakeSpan(sum)).ok() == valid, "validation decides");
    for (const float x : sum) {
      Check(std::isfinite(x), "nothing but finite values is decoded");
      Check(valid || x == 0, "a refused frame leaves the sum");
    }
    accepted = accepted || valid;
  }
  return accepted;
}

}  // namespace sluice
