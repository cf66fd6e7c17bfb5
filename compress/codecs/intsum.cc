// SPDX-License-Identifier: Apache-2.0
#include "compress/codecs/intsum.h"

#include <algorithm>
#include <bit>

#include "base/float_bits.h"
#include "compress/coding/accumulator.h"
#include "compress/coding/payload.h"
#include "compress/frame.h"
#include "compress/simd/accumulate.h"
#include "compress/simd/intsum.h"

namespace sluice::compress {
namespace {

size_t IntSumBlocks(size_t count) { return (count + kIntSumBlock - 1) / kIntSumBlock; }
size_t IntSumCodeBytes(size_t count, int bits) {
  return (count * static_cast<size_t>(bits) + 7) / 8;
}
size_t IntSumPayloadSize(size_t count, int bits) {
  return 1 + 2 * IntSumBlocks(count) + IntSumCodeBytes(count, bits);
}

int IntSumLargestCode(int bits) { return (1 << (bits - 1)) - 1; }

// Largest exponent. A payload stores an exponent e as the exponent field of the fp32 number 2^e; 0
// means that the block has no exponent yet or contains only zeros. The limit keeps 2^-e a normal
// number.
constexpr uint8_t kIntSumExponentMax = 253;
// Returns the largest exponent for which the largest code is finite.
uint8_t ExponentMax(int bits) { return bits == 8 ? 248 : bits == 4 ? 252 : kIntSumExponentMax; }
float PowerOfTwo(uint8_t exponent) { return std::bit_cast<float>(uint32_t{exponent} << 23); }
float InversePowerOfTwo(uint8_t exponent) {
  return std::bit_cast<float>((254 - uint32_t{exponent}) << 23);
}

// Returns the smallest exponent that does not clip a value with these bits.
uint8_t ExponentFor(uint32_t largest_bits, int bits) {
  if (largest_bits == 0) return 0;
  // The largest code is just below a power of two, so only two neighbouring exponents are possible.
  const int field = static_cast<int>(largest_bits >> 23);
  int exponent = std::clamp(field - (bits - 2), 1, int{ExponentMax(bits)});
  const float reach =
      static_cast<float>(IntSumLargestCode(bits)) * PowerOfTwo(static_cast<uint8_t>(exponent));
  if (std::bit_cast<float>(largest_bits) > reach) ++exponent;
  return static_cast<uint8_t>(std::min(exponent, int{ExponentMax(bits)}));
}

// The parts of an intsum payload for `count` elements.
struct IntSumParts {
  int bits;
  absl::Span<const std::byte> used;  // The exponents of the codes.
  // The exponents that would have fitted this sender's values.
  absl::Span<const std::byte> wanted;
  const uint8_t* codes;

  uint8_t exponent(size_t block) const { return static_cast<uint8_t>(used[block]); }
  const uint8_t* block(size_t index) const {
    return codes + index * IntSumCodeBytes(kIntSumBlock, bits);
  }
};

IntSumParts IntSumPartsOf(absl::Span<const std::byte> payload, size_t count) {
  const size_t blocks = IntSumBlocks(count);
  return {.bits = static_cast<int>(payload[0]),
          .used = payload.subspan(1, blocks),
          .wanted = payload.subspan(1 + blocks, blocks),
          .codes = reinterpret_cast<const uint8_t*>(payload.data() + 1 + 2 * blocks)};
}

class IntSumCodec final : public Codec {
 public:
  explicit IntSumCodec(int bits) : bits_(bits) {}

  FormatId format() const override { return FormatId::kIntSum; }
  bool lossless() const override { return false; }
  bool observes() const override { return true; }
  size_t MaxPayloadSize(size_t count, uint32_t) const override {
    return IntSumPayloadSize(count, bits_);
  }
  size_t StateSize(size_t count, uint32_t) const override { return IntSumBlocks(count); }

  void Observe(absl::Span<const std::byte> frames, absl::Span<float> state) const override;
  void Encode(const EncodeInput& input, std::vector<std::byte>* out) const override;

 private:
  // Returns the exponent of a block from the state, or 0 if the state has none.
  uint8_t SharedExponent(absl::Span<const float> state, size_t block) const {
    if (state.empty() || !(state[block] >= 1)) return 0;
    return static_cast<uint8_t>(std::min(state[block], static_cast<float>(ExponentMax(bits_))));
  }
  // Returns the exponent of the chunk's largest value, for blocks without a shared exponent.
  uint8_t FirstExponent(const EncodeInput& input) const {
    for (size_t block = 0; block < IntSumBlocks(input.gradient.size()); ++block) {
      if (SharedExponent(input.state, block) != 0) continue;
      return ExponentFor(
          LargestMagnitudeBits(input.gradient.data(),
                               input.residual.empty() ? nullptr : input.residual.data(),
                               input.gradient.size()),
          bits_);
    }
    return 0;
  }

  const int bits_;
};

void IntSumCodec::Observe(absl::Span<const std::byte> frames, absl::Span<float> state) const {
  absl::Span<const std::byte> exponents;
  while (!frames.empty()) {
    const absl::Span<const std::byte> frame = PopFrame(&frames);
    const FormatId format = FrameFormat(frame).id;
    const absl::Span<const std::byte> payload = FramePayload(frame);
    if (format == FormatId::kExponents) {
      exponents = payload;
      break;
    }
    if (format == FormatId::kIntSum) exponents = payload.subspan(1 + state.size(), state.size());
  }
  if (exponents.size() != state.size() || state.empty()) return;
  // Blocks that have contained only zeros start with the chunk's largest exponent. At worst, this
  // rounds their next values to zero, so the values are delayed by one step. A smaller exponent
  // could clip them for many steps.
  const auto largest = static_cast<uint8_t>(*std::max_element(exponents.begin(), exponents.end()));
  for (size_t block = 0; block < state.size(); ++block) {
    const auto exponent = static_cast<uint8_t>(exponents[block]);
    state[block] = static_cast<float>(exponent == 0 ? largest : exponent);
  }
}

void IntSumCodec::Encode(const EncodeInput& input, std::vector<std::byte>* out) const {
  const size_t size = input.gradient.size();
  const size_t blocks = IntSumBlocks(size);
  const uint8_t first = FirstExponent(input);
  const size_t start = out->size();
  out->resize(start + IntSumPayloadSize(size, bits_));
  auto* const bytes = reinterpret_cast<uint8_t*>(out->data() + start);
  bytes[0] = static_cast<uint8_t>(bits_);
  uint8_t* const used = bytes + 1;
  uint8_t* const wanted = used + blocks;
  uint8_t* packed = wanted + blocks;
  ForEachTile<kIntSumBlock>(
      input, [&](size_t at, const float* gradient, float* residual, size_t count) {
        const size_t block = at / kIntSumBlock;
        const uint8_t shared = SharedExponent(input.state, block);
        used[block] = shared != 0 ? shared : first;
        int8_t codes[kIntSumBlock];
        // With exponent 0, all values are zero, so any scale is correct.
        const uint8_t exponent = std::max(used[block], uint8_t{1});
        const uint32_t largest = QuantizeToPowerOfTwo(gradient, residual, PowerOfTwo(exponent),
                                                      InversePowerOfTwo(exponent),
                                                      IntSumLargestCode(bits_), codes, count);
        wanted[block] = ExponentFor(largest, bits_);
        PackCodes(codes, bits_, packed, count);
        packed += IntSumCodeBytes(count, bits_);
      });
}

// Checks that an encoder could have written the block. Returns a description of the error, or an
// empty string.
absl::string_view IntSumWhatIsWrong(const IntSumParts& parts, size_t block, size_t count) {
  const uint8_t used = parts.exponent(block);
  const auto wanted = static_cast<uint8_t>(parts.wanted[block]);
  if (std::max(used, wanted) > ExponentMax(parts.bits)) return "an exponent that is too large";
  int8_t codes[kIntSumBlock];
  UnpackCodes(parts.block(block), parts.bits, codes, count);
  const auto [least, most] = std::minmax_element(codes, codes + count);
  if (*least < -IntSumLargestCode(parts.bits)) return "an unused code";
  if ((used == 0 || wanted == 0) && (*least != 0 || *most != 0)) return "codes without an exponent";
  const size_t size = IntSumCodeBytes(count, parts.bits);
  for (size_t i = count; i < size * 8 / static_cast<size_t>(parts.bits); ++i) {
    const auto bit = i / size * static_cast<size_t>(parts.bits);
    if ((parts.block(block)[i % size] >> bit & ((1 << parts.bits) - 1)) != 0) {
      return "bits after its last code";
    }
  }
  return "";
}

class IntSumAggregator final : public Aggregator {
 public:
  IntSumAggregator(size_t count, int bits, uint32_t senders)
      : count_(count),
        bits_(bits),
        // If 8-bit sums can hold the codes of all senders, they are used, because they halve the
        // memory traffic.
        small_(bits < 8 && senders <= static_cast<uint32_t>(127 / IntSumLargestCode(bits))),
        frames_max_((small_ ? 127u : 32767u) / static_cast<uint32_t>(IntSumLargestCode(bits))),
        wanted_(IntSumBlocks(count)) {}

  absl::Status Validate(uint32_t, absl::Span<const std::byte> frame) const override {
    absl::Status valid = ValidateFrame(frame, count_);
    if (!valid.ok()) return valid;
    if (IsAddend(FrameFormat(frame))) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("a ", FrameFormat(frame).name, " frame for a chunk with another codec"));
  }

  void Add(absl::Span<const SenderFrame> frames, absl::Span<float> sum) override {
    PrefetchFrames(frames);
    if (!open_) std::fill(wanted_.begin(), wanted_.end(), std::byte{0});
    open_ = true;
    for (const SenderFrame& frame : frames) NoteWanted(frame.frame);
    while (!frames.empty()) {
      const size_t alike = floats_ ? 0 : CountAlike(frames);
      if (alike == 0) break;
      AddCodes(frames.first(alike));
      frames.remove_prefix(alike);
    }
    if (frames.empty()) return;
    if (!floats_ && added_ > 0) WriteSums(1, sum);
    floats_ = true;
    for (const SenderFrame& frame : frames) {
      FrameFormat(frame.frame).decode_add(FramePayload(frame.frame), sum);
    }
  }

  void Close(uint32_t n, absl::Span<float> sum) override {
    const auto divisor = static_cast<float>(n);
    if (floats_ || added_ == 0) {
      DivideBy(divisor, sum.data(), sum.size());
    } else {
      WriteSums(divisor, sum);
    }
    open_ = floats_ = false;
    added_ = 0;
    shared_.resize(wanted_.size());
    std::transform(wanted_.begin(), wanted_.end(), shared_.begin(),
                   [](std::byte exponent) { return static_cast<float>(exponent); });
  }

  void AppendShared(std::vector<std::byte>* out) const override {
    if (shared_.empty()) return;
    exponents_.resize(shared_.size());
    std::transform(shared_.begin(), shared_.end(), exponents_.begin(), [](float exponent) {
      // The value is clamped because a restored value may be any number.
      return static_cast<std::byte>(std::clamp(exponent, 0.0f, float{kIntSumExponentMax}));
    });
    AppendFrame(FormatId::kExponents, count_, exponents_, out);
  }

  std::vector<StateField> State() override {
    return {{"exponents", &shared_, IntSumBlocks(count_)}};
  }

  size_t state_bytes() const override {
    const size_t of_block =
        kIntSumBlock * (small_ ? sizeof(int8_t) : sizeof(int16_t)) + 2 + sizeof(float);
    return IntSumBlocks(count_) * of_block;
  }

 private:
  // With larger exponents, float sums could overflow although the integer sums do not.
  static constexpr uint8_t kExponentOfIntegersMax = 127 + 112;

  void NoteWanted(absl::Span<const std::byte> frame) {
    if (FrameFormat(frame).id != FormatId::kIntSum) return;
    const IntSumParts parts = IntSumPartsOf(FramePayload(frame), count_);
    for (size_t block = 0; block < wanted_.size(); ++block) {
      wanted_[block] = std::max(wanted_[block], parts.wanted[block]);
    }
  }

  // Returns the number of frames at the start of `frames` that can be added to the step's integers
  // in one pass. The first frame of a step sets the exponents.
  size_t CountAlike(absl::Span<const SenderFrame> frames) {
    size_t alike = 0;
    for (; alike < std::min(frames.size(), kCodeFramesMax); ++alike) {
      const absl::Span<const std::byte> frame = frames[alike].frame;
      if (FrameFormat(frame).id != FormatId::kIntSum || added_ + alike == frames_max_) break;
      const IntSumParts parts = IntSumPartsOf(FramePayload(frame), count_);
      if (parts.bits != bits_) break;
      if (added_ + alike == 0) {
        if (std::any_of(parts.used.begin(), parts.used.end(), [](std::byte exponent) {
              return exponent > std::byte{kExponentOfIntegersMax};
            })) {
          break;
        }
        used_.assign(parts.used.begin(), parts.used.end());
      } else if (!std::equal(used_.begin(), used_.end(), parts.used.begin())) {
        break;
      }
    }
    return alike;
  }

  void AddCodes(absl::Span<const SenderFrame> frames) {
    if (small_) {
      small_sums_.resize(IntSumBlocks(count_) * kIntSumBlock);
    } else {
      sums_.resize(IntSumBlocks(count_) * kIntSumBlock);
    }
    const uint8_t* blocks[kCodeFramesMax];
    for (size_t i = 0; i < frames.size(); ++i) {
      blocks[i] = IntSumPartsOf(FramePayload(frames[i].frame), count_).codes;
    }
    const bool start = added_ == 0;
    const size_t step = IntSumCodeBytes(kIntSumBlock, bits_);
    for (size_t at = 0; at + kIntSumBlock <= count_; at += kIntSumBlock) {
      if (small_) {
        AddPackedToInt8(blocks, frames.size(), bits_, start, small_sums_.data() + at);
      } else {
        AddPackedToInt16(blocks, frames.size(), bits_, start, sums_.data() + at);
      }
      for (size_t i = 0; i < frames.size(); ++i) blocks[i] += step;
    }
    for (size_t i = 0; i < frames.size(); ++i) AddLastBlock(blocks[i], start && i == 0);
    added_ += static_cast<uint32_t>(frames.size());
  }

  // Adds the last block if it has fewer than kIntSumBlock elements.
  void AddLastBlock(const uint8_t* packed, bool start) {
    int8_t codes[kIntSumBlock];
    const size_t at = count_ / kIntSumBlock * kIntSumBlock;
    UnpackCodes(packed, bits_, codes, count_ - at);
    for (size_t i = at; i < count_; ++i) {
      if (small_) {
        small_sums_[i] = static_cast<int8_t>((start ? 0 : small_sums_[i]) + codes[i - at]);
      } else {
        sums_[i] = static_cast<int16_t>((start ? 0 : sums_[i]) + codes[i - at]);
      }
    }
  }

  void WriteSums(float divisor, absl::Span<float> out) const {
    for (size_t at = 0; at < count_; at += kIntSumBlock) {
      const float scale = PowerOfTwo(static_cast<uint8_t>(used_[at / kIntSumBlock]));
      const size_t count = std::min(kIntSumBlock, count_ - at);
      if (small_) {
        ScaleInt8(small_sums_.data() + at, scale, divisor, out.data() + at, count);
      } else {
        ScaleInt16(sums_.data() + at, scale, divisor, out.data() + at, count);
      }
    }
  }

  const size_t count_;
  const int bits_;
  const bool small_;
  // The maximum number of frames that the integer sums can hold.
  const uint32_t frames_max_;
  std::vector<int8_t> small_sums_;
  std::vector<int16_t> sums_;
  std::vector<std::byte> used_;  // The exponents of this step's integers.
  // For each block, the largest exponent that a sender wants in this step.
  std::vector<std::byte> wanted_;
  // Number of frames added to the integers.
  uint32_t added_ = 0;
  // True if this step's sums are floats.
  bool floats_ = false;
  bool open_ = false;
  // Scratch buffer of AppendShared.
  mutable std::vector<std::byte> exponents_;
  // `wanted_` of the last closed step. Empty before the first step is closed.
  std::vector<float> shared_;
};

}  // namespace

std::unique_ptr<Codec> MakeIntSum(const CodecSpec& spec) {
  return std::make_unique<IntSumCodec>(static_cast<int>(spec.level));
}

absl::Status ValidateIntSum(absl::Span<const std::byte> payload, size_t count) {
  if (payload.empty()) return PayloadSizeError("intsum", count, IntSumPayloadSize(count, 2), 0);
  const int bits = static_cast<int>(payload[0]);
  if (bits != 2 && bits != 4 && bits != 8) {
    return absl::InvalidArgumentError(
        absl::StrCat("intsum payload: codes of ", bits, " bits; valid are 2, 4 and 8"));
  }
  if (payload.size() != IntSumPayloadSize(count, bits)) {
    return PayloadSizeError("intsum", count, IntSumPayloadSize(count, bits), payload.size());
  }
  const IntSumParts parts = IntSumPartsOf(payload, count);
  for (size_t block = 0; block < IntSumBlocks(count); ++block) {
    const absl::string_view wrong =
        IntSumWhatIsWrong(parts, block, std::min(kIntSumBlock, count - block * kIntSumBlock));
    if (wrong.empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("intsum payload: block ", block, " has ", wrong));
  }
  return absl::OkStatus();
}

void DecodeAddIntSum(absl::Span<const std::byte> payload, absl::Span<float> sum) {
  const IntSumParts parts = IntSumPartsOf(payload, sum.size());
  int8_t codes[kIntSumBlock];
  for (size_t at = 0; at < sum.size(); at += kIntSumBlock) {
    const uint8_t exponent = parts.exponent(at / kIntSumBlock);
    if (exponent == 0) continue;
    const size_t count = std::min(kIntSumBlock, sum.size() - at);
    UnpackCodes(parts.block(at / kIntSumBlock), parts.bits, codes, count);
    AddScaledCodes(codes, PowerOfTwo(exponent), sum.data() + at, count);
  }
}

absl::Status ValidateExponents(absl::Span<const std::byte> payload, size_t count) {
  if (payload.size() != IntSumBlocks(count)) {
    return PayloadSizeError("exponents", count, IntSumBlocks(count), payload.size());
  }
  for (size_t block = 0; block < payload.size(); ++block) {
    if (static_cast<uint8_t>(payload[block]) <= kIntSumExponentMax) continue;
    return absl::InvalidArgumentError(absl::StrCat("exponents payload: the exponent of block ",
                                                   block, " is ", static_cast<int>(payload[block]),
                                                   "; the largest is ", kIntSumExponentMax));
  }
  return absl::OkStatus();
}

void DecodeAddExponents(absl::Span<const std::byte>, absl::Span<float>) {}

std::unique_ptr<Aggregator> MakeIntSumAggregator(size_t count, const CodecSpec& spec,
                                                 uint32_t senders) {
  return std::make_unique<IntSumAggregator>(count, static_cast<int>(spec.level), senders);
}

}  // namespace sluice::compress
