// SPDX-License-Identifier: Apache-2.0
// Fuzzer for adding: either all of several consecutive frames must be added to a sum, or none. The
// result must be the same as when they are added one by one. Input: element count (2 bytes), the
// initial sum (a byte with the number of floats, then the floats), then frames. Each frame has a
// flag (1 seals the frame), its size (2 bytes) and its bytes.

#include "base/check.h"
#include "tests/fuzz/fuzz_input.h"

namespace sluice {
namespace {

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void CheckSums(FuzzInput input) {
  const size_t count = input.Short();
  std::vector<float> before(count);
  const std::vector<float> some = input.Floats(input.Byte());
  for (size_t i = 0; i < std::min(some.size(), count); ++i) before[i] = some[i];

  std::vector<std::vector<std::byte>> frames;
  std::vector<std::byte> all;
  while (!input.empty() && frames.size() < 8) {
    const bool sealed = input.Byte() == 1;
    const absl::Span<const std::byte> bytes = input.Bytes(input.Short());
    std::vector<std::byte>& frame = frames.emplace_back(bytes.begin(), bytes.end());
    if (sealed) SealFrame(&frame);
    all.insert(all.end(), frame.begin(), frame.end());
  }
  const std::vector<std::byte> exact(all.begin(), all.end());
  std::vector<float> together = before;
  const bool added = compress::DecodeAddFrames(exact, absl::MakeSpan(together)).ok();
  Check(!added || compress::ValidateFrames(exact, count).ok(), "what is not valid is not added");
  if (!added) {
    Check(SameBits(together, before), "on error the sum is unchanged");
    return;
  }
  std::vector<float> one_by_one = before;
  for (absl::Span<const std::byte> rest = exact; !rest.empty();) {
    const absl::Span<const std::byte> frame = compress::PopFrame(&rest);
    Check(compress::DecodeAddFrame(frame, absl::MakeSpan(one_by_one)).ok(),
          "each of them is valid alone");
  }
  Check(SameBits(together, one_by_one), "together is one by one");
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::CheckSums({data, size});
  return 0;
}
