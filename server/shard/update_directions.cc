// SPDX-License-Identifier: Apache-2.0
#include "server/shard/update_directions.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/random.h"
#include "compress/frame_part.h"
#include "compress/simd/compensate.h"

namespace sluice::server {

UpdateDirections::UpdateDirections(uint64_t seed, std::vector<uint64_t> elements, size_t ranks)
    : seed_(seed),
      elements_(std::move(elements)),
      size_max_(std::clamp<size_t>(kCopiedElementsMax / ranks, 1, kWindowElements)),
      newest_(ranks) {
  ChooseWindow();
}

void UpdateDirections::ChooseWindow() {
  const uint64_t all = std::accumulate(elements_.begin(), elements_.end(), uint64_t{0});
  if (all == 0) return;
  uint64_t at = CounterRandom(seed_, windows_++).Below(all);
  bundle_ = 0;
  while (at >= elements_[bundle_]) at -= elements_[bundle_++];
  size_ = std::min<size_t>(size_max_, elements_[bundle_]);
  first_ = std::min<size_t>(at, elements_[bundle_] - size_);
  updates_ = 0;
  for (std::vector<float>& values : newest_) values.clear();
  total_.assign(size_, 0.0f);
}

std::optional<double> UpdateDirections::CosineOf(uint32_t bundle, uint32_t rank,
                                                 absl::Span<const float> update) {
  if (size_ == 0 || bundle != bundle_) return std::nullopt;
  if (updates_ == kUpdatesPerWindow * newest_.size()) {
    ChooseWindow();
    if (bundle != bundle_) return std::nullopt;
  }
  ++updates_;
  const absl::Span<const float> values = update.subspan(first_, size_);
  const double norm = std::sqrt(compress::SumOfSquares(values.data(), values.size()));
  if (norm < compress::kNormMin) return std::nullopt;
  const auto scale = static_cast<float>(1 / norm);
  std::vector<float>& own = newest_[rank];
  own.resize(size_);
  double along = 0;
  double squares = 0;
  for (size_t i = 0; i < size_; ++i) {
    const float others = total_[i] - own[i];
    const float scaled = scale * values[i];
    along += double{others} * scaled;
    squares += double{others} * others;
    total_[i] = others + scaled;
    own[i] = scaled;
  }
  if (squares < compress::kNormMin) return std::nullopt;
  return std::clamp(along / std::sqrt(squares), -1.0, 1.0);
}

}  // namespace sluice::server
