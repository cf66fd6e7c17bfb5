// SPDX-License-Identifier: Apache-2.0
// Properties that must hold for any bytes that are read as a frame.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "compress/codec_table.h"
#include "compress/frame.h"
#include "tests/fuzz/fuzz_input.h"

namespace sluice {

// Reads `bytes` as a frame of `count` elements, once unchanged and once with a valid checksum.
// Either the frame must be refused and the sum unchanged, or finite values must be added. Decoding
// may refuse a valid frame only if the frame's format cannot be decoded alone. Returns true if a
// frame was accepted.
inline bool CheckFrameProperty(std::vector<std::byte> bytes, size_t count) {
  bool accepted = false;
  for (const bool sealed : {false, true}) {
    if (sealed) SealFrame(&bytes);
    // The copy has the exact size, so that the address sanitizer detects reads after the end.
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
