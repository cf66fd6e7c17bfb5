// Codec `terngrad` (TernGrad: Wen et al. 2017): ±s with probability |acc| / s, else 0, where s is
// the chunk's largest magnitude, at most 2.5 times its root mean square. About 1 + p bits per
// element as a bitmap, less with coded positions, p = mean |acc| / s of them being sent; stateless.
// Unbiased but for what is larger than s, which is cut to it: about 1 % of normal values. Squared
// error: the sum of |acc| (s - |acc|).
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
