// SPDX-License-Identifier: Apache-2.0
// Fuzzer for instruction sets: every set of this machine must give the same frame, residual and
// decoded values. Input: as in round_trip_fuzz.cc.

#include "compress/simd/targets.h"
#include "tests/compress/one_chunk.h"
#include "tests/fuzz/fuzz_input.h"

namespace sluice {
namespace {

constexpr size_t kCountMax = 2048;

void CheckInstructionSets(FuzzInput input) {
  const std::optional<compress::CodecSpec> spec = input.Spec();
  if (!spec.has_value()) return;
  const compress::LoneCodec codec(compress::ToString(*spec));
  const compress::LoneKeys keys{.own = input.Byte(), .shared = input.Byte()};
  const size_t count = input.Short() % (kCountMax + 1);
  const std::vector<float> gradient = input.Floats(count);
  const std::vector<float> before = input.Floats(count);
  std::vector<std::byte> first;
  std::vector<float> first_residual, first_decoded;
  bool first_ok = false;
  const std::vector<std::string> targets = compress::SimdTargets();
  for (size_t target = 0; target < targets.size(); ++target) {
    compress::ForceSimdTarget(targets[target]);
    std::vector<float> residual = before;
    std::vector<std::byte> frame;
    const bool ok = codec.Encode(gradient, absl::MakeSpan(residual), &frame, 0, nullptr, keys).ok();
    const std::vector<float> decoded = ok ? codec.Decoded(frame, count) : std::vector<float>();
    if (target == 0) {
      first = frame;
      first_residual = residual;
      first_decoded = decoded;
      first_ok = ok;
    }
    Check(ok == first_ok, "every instruction set takes the same values");
    Check(frame == first, "every instruction set makes the same frame");
    Check(residual == first_residual, "every instruction set leaves the same residual");
    Check(decoded == first_decoded, "every instruction set decodes the same");
  }
  compress::ForceSimdTarget("");
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::CheckInstructionSets({data, size});
  return 0;
}
