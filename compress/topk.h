// Codec `topk`: the values of largest magnitude, by threshold, as Rice-coded positions and values
// in fp16 or, with
// `+int4`, a sign and one of 8 magnitudes between the threshold and the chunk's largest.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/codec.h"
#include "compress/codec_spec.h"

namespace sluice {

std::unique_ptr<Codec> MakeTopK(const CodecSpec& spec);
absl::Status ValidateTopK(absl::Span<const std::byte> payload, size_t count);
void DecodeAddTopK(absl::Span<const std::byte> payload, absl::Span<float> sum);

}  // namespace sluice
