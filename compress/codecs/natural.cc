// SPDX-License-Identifier: Apache-2.0
#include "compress/codecs/natural.h"

#include "absl/strings/str_cat.h"
#include "compress/coding/accumulator.h"
#include "compress/coding/payload.h"
#include "compress/coding/plane_blocks.h"

namespace sluice::compress {
namespace {

constexpr size_t kNaturalBlock = kStochasticBlock;
constexpr uint32_t kNaturalExponentMax = 254;
constexpr size_t kWidthMax = 8;

size_t NaturalBlocks(size_t count) { return (count + kNaturalBlock - 1) / kNaturalBlock; }

// Returns the number of planes of a block with levels of `width` bits.
size_t Planes(size_t width) { return width == 0 ? 0 : 1 + width; }

class NaturalCodec final : public Codec {
 public:
  FormatId format() const override { return FormatId::kNatural; }
  bool lossless() const override { return false; }
  size_t MaxPayloadSize(size_t count, uint32_t) const override {
    return 2 * NaturalBlocks(count) + Planes(kWidthMax) * (count / kNaturalBlock * kPlaneBytes +
                                                           BytesFor(count % kNaturalBlock));
  }

  void Encode(const EncodeInput& input, std::vector<std::byte>* out) const override {
    const size_t blocks = NaturalBlocks(input.gradient.size());
    const size_t start = out->size();
    out->resize(start + MaxPayloadSize(input.gradient.size(), 0));
    std::byte* const payload = out->data() + start;
    size_t end = 2 * blocks;
    ForEachPaddedBlock<kNaturalBlock>(
        input, [&](size_t at, const float* gradient, float* residual, size_t count) {
          uint32_t codes[kNaturalBlock];
          uint8_t planes[kPlanesMax * kPlaneBytes];
          RoundToPowersOfTwo(gradient, residual, input.own_key, static_cast<uint32_t>(at), codes);
          const LevelRange range = RangeOfLevels(codes);
          const bool empty = range.largest == 0;
          const uint32_t base = empty ? 0 : range.smallest - 1;
          const auto width = static_cast<size_t>(std::bit_width(range.largest - base));
          payload[at / kNaturalBlock] = static_cast<std::byte>(range.smallest);
          payload[blocks + at / kNaturalBlock] = static_cast<std::byte>(width);
          if (empty) return;
          PackPlanes(codes, base, static_cast<int>(width), planes);
          CutPlanes(planes, Planes(width), count, payload + end);
          end += Planes(width) * BytesFor(count);
        });
    out->resize(start + end);
  }
};

absl::string_view BlockProblem(const uint8_t* planes, uint32_t smallest, size_t width,
                               size_t count) {
  const absl::string_view wrong = PlaneProblem(planes, Planes(width), count);
  if (!wrong.empty()) return wrong;
  uint32_t codes[kNaturalBlock];
  UnpackPlanes(planes, 0, static_cast<int>(width), codes);
  const LevelRange range = RangeOfLevels(codes);
  if (range.smallest != 1) return "no element with its smallest exponent";
  if (static_cast<size_t>(std::bit_width(range.largest)) != width) return "one plane too many";
  if (smallest == 0 || smallest - 1 + range.largest > kNaturalExponentMax) {
    return "an exponent that is out of range";
  }
  return "";
}

}  // namespace

std::unique_ptr<Codec> MakeNatural(const CodecSpec&) { return std::make_unique<NaturalCodec>(); }

absl::Status ValidateNatural(absl::Span<const std::byte> payload, size_t count) {
  const size_t blocks = NaturalBlocks(count);
  size_t at = 2 * blocks;
  if (payload.size() < at) return PayloadSizeError("natural", count, at, payload.size());
  for (size_t block = 0; block < blocks; ++block) {
    const size_t elements = std::min(kNaturalBlock, count - block * kNaturalBlock);
    const auto smallest = static_cast<uint32_t>(payload[block]);
    const auto width = static_cast<size_t>(payload[blocks + block]);
    const auto bad = [&](absl::string_view what) {
      return absl::InvalidArgumentError(
          absl::StrCat("natural payload: block ", block, " has ", what));
    };
    if (width > kWidthMax) return bad(absl::StrCat("exponents of ", width, " bits"));
    if (width == 0 && smallest != 0) return bad("an exponent but no elements");
    if (width == 0) continue;
    const size_t size = Planes(width) * BytesFor(elements);
    if (payload.size() - at < size) {
      return bad(absl::StrCat("planes of ", size, " bytes, there are ", payload.size() - at));
    }
    uint8_t planes[kPlanesMax * kPlaneBytes];
    PadPlanes(payload.data() + at, Planes(width), elements, planes);
    const absl::string_view wrong = BlockProblem(planes, smallest, width, elements);
    if (!wrong.empty()) return bad(wrong);
    at += size;
  }
  if (at != payload.size()) return PayloadSizeError("natural", count, at, payload.size());
  return absl::OkStatus();
}

void DecodeAddNatural(absl::Span<const std::byte> payload, absl::Span<float> sum) {
  const size_t blocks = NaturalBlocks(sum.size());
  const std::byte* at = payload.data() + 2 * blocks;
  for (size_t block = 0; block < blocks; ++block) {
    const size_t start = block * kNaturalBlock;
    const size_t elements = std::min(kNaturalBlock, sum.size() - start);
    const auto width = static_cast<size_t>(payload[blocks + block]);
    if (width == 0) continue;
    uint8_t planes[kPlanesMax * kPlaneBytes];
    uint32_t codes[kNaturalBlock];
    PadPlanes(at, Planes(width), elements, planes);
    at += Planes(width) * BytesFor(elements);
    UnpackPlanes(planes, static_cast<uint32_t>(payload[block]) - 1, static_cast<int>(width), codes);
    float last[kNaturalBlock] = {};
    float* const values = elements == kNaturalBlock ? sum.data() + start : last;
    if (elements < kNaturalBlock) std::copy(sum.data() + start, sum.data() + sum.size(), last);
    AddPowersOfTwo(codes, values);
    if (elements < kNaturalBlock) std::copy(last, last + elements, sum.data() + start);
  }
}

}  // namespace sluice::compress
