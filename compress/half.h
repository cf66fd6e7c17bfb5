// Codecs `fp16` and `bf16`: each value rounded to nearest even in 16 bits; beyond the format's
// largest value it saturates and the rest stays in the residual.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/codec.h"
#include "compress/codec_spec.h"

namespace sluice {

std::unique_ptr<Codec> MakeFp16(const CodecSpec& spec);
absl::Status ValidateFp16(absl::Span<const std::byte> payload, size_t count);
void DecodeAddFp16(absl::Span<const std::byte> payload, absl::Span<float> sum);

std::unique_ptr<Codec> MakeBf16(const CodecSpec& spec);
absl::Status ValidateBf16(absl::Span<const std::byte> payload, size_t count);
void DecodeAddBf16(absl::Span<const std::byte> payload, absl::Span<float> sum);

}  // namespace sluice
