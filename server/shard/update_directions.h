// SPDX-License-Identifier: Apache-2.0
// UpdateDirections: the cosine between an update of one rank and the sum of the newest updates of
// the other ranks, all scaled to norm 1. For modes in which every contribution is an update of its
// own. Pure. Not thread-safe.
//
// It reads one window of one bundle at a time, because it keeps a copy of each rank's newest values
// there. After kUpdatesPerWindow updates for each rank, it chooses another window at random from
// the seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace sluice::server {

class UpdateDirections {
 public:
  static constexpr size_t kUpdatesPerWindow = 32;
  // Elements of a window: as many as sparse updates need to have common elements.
  static constexpr size_t kWindowElements = 65'536;
  // The bound for the copies of all ranks together.
  static constexpr size_t kCopiedElementsMax = size_t{16} << 20;

  // `elements` is by bundle; 0 for bundles without updates. A shard may have no other bundles.
  UpdateDirections(uint64_t seed, std::vector<uint64_t> elements, size_t ranks);

  // Returns the cosine of an update. None if the window has no value of the update or of other
  // ranks. `update` has all elements of the bundle, which must be finite.
  std::optional<double> CosineOf(uint32_t bundle, uint32_t rank, absl::Span<const float> update);

 private:
  void ChooseWindow();

  const uint64_t seed_;
  const std::vector<uint64_t> elements_;
  const size_t size_max_;
  uint64_t windows_ = 0;  // Windows that were chosen so far.
  size_t updates_ = 0;    // Updates that were read in this window.
  uint32_t bundle_ = 0;
  size_t first_ = 0;                        // The window's first element.
  size_t size_ = 0;                         // 0 if no bundle has updates.
  std::vector<std::vector<float>> newest_;  // By rank; scaled. Empty if there is none.
  std::vector<float> total_;                // The sum of newest_.
};

}  // namespace sluice::server
