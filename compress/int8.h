// Codec `int8`: blocks of 256 values, each a bf16 scale (largest magnitude / 127, rounded up so
// that nothing clips) and codes -127..127, rounded to nearest even.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/codec.h"
#include "compress/codec_spec.h"

namespace sluice {

std::unique_ptr<Codec> MakeInt8(const CodecSpec& spec);
absl::Status ValidateInt8(absl::Span<const std::byte> payload, size_t count);
void DecodeAddInt8(absl::Span<const std::byte> payload, absl::Span<float> sum);

}  // namespace sluice
