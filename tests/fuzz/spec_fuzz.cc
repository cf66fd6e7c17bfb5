// SPDX-License-Identifier: Apache-2.0
// Fuzzer for specs: any string must either be refused with a reason or be a valid spec. The
// canonical form of a valid spec must parse to the same spec, and it must be possible to make a
// codec, a sender and a receiver from it. Input: a string.

#include "base/check.h"
#include "compress/aggregator.h"
#include "compress/codec_table.h"
#include "compress/compressor.h"
#include "tests/fuzz/fuzz_input.h"

namespace sluice {
namespace {

void CheckSpec(const absl::StatusOr<compress::CodecSpec>& spec) {
  if (!spec.ok()) {
    Check(spec.status().code() == absl::StatusCode::kInvalidArgument, "it is the text's fault");
    Check(!spec.status().message().empty(), "errors say something");
    return;
  }
  const std::string text = compress::ToString(*spec);
  const absl::StatusOr<compress::CodecSpec> again = compress::ParseCodecSpec(text);
  Check(again.ok() && *again == *spec, "a canonical text reads back as the same spec");
  Check(compress::ToString(*again) == text, "a canonical text stays as it is");
  const compress::ChunkConfig config{.count = 96, .spec = *spec, .rows = 12};
  const compress::Compressor compressor(absl::MakeConstSpan(&config, 1), {});
  Check(compressor.MaxFrameSize(0) <= compress::kMaxFrameSize, "a small chunk has a small frame");
  Check(compress::MakeAggregator(config, 2) != nullptr, "every spec has a receiver");
}

void CheckText(FuzzInput input) {
  const absl::Span<const std::byte> bytes = input.Rest();
  CheckSpec(compress::ParseCodecSpec(
      absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())));
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::CheckText({data, size});
  return 0;
}
