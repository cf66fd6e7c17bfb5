// SPDX-License-Identifier: Apache-2.0
// Fuzzer for decoding: any bytes must either be refused or decode to finite values, and no byte
// after their end may be read. Input: element count (2 bytes), a frame.

#include "tests/fuzz/frame_property.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::FuzzInput input(data, size);
  const size_t count = input.Short();
  const absl::Span<const std::byte> frame = input.Rest();
  sluice::CheckFrameProperty({frame.begin(), frame.end()}, count);
  return 0;
}
