// SPDX-License-Identifier: Apache-2.0
// Codec `countsketch:Rx` (Charikar et al. 2002; SketchedSGD, Ivkin et al. 2019; FetchSGD, Rothchild
// et al. 2020): a linear sketch of the gradient.
//
// The sketch is a table of three rows with 16 bits per cell. The number of cells is the number of
// elements divided by 2R. Every row receives every element once, with a random sign, in a cell that
// depends only on the element's position. The cells are the same in all frames, so receivers can
// add tables.
//
// The receiver adds the mean table to its table of unpublished amounts. It publishes the elements
// that stand out in all rows and subtracts them from the table. The receiver's table provides the
// feedback, and senders have no state. Conservation: sketch of all published values + the
// receiver's table = sum of mean tables. The codec is biased, and lossy because of collisions;
// `topk` is better at the same number of bytes (docs/compression.md).
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/aggregator.h"
#include "compress/codec.h"
#include "compress/codec_spec.h"

namespace sluice::compress {

std::unique_ptr<Codec> MakeCountSketch(const CodecSpec& spec);

// This format has no decode_add, because a single table says little about its elements.
absl::Status ValidateSketch(absl::Span<const std::byte> payload, size_t count);

// The aggregator keeps one float per cell of the table. `ratio` must equal the ratio in the
// senders' spec.
std::unique_ptr<Aggregator> MakeSketchAggregator(size_t count, double ratio);

}  // namespace sluice::compress
