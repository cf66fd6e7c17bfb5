// SPDX-License-Identifier: Apache-2.0
// Coding of the steps of a chunk's changed weights. Most steps have magnitude 1, so a step takes
// one bit for its direction, and the few larger steps are listed by their rank among the changed
// weights. Their magnitudes, minus 2, are in Exp-Golomb codes: an outlier takes a number of bits
// that grows with its logarithm, so no step needs an escape. docs/patch-format.md has the layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/bytes.h"
#include "compress/coding/index_coding.h"
#include "compress/coding/position_coding.h"
#include "follow/ordered_bits.h"

namespace sluice::follow {

// Positions below a limit as they are in a patch: a word with their number and coding, the size of
// the last plane, and the planes. Without positions, only the word 0.

// The lower bits of each word contain a number or a size, the upper byte a coding or a parameter.
inline constexpr int kNumberBits = 24;
inline constexpr uint32_t kNumberMask = (uint32_t{1} << kNumberBits) - 1;

// Appends the positions whose gaps are `gaps`. The sum of the gaps must be below 2^32, and there
// must be fewer than 2^24 of them.
void AppendPositions(absl::Span<const uint32_t> gaps, std::vector<std::byte>* out);
// Reads and checks positions below `count`. Returns a description of the error, or an empty string.
absl::string_view ReadPositions(ByteReader* reader, size_t count, compress::PositionPlanes* planes);

// Appends the coded steps, whose magnitudes are at least 1.
void AppendSteps(absl::Span<const Step> steps, std::vector<std::byte>* out);

// The parts of coded steps.
struct StepPlanes {
  absl::Span<const std::byte> directions;
  compress::PositionPlanes large;  // Ranks of the steps with a magnitude above 1.
  int parameter = 0;
  absl::Span<const std::byte> lows;
  absl::Span<const std::byte> classes;
  absl::Span<const std::byte> extras;
};

// Reads and checks `count` steps, which end the reader's bytes. Magnitudes are at most
// `magnitude_max`. Returns a description of the error, or an empty string.
absl::string_view ReadSteps(ByteReader* reader, size_t count, uint32_t magnitude_max,
                            StepPlanes* planes);

// Reads steps in order. ReadSteps must have accepted the planes.
class StepReader {
 public:
  explicit StepReader(const StepPlanes& planes);

  // Writes the next `count` steps. There must be as many left.
  void Read(size_t count, Step* steps);

 private:
  uint32_t NextMagnitude();

  const StepPlanes planes_;
  compress::PositionReader ranks_;
  compress::RiceReader numbers_;
  uint32_t batch_[compress::PositionReader::kBatch + compress::kUnpackSlack];
  size_t batch_at_ = 0;
  size_t batch_size_ = 0;
  size_t done_ = 0;
  uint64_t extra_bit_ = 0;
};

}  // namespace sluice::follow
