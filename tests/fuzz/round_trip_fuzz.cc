// SPDX-License-Identifier: Apache-2.0
// Fuzzer for encoding: for any codec and any finite values, the frame must be within its size bound
// and valid, a second encoding must give the same frame, the residual must equal the part that was
// not decoded, and a contractive codec must not add energy. Input: a spec and its line break, keys
// (2 bytes), element count (2 bytes), floats for the gradient, then for the residual.

#include "tests/compress/one_chunk.h"
#include "tests/fuzz/fuzz_input.h"

namespace sluice {
namespace {

constexpr size_t kCountMax = 4096;

void CheckRoundTrip(FuzzInput input) {
  const std::optional<compress::CodecSpec> spec = input.Spec();
  if (!spec.has_value()) return;
  const compress::LoneCodec codec(compress::ToString(*spec));
  const compress::LoneKeys keys{.own = input.Byte(), .shared = input.Byte()};
  const size_t count = input.Short() % (kCountMax + 1);
  const std::vector<float> gradient = input.Floats(count);
  const std::vector<float> before = input.Floats(count);
  std::vector<float> residual = before, again = before;
  std::vector<std::byte> frame, second;
  const absl::Status status =
      codec.Encode(gradient, absl::MakeSpan(residual), &frame, 0, nullptr, keys);
  bool finite = true;
  for (size_t i = 0; i < count; ++i) finite = finite && std::isfinite(gradient[i] + before[i]);
  Check(status.ok() == finite, "what is finite, and only that, can be encoded");
  if (!finite) {
    Check(frame.empty() && residual == before, "on error nothing changed");
    return;
  }
  Check(codec.Encode(gradient, absl::MakeSpan(again), &second, 0, nullptr, keys).ok() &&
            frame == second && residual == again,
        "equal inputs give equal bytes");
  Check(frame.size() <= codec.MaxFrame(count), "frames are within their bound");
  const std::vector<float> decoded = codec.Decoded(frame, count);
  const compress::Aggregation aggregation = codec.entry().aggregation;
  double error = 0, energy = 0;
  for (size_t i = 0; i < count; ++i) {
    Check(std::isfinite(decoded[i]), "nothing but finite values is decoded");
    const float acc = gradient[i] + before[i];
    const double off = double{acc} - decoded[i];
    error += off * off;
    energy += double{acc} * acc;
    if (aggregation == compress::Aggregation::kVote ||
        aggregation == compress::Aggregation::kSketch)
      continue;
    Check(residual[i] == acc - decoded[i], "the residual is what was not decoded");
  }
  const compress::CompensatorId compensator = spec->compensator.id;
  // The law is uncertain for random rounding, which may raise a value below the smallest step to
  // that step.
  const bool certain = codec.traits().contractive && !spec->has(compress::kStochastic) &&
                       (compensator == compress::CompensatorId::kErrorFeedback ||
                        compensator == compress::CompensatorId::kDgc ||
                        compensator == compress::CompensatorId::kEf21);
  // The small constant covers values below the resolution of floats, which may be rounded up.
  Check(!certain || error <= energy * (1 + 1e-5) + 1e-76, "a contraction adds no energy");
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::CheckRoundTrip({data, size});
  return 0;
}
