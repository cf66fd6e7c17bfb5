// What must hold for any bytes that claim to be a frame.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "compress/codec_table.h"
#include "compress/frame.h"
#include "tests/fuzz/fuzz_input.h"

namespace sluice {

// Reads `bytes` as a frame of `count` elements, as they are and with a checksum that fits: either
// it is refused and the sum untouched, or finite values have been added. A valid frame can only be
// refused by the decoder if its format takes more than one frame to decode. Returns true if one was
// accepted.
inline bool CheckFrameProperty(std::vector<std::byte> bytes, size_t count) {
  bool accepted = false;
  for (const bool sealed : {false, true}) {
    if (sealed) SealFrame(&bytes);
    // Of their own size, so that the address sanitizer sees a read past the end.
    const std::vector<std::byte> frame(bytes.begin(), bytes.end());
    std::vector<float> sum(count, 0.0f);
    const bool valid = compress::ValidateFrame(frame, count).ok();
    const bool alone = valid && compress::FrameFormat(frame).decode_add != nullptr;
    Check(compress::DecodeAddFrame(frame, absl::MakeSpan(sum)).ok() == alone, "validation decides");
    for (const float x : sum) {
      Check(std::isfinite(x), "nothing but finite values is decoded");
      Check(alone || x == 0, "a refused frame leaves the sum");
    }
    accepted = accepted || valid;
  }
  return accepted;
}

}  // namespace sluice
