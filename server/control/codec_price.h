// CodecPrice: what a codec costs in bytes and in error, as the spending of a budget reckons with
// it.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "compress/codec_spec.h"

namespace sluice::server {

// Bits of an element with a sparse codec that sends a share `density` of all: its value and its
// position.
double SparseBits(double density, compress::ValueFormat values);

struct CodecPrice {
  double bits = 32;  // Of an element.
  double error = 0;  // Energy of acc - decoded, over that of acc, with feedback at work.
};

// What a plan can choose: none, fp16, bf16, int8, int4, int2, sign, onebit, ternary, eden, and
// sparse ones. INVALID_ARGUMENT names any other, whose price is not known.
absl::StatusOr<CodecPrice> PriceOf(const compress::CodecSpec& spec);

}  // namespace sluice::server
