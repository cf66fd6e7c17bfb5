// SPDX-License-Identifier: Apache-2.0
#include "compress/frame_part.h"

#include "compress/coding/payload.h"
#include "compress/format_table.h"
#include "compress/frame.h"
#include "compress/simd/accumulate.h"
#include "compress/simd/compensate.h"
#include "hwy/cache_control.h"

namespace sluice::compress {
namespace {

// Adds in 16 lanes, as SumOfSquares does, so that the result is the same on every machine.
double DotProduct(const float* a, const float* b, size_t count) {
  constexpr size_t kLanes = 16;
  double lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += static_cast<double>(a[i + lane]) * static_cast<double>(b[i + lane]);
    }
  }
  for (; i < count; ++i) {
    lanes[i % kLanes] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

// Returns the format if there is only one frame, and otherwise nullptr.
const FormatEntry* OnlyFormat(absl::Span<const std::byte> frames) {
  absl::Span<const std::byte> rest = frames;
  PopFrame(&rest);
  return rest.empty() ? &FrameFormat(frames) : nullptr;
}

// Decodes the part into `*scratch` and returns it.
absl::Span<const float> DecodePart(const ChunkPart& part, absl::Span<const std::byte> frames,
                                   std::vector<float>* scratch) {
  const FormatEntry* const format = OnlyFormat(frames);
  if (format != nullptr && format->decode_add_part != nullptr) {
    scratch->assign(part.size, 0.0f);
    format->decode_add_part(FramePayload(frames), part.count, part.first, absl::MakeSpan(*scratch));
    return *scratch;
  }
  scratch->assign(part.count, 0.0f);
  AddValidFrames(frames, absl::MakeSpan(*scratch));
  return absl::MakeConstSpan(*scratch).subspan(part.first, part.size);
}

}  // namespace

bool DecodeInParts(absl::Span<const std::byte> frames) {
  const FormatEntry* const format = OnlyFormat(frames);
  return format != nullptr && format->decode_add_part != nullptr;
}

double SquaresIn(const ChunkPart& part, absl::Span<const std::byte> frames,
                 std::vector<float>* scratch) {
  const FormatEntry* const format = OnlyFormat(frames);
  if (format != nullptr && format->estimate_squares != nullptr) {
    const double from = static_cast<double>(part.first) / part.count;
    const double share = static_cast<double>(part.size) / part.count;
    return share * format->estimate_squares(FramePayload(frames), from, share);
  }
  const absl::Span<const float> values = DecodePart(part, frames, scratch);
  return SumOfSquares(values.data(), values.size());
}

void AddScaledPart(const ChunkPart& part, absl::Span<const std::byte> frames, float scale,
                   std::vector<float>* scratch, absl::Span<float> sum) {
  if (part.whole()) return AddScaledValidFrames(frames, scale, scratch, sum);
  const absl::Span<const float> values = DecodePart(part, frames, scratch);
  AddScaled(scale, values.data(), sum.data(), sum.size());
}

double DotWithPart(const ChunkPart& part, absl::Span<const std::byte> frames,
                   absl::Span<const float> other, std::vector<float>* scratch) {
  const FormatEntry* const format = OnlyFormat(frames);
  if (format != nullptr && format->for_each_batch != nullptr && part.whole()) {
    double dot = 0;
    format->for_each_batch(FramePayload(frames),
                           [&](const uint32_t* positions, absl::Span<const float> values) {
                             // The elements are usually not in a cache.
                             for (size_t i = 0; i < values.size(); ++i)
                               hwy::Prefetch(other.data() + positions[i]);
                             for (size_t i = 0; i < values.size(); ++i) {
                               dot += double{values[i]} * double{other[positions[i]]};
                             }
                           });
    return dot;
  }
  const absl::Span<const float> values = DecodePart(part, frames, scratch);
  return DotProduct(values.data(), other.data(), other.size());
}

void AddWhereSent(absl::Span<const std::byte> frames, float weight, std::vector<float>* scratch,
                  absl::Span<float> totals) {
  const FormatEntry* const format = OnlyFormat(frames);
  if (format != nullptr && format->for_each_batch != nullptr) {
    format->for_each_batch(FramePayload(frames),
                           [&](const uint32_t* positions, absl::Span<const float> values) {
                             for (size_t i = 0; i < values.size(); ++i) {
                               if (values[i] != 0) totals[positions[i]] += weight;
                             }
                           });
    return;
  }
  const absl::Span<const float> values =
      DecodePart(WholeChunk(static_cast<uint32_t>(totals.size())), frames, scratch);
  for (size_t i = 0; i < values.size(); ++i) totals[i] += values[i] != 0 ? weight : 0;
}

}  // namespace sluice::compress
