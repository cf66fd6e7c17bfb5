// libFuzzer target: the first two bytes are the element count, the rest a frame.

#include <cstdint>

#include "tests/fuzz/frame_property.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const size_t count = data[0] + size_t{data[1]} * 256;
  const auto* const bytes = reinterpret_cast<const std::byte*>(data);
  sluice::CheckFrameProperty({bytes + 2, bytes + size}, count);
  return 0;
}
