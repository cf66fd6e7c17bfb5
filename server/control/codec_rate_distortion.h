// CodecRateDistortion: the cost of a codec in bytes and in error. Used to allocate a budget.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "compress/codec_spec.h"

namespace sluice::server {

// Returns the bits per element, for values and positions, of a sparse codec that sends the share
// `density` of all elements.
double SparseBits(double density, compress::ValueFormat values);

struct CodecRateDistortion {
  double bits = 32;  // Per element.
  double error = 0;  // Energy of (acc - decoded) divided by the energy of acc, with error feedback.
};

// Supports the codecs that a plan can choose: none, fp16, bf16, int8, int4, int2, sign, onebit,
// ternary, eden, and sparse ones. For any other codec, fails with INVALID_ARGUMENT; the message
// names the codec.
absl::StatusOr<CodecRateDistortion> PriceOf(const compress::CodecSpec& spec);

}  // namespace sluice::server
