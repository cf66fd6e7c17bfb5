// ShardStats: what one shard counted since its job began, for metrics and pages.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace sluice::server {

// Upper bounds, in seconds, of the buckets of ShardStats::wait_counts; a last bucket has no bound.
inline constexpr std::array<double, 12> kWaitBoundsSeconds = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3,
                                                              1,     3,     10,   30,   100, 300};

// Likewise of ShardStats::staleness_counts, in updates.
inline constexpr std::array<double, 11> kStalenessBounds = {0, 1, 2, 3, 5, 8, 13, 21, 34, 100, 300};

// Which of the buckets that end at `bounds` a value is in.
template <size_t kBounds>
size_t BucketOf(const std::array<double, kBounds>& bounds, double value) {
  return static_cast<size_t>(std::lower_bound(bounds.begin(), bounds.end(), value) -
                             bounds.begin());
}

struct ShardStats {
  // Of frames that were admitted, and of result frames once per rank they were sent to; what the
  // same would have been in dense fp32 beside it. Step 0 is included.
  uint64_t bytes_in = 0;
  uint64_t dense_bytes_in = 0;
  uint64_t bytes_out = 0;
  uint64_t dense_bytes_out = 0;

  uint64_t contributions = 0;          // Admitted, skipped ones included.
  uint64_t skipped_contributions = 0;  // Arrived, but not in n; of buffers none are counted.
  uint64_t repeats = 0;                // Of something admitted before.
  uint64_t bundles_closed = 0;
  uint64_t empty_bundles = 0;       // Of those: closed with n = 0; of buffers none are counted.
  uint64_t overflowed_bundles = 0;  // Of those: the mean was not finite.
  uint64_t quorum_bundles = 0;      // Of those: closed without some rank.
  uint64_t late_contributions = 0;  // That such a bundle went without, and a later one took.
  uint64_t refused_invalid = 0;
  uint64_t refused_fenced = 0;
  uint64_t refused_busy = 0;
  uint64_t asked_for_payload = 0;  // NEED.
  uint64_t not_reproducible = 0;   // Of a new holder: other bytes than its predecessor's.

  uint64_t highest_closed_step = 0;
  uint64_t open_step = 0;
  uint64_t held_bytes = 0;  // Frames admitted and not yet summed.
  uint64_t log_bytes = 0;   // Of results kept.
  uint64_t log_limit = 0;   // At which the oldest go.
  uint64_t log_results = 0;
  uint64_t results_from = 0;  // As Shard::results_from.
  uint64_t elements = 0;      // Of the job's parameters that live here.

  // Of jobs whose workers do not wait for each other: how stale contributions were, what was
  // published, and results that brought parameters themselves.
  std::array<uint64_t, kStalenessBounds.size() + 1> staleness_counts{};
  uint64_t staleness_total = 0;
  uint64_t publications = 0;
  uint64_t exact_results = 0;

  // First to last arrival of a bundle that closed; where every contribution closes by itself, from
  // its arrival to its result.
  std::array<uint64_t, kWaitBoundsSeconds.size() + 1> wait_counts{};
  double wait_seconds = 0;
};

}  // namespace sluice::server
