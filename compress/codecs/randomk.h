// SPDX-License-Identifier: Apache-2.0
// Codec `randomk:d`: ceil(d n) elements at random positions. Sender and receiver derive the
// positions from one key, so frames contain no positions (Stich et al. 2018; unbiased: Konečný et
// al. 2016).
//
// The chunk is cut into k = ceil(d n) strata of n/k elements, rounded down or up. One element of
// each stratum is sent, so exactly k elements are sent, spread over the whole chunk. All senders
// draw the same positions for a chunk and step. A frame has a 16-byte header and d values per
// element.
//
// Without `unbiased`, a frame contains the values themselves, and the residual keeps all other
// elements: |acc - decoded| <= |acc|, and sum of decoded + residual = sum of gradients. With
// `unbiased`, a frame contains each value times the size of its stratum. The expected value is then
// acc, except for the rounding of values. The variance is n/k - 1 times |acc|^2, and no residual is
// necessary. The codec is stateless.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/codec.h"
#include "compress/codec_spec.h"

namespace sluice::compress {

std::unique_ptr<Codec> MakeRandomK(const CodecSpec& spec);
// Returns how many of `count` elements are sent.
size_t RandomKPlaces(double density, size_t count);
absl::Status ValidateRandomK(absl::Span<const std::byte> payload, size_t count);
void DecodeAddRandomK(absl::Span<const std::byte> payload, absl::Span<float> sum);

}  // namespace sluice::compress
