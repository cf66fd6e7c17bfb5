// Codec `natural` (natural compression: Horváth et al. 2019): each value becomes one of the two
// powers of two around it, with the probabilities that keep the mean; powers of two stay as they
// are. 1 + w bits per element in blocks of 512, w the bits of the block's range of exponents (4 for
// normal values, 5 or 6 for gradients, at most 8), and 1/32; unbiased, stateless, variance at most
// |acc|^2 / 8. Subnormal numbers become 0 or ±2^-126; above 2^127 there is no power of two, so that
// such values are cut to it.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/codec.h"
#include "compress/codec_spec.h"

namespace sluice::compress {

std::unique_ptr<Codec> MakeNatural(const CodecSpec& spec);
absl::Status ValidateNatural(absl::Span<const std::byte> payload, size_t count);
void DecodeAddNatural(absl::Span<const std::byte> payload, absl::Span<float> sum);

}  // namespace sluice::compress
