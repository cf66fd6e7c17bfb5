// SPDX-License-Identifier: Apache-2.0
// CodecRateDistortion: the cost of a codec in bytes and in error. Used to allocate a budget.
#pragma once

#include "absl/status/statusor.h"
#include "compress/codec_facts.h"
#include "compress/codec_spec.h"

namespace sluice::server {

using compress::SparseBits;
using CodecRateDistortion = compress::CodecPrice;

// Supports the codecs that a plan can choose (compress::MayChange). For any other codec, fails with
// INVALID_ARGUMENT; the message names the codec.
absl::StatusOr<CodecRateDistortion> PriceOf(const compress::CodecSpec& spec);

}  // namespace sluice::server
