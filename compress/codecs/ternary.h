// SPDX-License-Identifier: Apache-2.0
// Codec `ternary`: for each block of 256 elements, sends the signs of all values that reach a given
// share of the block's largest magnitude, and one scale, which is the mean magnitude of these
// values. The density depends on the data. Positions are Rice-coded over the whole frame.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/codec.h"
#include "compress/codec_facts.h"
#include "compress/codec_spec.h"

namespace sluice::compress {

std::unique_ptr<Codec> MakeTernary(const CodecSpec& spec);
CodecPrice TernaryPrice(const CodecSpec& spec);

absl::Status ValidateTernary(absl::Span<const std::byte> payload, size_t count);
void DecodeAddTernary(absl::Span<const std::byte> payload, absl::Span<float> sum);

}  // namespace sluice::compress
