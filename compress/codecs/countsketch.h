// Codec `countsketch:Rx` (Charikar et al. 2002; SketchedSGD, Ivkin et al. 2019; FetchSGD, Rothchild
// et al. 2020): a linear sketch of the gradient, a 2R-th of its elements as cells of 16 bits. Each
// of three rows of a table gets every element once, with a random sign, in a cell that the
// element's place alone decides: the same in all frames, so that receivers add tables. The receiver
// adds the mean table to what it has not published yet, publishes the elements that stand out in
// all rows, and takes them out of the table: feedback lives there, and senders have no state.
// Law: sketch of all that was published + the receiver's table = sum of mean tables.
// Biased and lossy by collisions; `topk` does better at the same bytes (docs/compression.md).
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/aggregator.h"
#include "compress/codec.h"
#include "compress/codec_spec.h"

namespace sluice::compress {

std::unique_ptr<Codec> MakeCountSketch(const CodecSpec& spec);

// No decode_add: one table says little about its elements.
absl::Status ValidateSketch(absl::Span<const std::byte> payload, size_t count);

// Remembers as many floats as the table has cells. `ratio` as in the senders' spec.
std::unique_ptr<Aggregator> MakeSketchAggregator(size_t count, double ratio);

}  // namespace sluice::compress
