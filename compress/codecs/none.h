// SPDX-License-Identifier: Apache-2.0
// Codec `none`: unchanged fp32 values. Lossless.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/codec.h"
#include "compress/codec_spec.h"

namespace sluice::compress {

std::unique_ptr<Codec> MakeNone(const CodecSpec& spec);
absl::Status ValidateNone(absl::Span<const std::byte> payload, size_t count);
void DecodeAddNone(absl::Span<const std::byte> payload, absl::Span<float> sum);
void DecodeAddScaledNone(absl::Span<const std::byte> payload, float scale, absl::Span<float> sum);
void DecodeAddPartNone(absl::Span<const std::byte> payload, size_t count, size_t first,
                       absl::Span<float> sum);

}  // namespace sluice::compress
