// SPDX-License-Identifier: Apache-2.0
#include "follow/step_coding.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

namespace sluice::follow {
namespace {

using compress::BytesFor;

// The smallest magnitude that is listed.
constexpr uint32_t kLargeStep = 2;
constexpr int kParameterMax = 31;

uint32_t PackWord(size_t number, int upper) {
  return static_cast<uint32_t>(number) | static_cast<uint32_t>(upper) << kNumberBits;
}

// An Exp-Golomb code of v with parameter b: the class c = floor(log2(q + 1)) of the quotient
// q = floor(v / 2^b) in unary, c further bits of q + 1, and the b low bits of v.
int ClassOf(uint64_t value, int parameter) { return std::bit_width((value >> parameter) + 1) - 1; }

uint64_t SumOfClasses(absl::Span<const uint32_t> values, int parameter) {
  uint64_t sum = 0;
  for (const uint32_t value : values) sum += static_cast<uint64_t>(ClassOf(value, parameter));
  return sum;
}

// Returns a parameter near the one with the fewest bits. A histogram of widths selects three
// candidates, whose bits are then counted.
int ChooseParameter(absl::Span<const uint32_t> values) {
  std::array<uint64_t, 34> widths{};
  for (const uint32_t value : values) ++widths[static_cast<size_t>(ClassOf(value, 0))];
  const auto estimate = [&](int parameter) {
    uint64_t bits = 0;
    for (int width = 0; width < 34; ++width) {
      const int over = std::max(width - parameter, 0);
      bits += widths[static_cast<size_t>(width)] * static_cast<uint64_t>(parameter + 2 * over);
    }
    return bits;
  };
  int middle = 0;
  for (int parameter = 1; parameter <= kParameterMax; ++parameter) {
    if (estimate(parameter) < estimate(middle)) middle = parameter;
  }
  int best = middle;
  uint64_t best_bits = std::numeric_limits<uint64_t>::max();
  for (int parameter = std::max(middle - 1, 0); parameter <= std::min(middle + 1, kParameterMax);
       ++parameter) {
    const uint64_t bits =
        2 * SumOfClasses(values, parameter) + values.size() * static_cast<uint64_t>(parameter);
    if (bits < best_bits) {
      best = parameter;
      best_bits = bits;
    }
  }
  return best;
}

// Sets bits of a plane one after another, from the lowest bit of the first byte.
class BitWriter {
 public:
  explicit BitWriter(std::vector<std::byte>* out) : out_(out) {}

  void Write(uint32_t value, int width) {
    word_ |= uint64_t{value} << filled_;
    for (filled_ += width; filled_ >= 8; filled_ -= 8) {
      out_->push_back(static_cast<std::byte>(word_));
      word_ >>= 8;
    }
  }
  void Finish() {
    if (filled_ > 0) out_->push_back(static_cast<std::byte>(word_));
  }

 private:
  std::vector<std::byte>* const out_;
  uint64_t word_ = 0;
  int filled_ = 0;
};

// Returns up to 32 bits of a plane from bit `at` on.
uint32_t BitsAt(absl::Span<const std::byte> plane, uint64_t at, int width) {
  const absl::Span<const std::byte> from =
      plane.subspan(std::min(static_cast<size_t>(at / 8), plane.size()));
  uint64_t word = 0;
  if (!from.empty()) std::memcpy(&word, from.data(), std::min(from.size(), sizeof(word)));
  return static_cast<uint32_t>((word >> (at % 8)) & ((uint64_t{1} << width) - 1));
}

// Decodes one code. `number` is the class, followed by the low bits.
uint64_t ValueOf(uint64_t number, int parameter, uint32_t extra) {
  const uint64_t low = number & ((uint64_t{1} << parameter) - 1);
  const uint64_t quotient = (uint64_t{1} << (number >> parameter)) - 1 + extra;
  return (quotient << parameter) + low;
}

// Checks that all codes are complete and that no magnitude exceeds the limit.
absl::string_view CodesProblem(const StepPlanes& planes, uint32_t magnitude_max) {
  const size_t count = planes.large.kept;
  if (!compress::IsPadded(planes.lows, count * static_cast<uint64_t>(planes.parameter)) ||
      !compress::IsUnaryPlane(planes.classes, count)) {
    return "its planes of step sizes do not hold the announced number of steps";
  }
  uint64_t extra_bits = 0;
  bool in_range = true;
  compress::ForEachRice(planes.lows, planes.classes, planes.parameter, [&](uint64_t number) {
    const uint64_t bits = number >> planes.parameter;
    if (bits > kParameterMax) return in_range = false;
    const uint32_t extra = BitsAt(planes.extras, extra_bits, static_cast<int>(bits));
    extra_bits += bits;
    in_range = ValueOf(number, planes.parameter, extra) + kLargeStep <= magnitude_max;
    return in_range;
  });
  if (!in_range) return "a step is larger than the number of bit patterns";
  return compress::IsPadded(planes.extras, extra_bits) ? "" : "its plane of extra bits is wrong";
}

}  // namespace

void AppendPositions(absl::Span<const uint32_t> gaps, std::vector<std::byte>* out) {
  ByteWriter writer(out);
  if (gaps.empty()) return writer.Write(uint32_t{0});
  uint64_t sum = 0;
  for (const uint32_t gap : gaps) sum += gap;
  const compress::IndexLayout plan = compress::PlanPositions(compress::IndexMode::kAuto, gaps, sum);
  writer.Write(PackWord(gaps.size(), plan.coding));
  writer.Write(static_cast<uint32_t>(BytesFor(plan.last_bits)));
  compress::AppendFirstPlanes(plan, gaps, out);
  compress::AppendLastPlane(plan, gaps, out);
}

absl::string_view ReadPositions(ByteReader* reader, size_t count,
                                compress::PositionPlanes* planes) {
  const auto word = reader->Read<uint32_t>();
  planes->kept = word & kNumberMask;
  planes->coding = static_cast<uint8_t>(word >> kNumberBits);
  if (!reader->ok()) return "it ends before its positions";
  if (planes->kept == 0) return planes->coding == 0 ? "" : "it has a coding but no positions";
  if (planes->kept > count) return "it has more positions than elements";
  const auto last = reader->Read<uint32_t>();
  if (!compress::ReadFirstPlanes(reader, planes)) {
    return "the coding of its positions is unknown, or it ends before them";
  }
  planes->last = reader->ReadBytes(last);
  if (!reader->ok()) return "it ends before its positions do";
  return compress::PositionProblem(*planes, count);
}

void AppendSteps(absl::Span<const Step> steps, std::vector<std::byte>* out) {
  const size_t at = out->size();
  out->resize(at + BytesFor(steps.size()));
  std::vector<uint32_t> gaps, values;
  size_t next = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].down) (*out)[at + i / 8] |= std::byte{1} << (i % 8);
    if (steps[i].magnitude < kLargeStep) continue;
    gaps.push_back(static_cast<uint32_t>(i - next));
    next = i + 1;
    values.push_back(steps[i].magnitude - kLargeStep);
  }
  AppendPositions(gaps, out);
  if (values.empty()) return;

  const int parameter = ChooseParameter(values);
  const uint64_t class_bits = SumOfClasses(values, parameter) + values.size();
  ByteWriter(out).Write(PackWord(BytesFor(class_bits), parameter));
  compress::AppendRemainders(values, parameter, out);
  for (size_t i = 0; i < values.size(); ++i) {
    gaps[i] = static_cast<uint32_t>(ClassOf(values[i], parameter));  // From now on, classes.
  }
  compress::AppendUnary(gaps, {.parameter = 0, .unary_bits = class_bits}, out);
  BitWriter extras(out);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto code = static_cast<uint32_t>((values[i] >> parameter) + 1);
    extras.Write(code - (uint32_t{1} << gaps[i]), static_cast<int>(gaps[i]));
  }
  extras.Finish();
}

absl::string_view ReadSteps(ByteReader* reader, size_t count, uint32_t magnitude_max,
                            StepPlanes* planes) {
  planes->directions = reader->ReadBytes(BytesFor(count));
  if (!reader->ok()) return "it ends before the directions of its steps";
  if (!compress::IsPadded(planes->directions, count)) return "padding is not zero";
  if (const absl::string_view problem = ReadPositions(reader, count, &planes->large);
      !problem.empty()) {
    return problem;
  }
  if (planes->large.kept == 0) {
    return reader->remaining() == 0 ? "" : "bytes follow its steps";
  }
  const auto word = reader->Read<uint32_t>();
  planes->parameter = static_cast<int>(word >> kNumberBits);
  if (planes->parameter > kParameterMax) return "the parameter of its step sizes is above 31";
  planes->lows = reader->ReadBytes(compress::RemainderBytes(planes->large.kept, planes->parameter));
  planes->classes = reader->ReadBytes(word & kNumberMask);
  planes->extras = reader->ReadBytes(reader->remaining());
  if (!reader->ok()) return "it ends before the sizes of its steps";
  return CodesProblem(*planes, magnitude_max);
}

StepReader::StepReader(const StepPlanes& planes)
    : planes_(planes),
      ranks_(planes.large),
      numbers_(planes.lows, planes.classes, planes.parameter) {}

uint32_t StepReader::NextMagnitude() {
  const uint32_t number = numbers_.Next();
  const auto bits = static_cast<int>(number >> planes_.parameter);
  const uint32_t extra = BitsAt(planes_.extras, extra_bit_, bits);
  extra_bit_ += static_cast<uint64_t>(bits);
  return static_cast<uint32_t>(ValueOf(number, planes_.parameter, extra) + kLargeStep);
}

void StepReader::Read(size_t count, Step* steps) {
  for (size_t i = 0; i < count; ++i) {
    const size_t rank = done_ + i;
    const auto byte = static_cast<unsigned>(planes_.directions[rank / 8]);
    steps[i] = {.magnitude = 1, .down = (byte >> (rank % 8) & 1) != 0};
  }
  for (;;) {
    if (batch_at_ == batch_size_) {
      batch_at_ = 0;
      batch_size_ = ranks_.Read(batch_);
      if (batch_size_ == 0) break;
    }
    const size_t rank = batch_[batch_at_];
    if (rank >= done_ + count) break;
    steps[rank - done_].magnitude = NextMagnitude();
    ++batch_at_;
  }
  done_ += count;
}

}  // namespace sluice::follow
