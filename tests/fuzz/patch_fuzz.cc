// SPDX-License-Identifier: Apache-2.0
// Fuzzer for patches: any bytes must be refused or change exactly the announced weights, and no
// byte outside the patch and the weights may be touched. What a patch does must also survive
// encoding again. Input: seed of the weights (1 byte), a patch.

#include "base/check.h"
#include "base/random.h"
#include "follow/patch.h"
#include "tests/follow/sealed_patch.h"
#include "tests/fuzz/fuzz_input.h"

namespace sluice::follow {
namespace {

// A few bytes can announce many unchanged elements. Such patches are parsed only.
constexpr uint64_t kAppliedElementsMax = 1 << 14;

void CheckSecondPatch(const PatchHeader& header, const std::vector<std::byte>& before,
                      const std::vector<std::byte>& after) {
  const TensorLayout layout = {{.name = "w", .shape = {header.elements}}};
  const absl::StatusOr<std::vector<std::byte>> bytes =
      EncodePatch({.base_version = 1, .version = 2}, layout, header.type, before, after);
  Check(bytes.ok(), "two versions of the same size have a patch");
  const absl::StatusOr<Patch> patch = Patch::Parse(*bytes);
  Check(patch.ok(), "an encoded patch is valid");
  std::vector<std::byte> weights = before;
  Check(patch->Apply(WeightsDigest(header.type, before), absl::MakeSpan(weights)).ok() &&
            weights == after,
        "an encoded patch leads to the new weights");
}

void CheckPatch(const std::vector<std::byte>& bytes, uint8_t seed) {
  const absl::StatusOr<Patch> patch = Patch::Parse(bytes);
  if (!patch.ok()) return;
  const PatchHeader& header = patch->header();
  Check(patch->changed() <= header.elements, "at most all elements change");
  if (header.elements > kAppliedElementsMax) return;
  const CounterRandom random(seed, 0);
  std::vector<std::byte> before(header.elements * BytesOf(header.type));
  // Exact copies, so that sanitizers notice accesses outside them.
  for (size_t i = 0; i < before.size(); ++i) before[i] = static_cast<std::byte>(random.At(i));
  std::vector<std::byte> after = before;
  const absl::Status applied = patch->Apply(header.base, absl::MakeSpan(after));
  Check(applied.ok() == (WeightsDigest(header.type, after) == header.result),
        "only the announced result is accepted");
  uint64_t changed = 0;
  const size_t width = BytesOf(header.type);
  for (size_t i = 0; i < before.size(); i += width) {
    changed += !std::equal(&before[i], &before[i] + width, &after[i]);
  }
  Check(changed <= patch->changed(), "no other element changes");
  CheckSecondPatch(header, before, after);
}

}  // namespace
}  // namespace sluice::follow

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::FuzzInput input(data, size);
  const uint8_t seed = input.Byte();
  const absl::Span<const std::byte> rest = input.Rest();
  std::vector<std::byte> patch(rest.begin(), rest.end());
  sluice::follow::CheckPatch(patch, seed);
  sluice::follow::SealPatch(&patch);
  sluice::follow::CheckPatch(patch, seed);
  return 0;
}
