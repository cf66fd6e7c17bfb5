// Codec `randomk:d`: ceil(d n) elements at random positions that sender and receiver draw from one
// key, so that no positions travel (Stich et al. 2018; unbiased: Konečný et al. 2016).
//
// The chunk is cut into k = ceil(d n) strata of n/k elements, rounded down or up, and one element
// of each is sent: exactly k, spread over the whole chunk. All senders draw the same for one chunk
// and step. Bits: those of d values per element, and 16 bytes of header.
//
// Without `unbiased`: the values themselves, all else stays in the residual, |acc - decoded| <=
// |acc|, and sum of decoded + residual = sum of gradients. With it: value times the size of its
// stratum, so that the expectation is acc but for the rounding of values; the variance is n/k - 1
// times |acc|^2 and no residual is needed. No state.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/codec.h"
#include "compress/codec_spec.h"

namespace sluice::compress {

std::unique_ptr<Codec> MakeRandomK(const CodecSpec& spec);
// How many elements of `count` are sent.
size_t RandomKPlaces(double density, size_t count);
absl::Status ValidateRandomK(absl::Span<const std::byte> payload, size_t count);
void DecodeAddRandomK(absl::Span<const std::byte> payload, absl::Span<float> sum);

}  // namespace sluice::compress
