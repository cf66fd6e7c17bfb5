// SPDX-License-Identifier: Apache-2.0
// Codec `terngrad` (TernGrad: Wen et al. 2017): sends each element as ±s with probability |acc| /
// s, and otherwise as 0. s is the chunk's largest magnitude, but at most 2.5 times the chunk's root
// mean square. The share of sent elements is p = mean |acc| / s. A bitmap takes about 1 + p bits
// per element; coded positions take fewer. The codec is stateless. It is unbiased except that
// values larger than s are clipped to s: about 1 % of normally distributed values. The expected
// squared error is the sum of |acc| (s - |acc|).
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/codec.h"
#include "compress/codec_spec.h"

namespace sluice::compress {

std::unique_ptr<Codec> MakeTernGrad(const CodecSpec& spec);
absl::Status ValidateTernGrad(absl::Span<const std::byte> payload, size_t count);
void DecodeAddTernGrad(absl::Span<const std::byte> payload, absl::Span<float> sum);

}  // namespace sluice::compress
