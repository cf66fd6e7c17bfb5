// SPDX-License-Identifier: Apache-2.0
#include "compress/codecs/sign.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/float_bits.h"
#include "compress/coding/accumulator.h"
#include "compress/coding/index_coding.h"
#include "compress/coding/payload.h"
#include "compress/frame.h"
#include "compress/simd/sign.h"

namespace sluice::compress {
namespace {

constexpr size_t kBlockBytes = kSignBlock / 8;
constexpr size_t kSignTileBlocks = 4;
constexpr uint16_t kSignLargestScale = 0x7F7F;
constexpr uint16_t kOne = 0x3F80;

size_t SignBlocks(size_t count) { return (count + kSignBlock - 1) / kSignBlock; }

// Sizes of the parts of a payload. A block has either one scale, or two scales: one for values
// above zero and one for values below.
struct Layout {
  Layout(size_t elements, size_t scales)
      : count(elements),
        blocks(SignBlocks(elements)),
        scales_per_block(scales),
        marks_at(2 * scales * blocks),
        signs_at(marks_at + BytesFor(blocks)),
        zeros_at(signs_at + BytesFor(elements)) {}

  size_t BlockElements(size_t block) const {
    return std::min(kSignBlock, count - block * kSignBlock);
  }
  size_t most() const { return zeros_at + BytesFor(count); }

  size_t count;
  size_t blocks;
  size_t scales_per_block;
  // One bit per block, which is set if the block contains both zeros and other values.
  size_t marks_at;
  size_t signs_at;
  // For each marked block, one bit per element.
  size_t zeros_at;
};

bool IsMarked(absl::Span<const std::byte> payload, const Layout& layout, size_t block) {
  return (static_cast<unsigned>(payload[layout.marks_at + block / 8]) >> (block % 8) & 1) != 0;
}
uint16_t ScaleAt(absl::Span<const std::byte> payload, const Layout& layout, size_t block,
                 size_t which) {
  return LoadAt<uint16_t>(payload.data(), block * layout.scales_per_block + which);
}

// The bytes of a block's plane, padded with zeros to a whole block.
struct BlockPlane {
  explicit BlockPlane(absl::Span<const std::byte> bytes) {
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::byte*>(words));
  }
  const uint8_t* bytes() const { return reinterpret_cast<const uint8_t*>(words); }
  uint64_t words[kSignBlock / 64] = {};
};

// Returns what becomes of zeros if there is a residual. A vote has no magnitude, so its zeros stay.
// With two means, a block without values below zero has no magnitude for negative zeros.
SignZeros RuleFor(SignScale scale) {
  switch (scale) {
    case SignScale::kMean:
      return SignZeros::kAlternate;
    case SignScale::kTwoMeans:
      return SignZeros::kPositive;
    case SignScale::kOne:
      return SignZeros::kStay;
  }
  return SignZeros::kStay;
}

class SignCodec final : public Codec {
 public:
  SignCodec(FormatId format, SignScale scale, size_t scales)
      : format_(format), scale_(scale), scales_(scales) {}

  FormatId format() const override { return format_; }
  bool lossless() const override { return false; }
  size_t MaxPayloadSize(size_t count, uint32_t) const override {
    return Layout(count, scales_).most();
  }
  void Encode(const EncodeInput& input, std::vector<std::byte>* out) const override;

 private:
  // Writes one block of `count` elements. If the block needs a plane of zeros, writes that plane at
  // `zeros`.
  size_t WriteBlock(const Layout& layout, const SignBlock& block, size_t index, std::byte* payload,
                    size_t zeros) const;

  const FormatId format_;
  const SignScale scale_;
  const size_t scales_;
};

size_t SignCodec::WriteBlock(const Layout& layout, const SignBlock& block, size_t index,
                             std::byte* payload, size_t zeros) const {
  const size_t count = layout.BlockElements(index);
  StoreAt(payload, index * scales_, block.above);
  if (scales_ == 2) StoreAt(payload, index * scales_ + 1, block.below);
  std::memcpy(payload + layout.signs_at + index * kBlockBytes, block.negative, BytesFor(count));
  size_t zero = 0;
  for (const uint64_t word : block.zero) zero += static_cast<size_t>(std::popcount(word));
  zero -= kSignBlock - count;
  if (zero == 0 || zero == count) return zeros;
  payload[layout.marks_at + index / 8] |= static_cast<std::byte>(1 << (index % 8));
  std::memcpy(payload + zeros, block.zero, BytesFor(count));
  const size_t odd = count % 8;
  const size_t end = zeros + BytesFor(count);
  if (odd != 0) payload[end - 1] &= static_cast<std::byte>((1 << odd) - 1);
  return end;
}

void SignCodec::Encode(const EncodeInput& input, std::vector<std::byte>* out) const {
  const Layout layout(input.gradient.size(), scales_);
  const size_t start = out->size();
  out->resize(start + layout.most());
  std::byte* const payload = out->data() + start;
  SignBlock blocks[kSignTileBlocks];
  size_t zeros = layout.zeros_at;
  const SignZeros rule = input.residual.empty() ? SignZeros::kStay : RuleFor(scale_);
  ForEachTile<kSignTileBlocks * kSignBlock>(
      input, [&](size_t at, const float* gradient, float* residual, size_t count) {
        const size_t whole = count / kSignBlock, first = at / kSignBlock;
        EncodeSigns(gradient, residual, scale_, rule, blocks, whole);
        for (size_t i = 0; i < whole; ++i) {
          zeros = WriteBlock(layout, blocks[i], first + i, payload, zeros);
        }
        const size_t done = whole * kSignBlock;
        if (done == count) return;
        // Padding the last block with zeros does not change its codes.
        float last[2][kSignBlock] = {};
        std::copy(gradient + done, gradient + count, last[0]);
        std::copy(residual + done, residual + count, last[1]);
        EncodeSigns(last[0], last[1], scale_, rule, blocks, 1, count - done);
        std::copy(last[1], last[1] + (count - done), residual + done);
        zeros = WriteBlock(layout, blocks[0], first + whole, payload, zeros);
      });
  out->resize(start + zeros);
}

bool HasBitsFrom(const BlockPlane& plane, size_t count) {
  for (size_t i = count; i < kSignBlock; ++i) {
    if ((plane.words[i / 64] >> (i % 64) & 1) != 0) return true;
  }
  return false;
}

// Checks that an encoder could have written the block. Returns a description of the error, or an
// empty string. `zeros` is the plane of zeros of a marked block; otherwise it is empty.
absl::string_view SignWhatIsWrong(absl::Span<const std::byte> payload, const Layout& layout,
                                  size_t block, absl::Span<const std::byte> zeros) {
  const size_t count = layout.BlockElements(block);
  const BlockPlane negative(
      payload.subspan(layout.signs_at + block * kBlockBytes, BytesFor(count)));
  const BlockPlane zero(zeros);
  if (HasBitsFrom(negative, count) || HasBitsFrom(zero, count))
    return "bits after its last element";
  size_t below = 0, none = 0;
  for (size_t word = 0; word < kSignBlock / 64; ++word) {
    if ((negative.words[word] & zero.words[word]) != 0) return "a negative zero";
    below += static_cast<size_t>(std::popcount(negative.words[word]));
    none += static_cast<size_t>(std::popcount(zero.words[word]));
  }
  if (!zeros.empty() && (none == 0 || none == count))
    return "a plane of zeros whose bits are all equal";
  uint16_t scales[2];
  for (size_t i = 0; i < layout.scales_per_block; ++i) {
    scales[i] = ScaleAt(payload, layout, block, i);
    if (scales[i] > kSignLargestScale) return "a scale that is negative or not finite";
  }
  if (layout.scales_per_block == 1) {
    if (scales[0] == 0 && (below > 0 || none > 0)) return "elements without a scale";
    return "";
  }
  const bool all_zero = scales[0] == 0 && scales[1] == 0;
  const size_t above = all_zero ? 0 : count - below - none;
  if ((scales[0] == 0) != (above == 0) || (scales[1] == 0) != (below == 0) ||
      (all_zero && none > 0)) {
    return "elements without a scale, or a scale without elements";
  }
  return "";
}

absl::Status Validate(absl::string_view name, absl::Span<const std::byte> payload, size_t count,
                      size_t scales) {
  const Layout layout(count, scales);
  if (payload.size() < layout.zeros_at) {
    return PayloadSizeError(name, count, layout.zeros_at, payload.size());
  }
  if (!IsPadded(payload.subspan(layout.marks_at, BytesFor(layout.blocks)), layout.blocks)) {
    return absl::InvalidArgumentError(absl::StrCat(name, " payload: padding is not zero"));
  }
  absl::Span<const std::byte> rest = payload.subspan(layout.zeros_at);
  for (size_t block = 0; block < layout.blocks; ++block) {
    const size_t size =
        IsMarked(payload, layout, block) ? BytesFor(layout.BlockElements(block)) : 0;
    if (size > rest.size()) {
      return absl::InvalidArgumentError(absl::StrCat(name, " payload: block ", block,
                                                     " should have ", size,
                                                     " bytes of zeros, there are ", rest.size()));
    }
    const absl::string_view wrong = SignWhatIsWrong(payload, layout, block, rest.first(size));
    if (!wrong.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " payload: block ", block, " has ", wrong));
    }
    rest.remove_prefix(size);
  }
  if (rest.empty()) return absl::OkStatus();
  return PayloadSizeError(name, count, payload.size() - rest.size(), payload.size());
}

void DecodeAdd(absl::Span<const std::byte> payload, absl::Span<float> sum, size_t scales) {
  const Layout layout(sum.size(), scales);
  absl::Span<const std::byte> rest = payload.subspan(layout.zeros_at);
  for (size_t block = 0; block < layout.blocks; ++block) {
    const size_t count = layout.BlockElements(block);
    const absl::Span<const std::byte> signs =
        payload.subspan(layout.signs_at + block * kBlockBytes, BytesFor(count));
    absl::Span<const std::byte> zeros;
    if (IsMarked(payload, layout, block)) {
      zeros = rest.first(BytesFor(count));
      rest.remove_prefix(zeros.size());
    }
    const float above = FromBfloat(ScaleAt(payload, layout, block, 0));
    const float below = FromBfloat(ScaleAt(payload, layout, block, scales - 1));
    float* const at = sum.data() + block * kSignBlock;
    if (count == kSignBlock) {
      AddSigns(reinterpret_cast<const uint8_t*>(signs.data()),
               zeros.empty() ? nullptr : reinterpret_cast<const uint8_t*>(zeros.data()), above,
               below, at);
      continue;
    }
    float last[kSignBlock] = {};
    std::copy(at, at + count, last);
    AddSigns(BlockPlane(signs).bytes(), BlockPlane(zeros).bytes(), above, below, last);
    std::copy(last, last + count, at);
  }
}

// Counts votes in floats. The counts are exact for up to 2^24 senders, which is more than a job can
// have.
class VoteAggregator final : public Aggregator {
 public:
  explicit VoteAggregator(size_t count) : count_(count) {}

  absl::Status Validate(uint32_t, absl::Span<const std::byte> frame) const override {
    absl::Status valid = ValidateFrame(frame, count_);
    if (!valid.ok()) return valid;
    if (FrameFormat(frame).id != FormatId::kSign) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a ", FrameFormat(frame).name, " frame for a chunk whose senders vote: send signsgd"));
    }
    const Layout layout(count_, 1);
    for (size_t block = 0; block < layout.blocks; ++block) {
      const uint16_t scale = ScaleAt(FramePayload(frame), layout, block, 0);
      if (scale == 0 || scale == kOne) continue;
      return absl::InvalidArgumentError(absl::StrCat("a vote counts 1, but block ", block,
                                                     " of the frame has scale ", FromBfloat(scale),
                                                     ": send signsgd"));
    }
    return absl::OkStatus();
  }

  void Add(absl::Span<const SenderFrame> frames, absl::Span<float> sum) override {
    for (const SenderFrame& frame : frames) DecodeAddSign(FramePayload(frame.frame), sum);
  }

  void Close(uint32_t, absl::Span<float> sum) override {
    for (float& x : sum) x = static_cast<float>((x > 0 ? 1 : 0) - (x < 0 ? 1 : 0));
  }

 private:
  const size_t count_;
};

}  // namespace

std::unique_ptr<Codec> MakeSign(const CodecSpec&) {
  return std::make_unique<SignCodec>(FormatId::kSign, SignScale::kMean, 1);
}
std::unique_ptr<Codec> MakeSignSgd(const CodecSpec&) {
  return std::make_unique<SignCodec>(FormatId::kSign, SignScale::kOne, 1);
}
std::unique_ptr<Codec> MakeOneBit(const CodecSpec&) {
  return std::make_unique<SignCodec>(FormatId::kOneBit, SignScale::kTwoMeans, 2);
}

absl::Status ValidateSign(absl::Span<const std::byte> payload, size_t count) {
  return Validate("sign", payload, count, 1);
}
absl::Status ValidateOneBit(absl::Span<const std::byte> payload, size_t count) {
  return Validate("onebit", payload, count, 2);
}

void DecodeAddSign(absl::Span<const std::byte> payload, absl::Span<float> sum) {
  DecodeAdd(payload, sum, 1);
}
void DecodeAddOneBit(absl::Span<const std::byte> payload, absl::Span<float> sum) {
  DecodeAdd(payload, sum, 2);
}

std::unique_ptr<Aggregator> MakeVoteAggregator(size_t count) {
  return std::make_unique<VoteAggregator>(count);
}

}  // namespace sluice::compress
