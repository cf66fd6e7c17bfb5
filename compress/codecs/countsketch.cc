// SPDX-License-Identifier: Apache-2.0
#include "compress/codecs/countsketch.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/float_bits.h"
#include "base/random.h"
#include "compress/coding/accumulator.h"
#include "compress/coding/payload.h"
#include "compress/frame.h"

namespace sluice::compress {
namespace {

constexpr size_t kRows = 3;
// Number of elements that are placed together, which is one cache line.
constexpr size_t kCountSketchLine = 16;
// The fewest elements for a sketch. Smaller chunks have one cell per element.
constexpr size_t kFewest = 1024;
constexpr size_t kCountSketchHeaderSize = 5;
// Maximum number of elements published per step, as a share of the cells of a row.
constexpr double kRecovered = 0.1;
// A receiver clamps its cells to this magnitude.
constexpr float kLargestCell = 0x1p120f;

// Returns the number of lines in a row. 0 means that the chunk is small and that the chunk itself
// is its table.
size_t LinesFor(size_t count, double ratio) {
  if (count < kFewest) return 0;
  const double cells = 2 * static_cast<double>(count) / ratio;
  return std::max<size_t>(static_cast<size_t>(cells / (kRows * kCountSketchLine)), 1);
}

size_t CellsFor(size_t count, size_t lines) {
  return lines == 0 ? count : kRows * kCountSketchLine * lines;
}

// The place of a line of elements in one row. Element i of the line belongs to cell (i + turn) mod
// 16 of the line at `first`. The element is negated if bit i of `negative` is set.
struct Place {
  size_t first;
  unsigned turn;
  uint32_t negative;
};

// Places are the same in all jobs and all steps, because a receiver's table is only useful if they
// never change.
Place PlaceOf(size_t line, size_t row, size_t lines) {
  constexpr uint64_t kStep = 0x9E3779B97F4A7C15u;
  const uint64_t hash = MixBits((line * kRows + row + 1) * kStep);
  const size_t bucket = static_cast<size_t>(((hash >> 32) * lines) >> 32);
  return {.first = (row * lines + bucket) * kCountSketchLine,
          .turn = static_cast<unsigned>(hash & (kCountSketchLine - 1)),
          .negative = static_cast<uint32_t>(hash >> 4) & 0xFFFF};
}

float Signed(float value, const Place& place, size_t i) {
  const uint32_t sign = ((place.negative >> i) & 1) << 31;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) ^ sign);
}

size_t CellOf(const Place& place, size_t i) {
  return place.first + ((i + place.turn) % kCountSketchLine);
}

// Adds `count` <= kCountSketchLine elements to their cells.
void AddLine(const float* values, size_t count, const Place& place, float* cells) {
  for (size_t i = 0; i < count; ++i) cells[CellOf(place, i)] += Signed(values[i], place, i);
}

class CountSketchCodec final : public Codec {
 public:
  explicit CountSketchCodec(double ratio) : ratio_(ratio) {}

  FormatId format() const override { return FormatId::kSketch; }
  bool lossless() const override { return false; }
  size_t MaxPayloadSize(size_t count, uint32_t) const override {
    return kCountSketchHeaderSize + CellsFor(count, LinesFor(count, ratio_)) * sizeof(uint16_t);
  }
  void Encode(const EncodeInput& input, std::vector<std::byte>* out) const override;

 private:
  const double ratio_;
};

void CountSketchCodec::Encode(const EncodeInput& input, std::vector<std::byte>* out) const {
  const size_t count = input.gradient.size();
  const size_t lines = LinesFor(count, ratio_);
  std::vector<float>& cells = input.scratch->floats;
  cells.assign(CellsFor(count, lines), 0.0f);
  ForEachTile<kCountSketchLine>(
      input, [&](size_t at, const float* gradient, float* residual, size_t size) {
        float values[kCountSketchLine];
        for (size_t i = 0; i < size; ++i) values[i] = gradient[i] + residual[i];
        // The receiver's table keeps the unpublished amounts, so the sender keeps nothing.
        for (size_t i = 0; i < size; ++i) residual[i] = 0;
        if (lines == 0) {
          std::copy(values, values + size, cells.data() + at);
          return;
        }
        for (size_t row = 0; row < kRows; ++row) {
          AddLine(values, size, PlaceOf(at / kCountSketchLine, row, lines), cells.data());
        }
      });
  ByteWriter writer(out);
  writer.Write(static_cast<uint8_t>(lines == 0 ? 1 : kRows));
  writer.Write(static_cast<uint32_t>(lines));
  const size_t start = out->size();
  out->resize(start + cells.size() * sizeof(uint16_t));
  for (size_t i = 0; i < cells.size(); ++i) {
    StoreAt(out->data() + start, i, ToBfloat(cells[i]));
  }
}

absl::Status BadCountSketch(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("sketch payload: ", what));
}

size_t LinesIn(absl::Span<const std::byte> payload) {
  return LoadAt<uint32_t>(payload.data() + 1, 0);
}

class SketchAggregator final : public Aggregator {
 public:
  SketchAggregator(size_t count, double ratio)
      : count_(count),
        lines_(LinesFor(count, ratio)),
        cells_(CellsFor(count, lines_)),
        owed_(lines_ == 0 ? 0 : cells_) {}

  absl::Status Validate(uint32_t, absl::Span<const std::byte> frame) const override;
  void Add(absl::Span<const SenderFrame> frames, absl::Span<float> sum) override;
  void Close(uint32_t n, absl::Span<float> sum) override;
  std::vector<StateField> State() override {
    if (owed_.empty()) return {};
    return {{"sketch", &owed_, owed_.size()}};
  }
  size_t state_bytes() const override { return owed_.size() * sizeof(float); }

 private:
  using Places = std::array<Place, kRows>;
  Places PlacesOf(size_t line) const {
    Places places;
    for (size_t row = 0; row < kRows; ++row) places[row] = PlaceOf(line, row, lines_);
    return places;
  }
  float Estimate(const Places& places, size_t i) const;
  float ThresholdFor(absl::Span<const float> magnitudes) const;
  void Publish(absl::Span<float> values);

  const size_t count_;
  const size_t lines_;
  const size_t cells_;
  std::vector<float> owed_;  // Table of the amounts that have not been published yet.
};

absl::Status SketchAggregator::Validate(uint32_t, absl::Span<const std::byte> frame) const {
  absl::Status valid = ValidateFrame(frame, count_);
  if (!valid.ok()) return valid;
  if (FrameFormat(frame).id != FormatId::kSketch) {
    return absl::InvalidArgumentError(
        absl::StrCat("a ", FrameFormat(frame).name,
                     " frame for a chunk whose senders use countsketch: send "
                     "countsketch"));
  }
  const size_t lines = LinesIn(FramePayload(frame));
  if (lines == lines_) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a sketch of ", lines, " lines for a table of ",
                                                 lines_,
                                                 " lines: all senders need the same ratio"));
}

// The first elements of `sum` hold the sum of the tables. This is possible because the table does
// not have more cells than `sum` has elements.
void SketchAggregator::Add(absl::Span<const SenderFrame> frames, absl::Span<float> sum) {
  for (const SenderFrame& frame : frames) {
    const std::byte* const cells = FramePayload(frame.frame).data() + kCountSketchHeaderSize;
    for (size_t i = 0; i < cells_; ++i) sum[i] += FromBfloat(LoadAt<uint16_t>(cells, i));
  }
}

void SketchAggregator::Close(uint32_t n, absl::Span<float> sum) {
  const float divisor = static_cast<float>(n);
  if (lines_ == 0) {
    for (float& x : sum) x /= divisor;
    return;
  }
  for (size_t i = 0; i < owed_.size(); ++i) {
    // Clamps cells to a finite size. Otherwise hostile senders could add up to infinity, and a
    // table cannot recover from that.
    owed_[i] = std::clamp(owed_[i] + sum[i] / divisor, -kLargestCell, kLargestCell);
  }
  Publish(sum);
}

// Returns the median of the rows' values, or 0 if the rows have different signs. Therefore,
// subtracting the result from the table always reduces the table's contents, and the receiver's
// backlog cannot grow without input.
float SketchAggregator::Estimate(const Places& places, size_t i) const {
  static_assert(kRows == 3);
  float values[kRows];
  for (size_t row = 0; row < kRows; ++row) {
    values[row] = Signed(owed_[CellOf(places[row], i)], places[row], i);
  }
  const float low = std::min({values[0], values[1], values[2]});
  const float high = std::max({values[0], values[1], values[2]});
  if (!(low > 0) && !(high < 0)) return 0;
  return std::max(std::min(values[0], values[1]),
                  std::min(std::max(values[0], values[1]), values[2]));
}

// Returns the k-th largest magnitude, which is the lower limit for published elements. The function
// determines the bits of the result from the top down, so it needs no copy of the magnitudes.
float SketchAggregator::ThresholdFor(absl::Span<const float> magnitudes) const {
  size_t left =
      static_cast<size_t>(std::ceil(kRecovered * static_cast<double>(lines_ * kCountSketchLine)));
  constexpr uint32_t kDigit = 11;
  std::array<uint32_t, 1 << kDigit> counts;
  uint32_t found = 0;  // The bits of the result from `shift` up.
  for (uint32_t shift = 32; shift > 0;) {
    const uint32_t digit = std::min(kDigit, shift);
    shift -= digit;
    counts.fill(0);
    for (const float x : magnitudes) {
      const uint64_t bits = std::bit_cast<uint32_t>(x);
      if (bits >> (shift + digit) != found) continue;
      ++counts[(bits >> shift) & ((1u << digit) - 1)];
    }
    uint32_t at = (1u << digit) - 1;
    for (; left > counts[at]; --at) left -= counts[at];
    found = found << digit | at;
  }
  return std::bit_cast<float>(found);
}

void SketchAggregator::Publish(absl::Span<float> values) {
  for (size_t at = 0; at < count_; at += kCountSketchLine) {
    const Places places = PlacesOf(at / kCountSketchLine);
    for (size_t i = 0; i < std::min(kCountSketchLine, count_ - at); ++i) {
      values[at + i] = std::abs(Estimate(places, i));
    }
  }
  const float threshold = ThresholdFor(values);
  for (size_t at = 0; at < count_; at += kCountSketchLine) {
    Places places;
    bool placed = false;
    for (size_t i = 0; i < std::min(kCountSketchLine, count_ - at); ++i) {
      const bool large = values[at + i] > 0 && values[at + i] >= threshold;
      values[at + i] = 0;
      if (!large) continue;
      if (!placed) places = PlacesOf(at / kCountSketchLine);
      placed = true;
      // Repeat the estimate, because elements in the same cells may have been subtracted in the
      // meantime.
      const float value = Estimate(places, i);
      values[at + i] = value;
      for (const Place& place : places) owed_[CellOf(place, i)] -= Signed(value, place, i);
    }
  }
}

}  // namespace

std::unique_ptr<Codec> MakeCountSketch(const CodecSpec& spec) {
  return std::make_unique<CountSketchCodec>(spec.level);
}

absl::Status ValidateSketch(absl::Span<const std::byte> payload, size_t count) {
  if (payload.size() < kCountSketchHeaderSize)
    return BadCountSketch("it is too short for its header");
  const size_t rows = static_cast<size_t>(payload[0]);
  const size_t lines = LinesIn(payload);
  if (count < kFewest ? rows != 1 || lines != 0 : rows != kRows || lines == 0) {
    return BadCountSketch(
        absl::StrCat(rows, " rows of ", lines, " lines for ", count, " elements"));
  }
  const size_t cells = CellsFor(count, lines);
  if (cells > count) return BadCountSketch("it has more cells than elements");
  if (payload.size() != kCountSketchHeaderSize + cells * sizeof(uint16_t)) {
    return PayloadSizeError("sketch", count, kCountSketchHeaderSize + cells * sizeof(uint16_t),
                            payload.size());
  }
  for (size_t i = 0; i < cells; ++i) {
    if (IsFinite(FromBfloat(LoadAt<uint16_t>(payload.data() + kCountSketchHeaderSize, i))))
      continue;
    return BadCountSketch(absl::StrCat("cell ", i, " is not finite"));
  }
  return absl::OkStatus();
}

std::unique_ptr<Aggregator> MakeSketchAggregator(size_t count, double ratio) {
  return std::make_unique<SketchAggregator>(count, ratio);
}

}  // namespace sluice::compress
