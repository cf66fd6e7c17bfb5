// SPDX-License-Identifier: Apache-2.0
// Coding of ascending positions as gaps, in one of four ways. One byte in the payload names the
// coding. The encoder uses the smallest coding, or the one that the spec requests.
// docs/wire-format.md defines the layouts.
//
//   b        (0 to 31)  Golomb with divisor 2^b (Rice): b low bits and the quotient in unary, in
//                       separate planes. b = 0 is a bitmap up to the last position.
//   32 + b   (0 to 29)  Golomb with divisor 3 * 2^b: low bits, the quotient modulo 3 (five to a
//                       byte) and the rest in unary. Where a power of two takes up to 3 % more
//                       than the entropy, one of these divisors takes only 1 % more.
//   96                  Rice with a parameter for every 16 gaps (4 bits each). It saves 10 to 45 %
//                       if gradients cluster (for example in the rows of active neurons).
//
//   64 + w   (1 to 16)  Codes of w bits. A code of all ones adds its value to the gap, which then
//                       continues with the next code. w = 8 is the fastest to read: byte gaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/bytes.h"
#include "compress/codec_spec.h"
#include "compress/coding/index_plan.h"
#include "compress/simd/positions.h"

namespace sluice::compress {

// Returns the mode that the options of a spec request.
IndexMode IndexModeOf(const CodecSpec& spec);

// Returns the coding for `gaps` that has the fewest bytes among those that `mode` allows.
// `gaps_sum` is the sum of the gaps, which must be below 2^32.
IndexLayout PlanPositions(IndexMode mode, absl::Span<const uint32_t> gaps, uint64_t gaps_sum);

// Returns an upper bound for the total number of bytes that the two functions below append for
// positions below `count`.
size_t MaxPositionBytes(IndexMode mode, size_t count);

// These append the planes. The first planes contain parameters, low bits and remainders modulo 3;
// the last plane contains quotients, or codes of w bits.
void AppendFirstPlanes(const IndexLayout& plan, absl::Span<const uint32_t> gaps,
                       std::vector<std::byte>* out);
void AppendLastPlane(const IndexLayout& plan, absl::Span<const uint32_t> gaps,
                     std::vector<std::byte>* out);

// The parts of a payload.
struct PositionPlanes {
  uint8_t coding = 0;
  size_t kept = 0;
  absl::Span<const std::byte> parameters;
  absl::Span<const std::byte> lows;
  absl::Span<const std::byte> thirds;
  absl::Span<const std::byte> last;
};

// Reads the first planes from `reader`. Returns false if the coding is unknown or there are not
// enough bytes.
bool ReadFirstPlanes(ByteReader* reader, PositionPlanes* planes);

// Checks that the planes contain exactly `kept` positions below `count`. Returns a description of
// the error, or an empty string.
absl::string_view PositionProblem(const PositionPlanes& planes, size_t count);

// Reads the positions in order. PositionProblem must have accepted the planes.
class PositionReader {
 public:
  // The batch size is a multiple of 16 and of 5.
  static constexpr size_t kBatch = 320;

  explicit PositionReader(const PositionPlanes& planes) : planes_(planes) {}

  // Writes the next positions, at most kBatch, and returns their number. Returns 0 at the end.
  size_t Read(uint32_t* positions);

 private:
  size_t ReadQuotients(uint32_t* positions);
  size_t ReadBlocks(uint32_t* positions);
  size_t ReadCodes(uint32_t* positions);

  const PositionPlanes planes_;
  size_t done_ = 0;  // Number of positions that have been read.
  // Number of codes that have been read. A position may take several codes.
  size_t codes_ = 0;
  uint64_t run_ = 0;
  OnesCursor ones_;
  BlockCursor blocks_;
};

}  // namespace sluice::compress
