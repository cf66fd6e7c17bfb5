// SPDX-License-Identifier: Apache-2.0
#include "worker/data/source/resample.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace sluice::worker {
namespace {

constexpr int kBits = 16;
constexpr uint32_t kOne = 1u << kBits;

// The source pixels that form one pixel of a scaled line. `weights` starts at pixel `first` and
// adds up to kOne.
struct Tap {
  uint32_t first = 0;
  std::vector<uint32_t> weights;
};

// Returns the taps for pixels `begin` … `begin + count − 1` of a line of `size` pixels that is
// scaled to `scaled` pixels.
std::vector<Tap> TapsOf(uint32_t size, uint32_t scaled, uint32_t begin, uint32_t count) {
  const double scale = static_cast<double>(size) / scaled;
  const double reach = std::max(scale, 1.0);
  std::vector<Tap> taps(count);
  std::vector<double> exact;
  for (uint32_t i = 0; i < count; ++i) {
    const double center = (static_cast<double>(begin) + i + 0.5) * scale;
    const auto first = static_cast<int64_t>(std::floor(center - reach + 0.5));
    const auto last = static_cast<int64_t>(std::floor(center + reach + 0.5));
    Tap& tap = taps[i];
    tap.first = static_cast<uint32_t>(std::clamp<int64_t>(first, 0, size - 1));
    const auto end = static_cast<uint32_t>(std::clamp<int64_t>(last, tap.first + 1, size));
    double sum = 0;
    exact.clear();
    for (uint32_t x = tap.first; x < end; ++x) {
      exact.push_back(std::max(0.0, 1 - std::fabs(x + 0.5 - center) / reach));
      sum += exact.back();
    }
    // The largest weight gets the rounding remainder, so that uniform colors do not change.
    uint32_t given = 0;
    for (const double weight : exact) {
      tap.weights.push_back(static_cast<uint32_t>(weight / sum * kOne));
      given += tap.weights.back();
    }
    *std::max_element(tap.weights.begin(), tap.weights.end()) += kOne - given;
  }
  return taps;
}

uint8_t Rounded(uint32_t sum) { return static_cast<uint8_t>((sum + kOne / 2) >> kBits); }

}  // namespace

void Resample(const RgbImage& image, const ResampleOptions& options, absl::Span<uint8_t> planes) {
  const PixelBox& window = options.window;
  const std::vector<Tap> across =
      TapsOf(options.from.width, options.width, window.left, window.width);
  const std::vector<Tap> down =
      TapsOf(options.from.height, options.height, window.top, window.height);
  const uint32_t first_row = down.front().first;
  const size_t rows = down.back().first + down.back().weights.size() - first_row;
  // First scale the needed rows to their new width, then scale the columns of the result.
  std::vector<uint8_t> narrow(rows * window.width * 3);
  uint8_t* out = narrow.data();
  for (size_t row = 0; row < rows; ++row) {
    const size_t y = options.from.top + first_row + row;
    const uint8_t* line = image.pixels.data() + (y * image.size.width + options.from.left) * 3;
    for (const Tap& tap : across) {
      const uint8_t* pixel = line + size_t{tap.first} * 3;
      uint32_t sums[3] = {0, 0, 0};
      for (const uint32_t weight : tap.weights) {
        for (uint32_t& sum : sums) sum += weight * *pixel++;
      }
      for (const uint32_t sum : sums) *out++ = Rounded(sum);
    }
  }
  const size_t line_bytes = size_t{window.width} * 3;
  std::vector<uint32_t> sums(line_bytes);
  for (uint32_t row = 0; row < window.height; ++row) {
    std::fill(sums.begin(), sums.end(), 0);
    const uint8_t* line = narrow.data() + (down[row].first - first_row) * line_bytes;
    for (const uint32_t weight : down[row].weights) {
      for (uint32_t& sum : sums) sum += weight * *line++;
    }
    for (uint32_t x = 0; x < window.width; ++x) {
      const uint32_t to = options.flip ? window.width - 1 - x : x;
      for (uint32_t c = 0; c < 3; ++c) {
        planes[(size_t{c} * window.height + row) * window.width + to] =
            Rounded(sums[size_t{x} * 3 + c]);
      }
    }
  }
}

ResampleOptions MiddleOf(ImageSize size, uint32_t side) {
  const uint32_t shorter = std::min(size.width, size.height);
  const uint32_t target = (side * 256 + 112) / 224;
  const auto scaled = [&](uint32_t length) {
    return static_cast<uint32_t>(uint64_t{length} * target / shorter);
  };
  ResampleOptions options;
  options.from = {.left = 0, .top = 0, .width = size.width, .height = size.height};
  options.width = scaled(size.width);
  options.height = scaled(size.height);
  options.window = {.left = (options.width - side) / 2,
                    .top = (options.height - side) / 2,
                    .width = side,
                    .height = side};
  return options;
}

}  // namespace sluice::worker
