// SPDX-License-Identifier: Apache-2.0
#include "compress/codecs/lsh.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/float_bits.h"
#include "base/random.h"
#include "compress/coding/accumulator.h"
#include "compress/coding/payload.h"
#include "compress/frame.h"
#include "compress/simd/intsum.h"
#include "compress/simd/linear.h"
#include "compress/simd/rotation.h"

namespace sluice::compress {
namespace {

constexpr size_t kLshBlock = kLinearBlock;
constexpr int kMostCode = 127;
constexpr int kMatchingMax = 64;  // Maximum number of differing signs, out of 256.

// Scales and gains are bf16 numbers. A gain of 0 represents a block of zeros and needs no memory.
constexpr uint16_t kScaleMin = 0x0080;  // Allows only normal numbers.
constexpr uint16_t kScaleMax = 0x7C01;  // Keeps the largest code finite.
constexpr uint16_t kGainMin = 0x3780;   // 2^-16
constexpr uint16_t kGainMax = 0x4300;   // 128
// Blocks with a larger scale are not remembered, so that a gain times a block is always finite.
constexpr uint16_t kRememberedMax = 0x7780;  // 2^112

size_t LshBlocks(size_t count) { return (count + kLshBlock - 1) / kLshBlock; }
size_t BitmapSize(size_t count) { return (LshBlocks(count) + 7) / 8; }
size_t HeadSize(size_t count) {
  return sizeof(uint32_t) + BitmapSize(count) + 2 * LshBlocks(count);
}

// The memory of one sender, which sender and receiver both keep: the decoded blocks that the sender
// last sent in full, or zeros for blocks that it never sent. `stamp` identifies the contents of the
// memory. It is 0 while the memory is all zeros, and otherwise the checksum of the last frame that
// changed the memory. Each frame names the stamp of the memory that it was encoded with.
constexpr size_t kStampFloats = 2;  // Each float holds 16 bits, so the floats are exact.

uint32_t LoadStamp(const float* state) {
  // The value is clamped because a restored value may be any number.
  const auto half = [](float x) { return static_cast<uint32_t>(std::clamp(x, 0.0f, 65535.0f)); };
  return half(state[0]) | half(state[1]) << 16;
}

void StoreStamp(uint32_t stamp, float* state) {
  state[0] = static_cast<float>(stamp & 0xFFFF);
  state[1] = static_cast<float>(stamp >> 16);
}

uint32_t StampOf(absl::Span<const std::byte> payload) {
  return std::max(Crc32c(payload), uint32_t{1});
}

struct LshParts {
  uint32_t from;  // Stamp of the memory that the frame refers to.
  const std::byte* bitmap;
  const std::byte* levels;
  const std::byte* codes;

  bool full(size_t block) const {
    return ((static_cast<uint8_t>(bitmap[block / 8]) >> (block % 8)) & 1) != 0;
  }
  uint16_t level(size_t block) const { return LoadAt<uint16_t>(levels, block); }
};

LshParts LshPartsOf(absl::Span<const std::byte> payload, size_t count) {
  const std::byte* const bitmap = payload.data() + sizeof(uint32_t);
  return {.from = LoadAt<uint32_t>(payload.data(), 0),
          .bitmap = bitmap,
          .levels = bitmap + BitmapSize(count),
          .codes = payload.data() + HeadSize(count)};
}

// Calls fn(offset, size, level, codes) for each block. `codes` is null if the level is a gain.
template <typename Fn>
void ForEachBlock(absl::Span<const std::byte> payload, size_t count, Fn fn) {
  const LshParts parts = LshPartsOf(payload, count);
  auto codes = reinterpret_cast<const int8_t*>(parts.codes);
  for (size_t block = 0; block < LshBlocks(count); ++block) {
    const size_t size = std::min(kLshBlock, count - block * kLshBlock);
    const bool full = parts.full(block);
    fn(block * kLshBlock, size, parts.level(block), full ? codes : nullptr);
    if (full) codes += size;
  }
}

bool HasFull(absl::Span<const std::byte> payload, size_t count) {
  const LshParts parts = LshPartsOf(payload, count);
  return std::any_of(parts.bitmap, parts.levels,
                     [](std::byte bits) { return bits != std::byte{0}; });
}

void Remember(const int8_t* codes, uint16_t scale, float* memory, size_t count) {
  std::fill(memory, memory + count, 0.0f);
  if (scale <= kRememberedMax) AddScaledCodes(codes, FromBfloat(scale), memory, count);
}

void AddGain(float gain, const float* memory, float* sum, size_t count) {
  for (size_t i = 0; i < count; ++i) sum[i] += gain * memory[i];
}

// Returns the scale, rounded up so that no value of the block is clipped. Returns 0 if the scale
// would be subnormal.
uint16_t ScaleFor(float largest) {
  const uint32_t up = (std::bit_cast<uint32_t>(largest / kMostCode) + 0xFFFF) >> 16;
  return up < kScaleMin ? 0 : static_cast<uint16_t>(std::min(up, uint32_t{kScaleMax}));
}

using Signs = std::array<uint64_t, kLshBlock / 64>;

// Returns the signs of the projections H D x, where D are random signs and H is the Walsh-Hadamard
// matrix.
Signs SimHash(const float* x, size_t count, const Signs& random) {
  float y[kLshBlock] = {};
  std::copy(x, x + count, y);
  uint32_t largest = 0;
  for (const float value : y) largest = std::max(largest, MagnitudeBits(value));
  // The exponent of the power of two that scales the largest value to about 1.
  const uint32_t exponent = std::clamp(254 - (largest >> 23), uint32_t{1}, uint32_t{254});
  FlipSigns(y, random.data(), std::bit_cast<float>(exponent << 23), y, kLshBlock);
  WalshHadamard(y, kLshBlock);
  Signs signs = {};
  for (size_t i = 0; i < kLshBlock; ++i) {
    signs[i / 64] |= uint64_t{y[i] < 0 ? 1u : 0u} << (i % 64);
  }
  return signs;
}

bool PointTheSameWay(const float* a, const float* b, size_t count, uint64_t key, size_t block) {
  Signs random;
  CounterRandom numbers(key, block);
  for (uint64_t& word : random) word = numbers.Next();
  const Signs of_a = SimHash(a, count, random), of_b = SimHash(b, count, random);
  int different = 0;
  for (size_t i = 0; i < of_a.size(); ++i) different += std::popcount(of_a[i] ^ of_b[i]);
  return different <= kMatchingMax;
}

// Computes the inner product. The function sums in 16 lanes, then adds lanes l and l + 8, lanes l
// and l + 4, and so on. The compiler vectorises this order, and the result is the same on every
// machine. The product of two floats is exact in a double.
double Product(const float* a, const float* b, size_t count) {
  constexpr size_t kLanes = 16;
  double lanes[kLanes] = {};
  size_t at = 0;
  for (; at + kLanes <= count; at += kLanes) {
    for (size_t i = 0; i < kLanes; ++i) lanes[i] += double{a[at + i]} * double{b[at + i]};
  }
  for (size_t i = 0; at + i < count; ++i) lanes[i] += double{a[at + i]} * double{b[at + i]};
  for (size_t half = kLanes / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

// Returns the gain that minimises the remainder of acc, or 0 if the block must be sent in full.
uint16_t GainFor(const float* acc, const float* memory, size_t count, uint64_t key, size_t block) {
  const double energy = Product(memory, memory, count);
  if (energy == 0 || !PointTheSameWay(acc, memory, count, key, block)) return 0;
  const double exact = Product(acc, memory, count) / energy;
  // A hash may misjudge the angle. The gain is then too small to be worth sending, or is not even
  // positive.
  if (!(exact >= FromBfloat(kGainMin)) || exact > FromBfloat(kGainMax)) return 0;
  return ToBfloat(static_cast<float>(exact));
}

class LshCodec final : public Codec {
 public:
  FormatId format() const override { return FormatId::kLsh; }
  bool lossless() const override { return false; }
  size_t MaxPayloadSize(size_t count, uint32_t) const override { return HeadSize(count) + count; }
  size_t StateSize(size_t count, uint32_t) const override { return kStampFloats + count; }
  void Encode(const EncodeInput& input, std::vector<std::byte>* out) const override;
  void ReturnFrame(absl::Span<const std::byte> payload, absl::Span<float> state,
                   absl::Span<float> values) const override;
};

// Without a state, every block is encoded in full, as in a sender's first frame.
void LshCodec::Encode(const EncodeInput& input, std::vector<std::byte>* out) const {
  const size_t size = input.gradient.size();
  const size_t start = out->size();
  out->resize(start + MaxPayloadSize(size, 0));
  std::byte* const head = out->data() + start;
  std::byte* const bitmap = head + sizeof(uint32_t);
  std::byte* const levels = bitmap + BitmapSize(size);
  auto codes = reinterpret_cast<int8_t*>(head + HeadSize(size));
  const bool remembers = !input.state.empty();
  StoreAt(head, 0, remembers ? LoadStamp(input.state.data()) : uint32_t{0});
  bool changed = false;
  ForEachTile<kLshBlock>(input, [&](size_t at, const float* gradient, float* acc, size_t count) {
    const size_t block = at / kLshBlock;
    const float largest = std::bit_cast<float>(AccumulateBlock(gradient, acc, count));
    const uint16_t scale = ScaleFor(largest);
    float* const memory = remembers ? input.state.data() + kStampFloats + at : nullptr;
    const uint16_t gain =
        scale == 0 || !remembers ? 0 : GainFor(acc, memory, count, input.shared_key, block);
    if (gain != 0 || scale == 0) {
      StoreAt(levels, block, gain);
      if (gain != 0) AddGain(-FromBfloat(gain), memory, acc, count);
      return;
    }
    StoreAt(levels, block, scale);
    bitmap[block / 8] |= static_cast<std::byte>(1 << (block % 8));
    QuantizeBlock(FromBfloat(scale), 1 / FromBfloat(scale), kMostCode, acc, codes, count);
    if (remembers) Remember(codes, scale, memory, count);
    codes += count;
    changed = true;
  });
  out->resize(static_cast<size_t>(reinterpret_cast<std::byte*>(codes) - out->data()));
  if (remembers && changed) {
    StoreStamp(StampOf(absl::MakeConstSpan(*out).subspan(start)), input.state.data());
  }
}

// The memory already contains the blocks that the frame sent in full. Its other blocks are
// unchanged.
void LshCodec::ReturnFrame(absl::Span<const std::byte> payload, absl::Span<float> state,
                           absl::Span<float> values) const {
  const float* const memory = state.data() + kStampFloats;
  ForEachBlock(payload, values.size(),
               [&](size_t at, size_t size, uint16_t level, const int8_t* codes) {
                 if (codes != nullptr) {
                   AddScaledCodes(codes, FromBfloat(level), values.data() + at, size);
                 } else {
                   AddGain(FromBfloat(level), memory + at, values.data() + at, size);
                 }
               });
  // The receiver has not seen the full blocks, so the memory starts empty again.
  std::fill(state.begin(), state.end(), 0.0f);
}

class LshAggregator final : public Aggregator {
 public:
  LshAggregator(size_t count, uint32_t senders)
      : count_(count), stamps_(kStampFloats * senders), memories_(count * senders) {}

  absl::Status Validate(uint32_t sender, absl::Span<const std::byte> frame) const override;
  void Add(absl::Span<const SenderFrame> frames, absl::Span<float> sum) override {
    for (const SenderFrame& frame : frames) AddOne(frame.sender, FramePayload(frame.frame), sum);
  }
  void Close(uint32_t n, absl::Span<float> sum) override {
    const float divisor = static_cast<float>(n);
    for (float& x : sum) x /= divisor;
  }
  std::vector<StateField> State() override {
    return {{"stamps", &stamps_, stamps_.size(), /*by_sender=*/true},
            {"blocks", &memories_, memories_.size(), /*by_sender=*/true}};
  }
  size_t state_bytes() const override {
    return (stamps_.size() + memories_.size()) * sizeof(float);
  }

 private:
  void AddOne(uint32_t sender, absl::Span<const std::byte> payload, absl::Span<float> sum);

  const size_t count_;
  std::vector<float> stamps_;
  std::vector<float> memories_;  // The memories of all senders, one after another.
};

absl::Status LshAggregator::Validate(uint32_t sender, absl::Span<const std::byte> frame) const {
  absl::Status valid = ValidateFrame(frame, count_);
  if (!valid.ok()) return valid;
  if (FrameFormat(frame).id != FormatId::kLsh) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a ", FrameFormat(frame).name, " frame for a chunk whose senders use lsh: send lsh"));
  }
  if (kStampFloats * size_t{sender} >= stamps_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("sender ", sender, " of ", stamps_.size() / kStampFloats, " does not exist"));
  }
  const uint32_t from = LshPartsOf(FramePayload(frame), count_).from;
  const uint32_t here = LoadStamp(stamps_.data() + kStampFloats * sender);
  if (from == 0 || from == here) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("an lsh frame refers to memory ", absl::Hex(from), ", but the receiver has ",
                   here == 0 ? "none" : absl::StrCat(absl::Hex(here)),
                   ": a frame was lost, or only one side was restarted; restart "
                   "both from one checkpoint"));
}

void LshAggregator::AddOne(uint32_t sender, absl::Span<const std::byte> payload,
                           absl::Span<float> sum) {
  float* const memory = memories_.data() + count_ * sender;
  float* const stamp = stamps_.data() + kStampFloats * sender;
  if (LshPartsOf(payload, count_).from == 0) {
    std::fill(memory, memory + count_, 0.0f);
    StoreStamp(0, stamp);
  }
  ForEachBlock(payload, count_, [&](size_t at, size_t size, uint16_t level, const int8_t* codes) {
    if (codes == nullptr) {
      if (level != 0) AddGain(FromBfloat(level), memory + at, sum.data() + at, size);
      return;
    }
    AddScaledCodes(codes, FromBfloat(level), sum.data() + at, size);
    Remember(codes, level, memory + at, size);
  });
  if (HasFull(payload, count_)) StoreStamp(StampOf(payload), stamp);
}

absl::string_view LshWhatIsWrong(uint32_t from, uint16_t level, const int8_t* codes, size_t size) {
  if (codes == nullptr) {
    if (level == 0) return "";
    if (from == 0) return "a gain in a frame that refers to an empty memory";
    return level < kGainMin || level > kGainMax ? "a gain that is out of range" : "";
  }
  if (level < kScaleMin || level > kScaleMax) return "a scale that is out of range";
  const int largest = LargestCode(codes, size);
  if (largest > kMostCode) return "an unused code";
  return largest == 0 ? "a scale without codes" : "";
}

}  // namespace

std::unique_ptr<Codec> MakeLsh(const CodecSpec&) { return std::make_unique<LshCodec>(); }

absl::Status ValidateLsh(absl::Span<const std::byte> payload, size_t count) {
  if (payload.size() < HeadSize(count)) {
    return PayloadSizeError("lsh", count, HeadSize(count), payload.size());
  }
  const LshParts parts = LshPartsOf(payload, count);
  for (size_t block = LshBlocks(count); block < 8 * BitmapSize(count); ++block) {
    if (parts.full(block)) {
      return absl::InvalidArgumentError("lsh payload: bits after the bit of its last block");
    }
  }
  size_t wanted = HeadSize(count);
  for (size_t block = 0; block < LshBlocks(count); ++block) {
    if (parts.full(block)) wanted += std::min(kLshBlock, count - block * kLshBlock);
  }
  if (payload.size() != wanted) return PayloadSizeError("lsh", count, wanted, payload.size());
  absl::Status status;
  ForEachBlock(payload, count, [&](size_t at, size_t size, uint16_t level, const int8_t* codes) {
    const absl::string_view wrong = LshWhatIsWrong(parts.from, level, codes, size);
    if (wrong.empty() || !status.ok()) return;
    status = absl::InvalidArgumentError(
        absl::StrCat("lsh payload: block ", at / kLshBlock, " has ", wrong));
  });
  return status;
}

std::unique_ptr<Aggregator> MakeLshAggregator(size_t count, uint32_t senders) {
  return std::make_unique<LshAggregator>(count, senders);
}

}  // namespace sluice::compress
