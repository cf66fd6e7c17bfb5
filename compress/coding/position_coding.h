// Coding of ascending positions as gaps, in one of four ways that one byte names; the encoder takes
// the one that is smallest, or the one that was asked for. docs/wire-format.md has the layouts.
//
//   b        (0 to 31)  Golomb with divisor 2^b (Rice): b low bits and the quotient in unary, in
//                       separate planes. b = 0 is a bitmap up to the last position.
//   32 + b   (b to 29)  Golomb with divisor 3 * 2^b: low bits, the quotient's remainder by 3 (five
//                       to a byte) and the rest in unary. Where a power of two costs up to 3 % more
//                       than the entropy, one of these costs 1 %.
//   96                  Rice with a parameter for every 16 gaps (4 bits each). Gradients cluster
//   (rows
//                       of a layer whose neuron was active): there it saves 10 to 45 %.
//   64 + w   (1 to 16)  w bits each; all ones add that much and go on with the next. w = 8 is the
//                       fastest to read: byte gaps.
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

// As the options of a spec say.
IndexMode IndexModeOf(const CodecSpec& spec);

// The coding for `gaps`: what `mode` asks for, and of that the one with the fewest bytes.
// `gaps_sum` is their sum, below 2^32.
PositionPlan PlanPositions(IndexMode mode, absl::Span<const uint32_t> gaps, uint64_t gaps_sum);

// Upper bound of what both append for positions below `count`.
size_t MaxPositionBytes(IndexMode mode, size_t count);

// Parameters, low bits and remainders by 3; quotients, or codes of w bits.
void AppendFirstPlanes(const PositionPlan& plan, absl::Span<const uint32_t> gaps,
                       std::vector<std::byte>* out);
void AppendLastPlane(const PositionPlan& plan, absl::Span<const uint32_t> gaps,
                     std::vector<std::byte>* out);

// As read from a payload.
struct PositionPlanes {
  uint8_t coding = 0;
  size_t kept = 0;
  absl::Span<const std::byte> parameters;
  absl::Span<const std::byte> lows;
  absl::Span<const std::byte> thirds;
  absl::Span<const std::byte> last;
};

// Takes the first planes off `reader`. False if the coding is unknown or the bytes do not suffice.
bool ReadFirstPlanes(ByteReader* reader, PositionPlanes* planes);

// What is wrong with the planes, if they are to hold exactly `kept` positions below `count`; empty:
// nothing.
absl::string_view PositionProblem(const PositionPlanes& planes, size_t count);

// The positions in order, from planes without a problem.
class PositionReader {
 public:
  // A multiple of 16 and of 5.
  static constexpr size_t kBatch = 320;

  explicit PositionReader(const PositionPlanes& planes) : planes_(planes) {}

  // Writes the next ones, at most kBatch, and returns how many; 0: there are no more.
  size_t Read(uint32_t* positions);

 private:
  size_t ReadQuotients(uint32_t* positions);
  size_t ReadBlocks(uint32_t* positions);
  size_t ReadCodes(uint32_t* positions);

  const PositionPlanes planes_;
  size_t done_ = 0;   // Positions that were read.
  size_t codes_ = 0;  // Codes, which may be more.
  uint64_t run_ = 0;
  OnesCursor ones_;
  BlockCursor blocks_;
};

}  // namespace sluice::compress
