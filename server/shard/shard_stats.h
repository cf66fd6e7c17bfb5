// SPDX-License-Identifier: Apache-2.0
// ShardStats: counters of one shard since its job began, for metrics and status pages.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "server/shard/rank_agreement.h"

namespace sluice::server {

// Upper bounds, in seconds, of the buckets of ShardStats::wait_counts. One additional bucket has no
// bound.
inline constexpr std::array<double, 12> kWaitBoundsSeconds = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3,
                                                              1,     3,     10,   30,   100, 300};

// Upper bounds, in updates, of the buckets of ShardStats::staleness_counts. One additional bucket
// has no bound.
inline constexpr std::array<double, 11> kStalenessBounds = {0, 1, 2, 3, 5, 8, 13, 21, 34, 100, 300};

// Returns the index of the bucket that contains `value`, given the buckets' upper bounds.
template <size_t kBounds>
size_t BucketOf(const std::array<double, kBounds>& bounds, double value) {
  return static_cast<size_t>(std::lower_bound(bounds.begin(), bounds.end(), value) -
                             bounds.begin());
}

struct ShardStats {
  // Bytes of admitted frames and of result frames, and the bytes of the same values in dense fp32.
  // A result counts once for each rank that received it. Step 0 is included.
  uint64_t bytes_in = 0;
  uint64_t dense_bytes_in = 0;
  uint64_t bytes_out = 0;
  uint64_t dense_bytes_out = 0;

  uint64_t contributions = 0;  // Admitted, including skips.
  // Arrived but not part of n. This and empty_bundles exclude buffers and fragments that are not
  // due.
  uint64_t skipped_contributions = 0;
  uint64_t repeats = 0;  // Requests that repeat an admitted request.
  uint64_t bundles_closed = 0;
  uint64_t empty_bundles = 0;       // Bundles that closed with n = 0.
  uint64_t overflowed_bundles = 0;  // Bundles that closed although the mean was not finite.
  uint64_t quorum_bundles = 0;      // Bundles that closed without some rank.
  uint64_t late_contributions = 0;  // Late work that joined a later step.
  uint64_t late_exchanges = 0;      // Exchanges that included late work missed, in total.
  uint64_t refused_invalid = 0;
  uint64_t refused_fenced = 0;
  uint64_t refused_busy = 0;
  uint64_t asked_for_payload = 0;  // Number of NEED answers.
  // Replays in which a new holder of a rank sent different bytes than its predecessor.
  uint64_t not_reproducible = 0;

  uint64_t highest_closed_step = 0;
  uint64_t open_step = 0;
  uint64_t held_bytes = 0;  // Bytes of frames that are admitted but not summed yet.
  uint64_t log_bytes = 0;   // Bytes of results that are kept.
  uint64_t log_limit = 0;   // Beyond this, the oldest results are evicted.
  uint64_t log_results = 0;
  uint64_t results_from = 0;  // As in Shard::results_from.
  uint64_t elements = 0;      // Number of the job's parameters on this shard.

  // For jobs whose workers do not wait for each other: the staleness of contributions, the number
  // of publications, and the number of results that contained exact parameters.
  std::array<uint64_t, kStalenessBounds.size() + 1> staleness_counts{};
  uint64_t staleness_total = 0;
  uint64_t publications = 0;
  uint64_t exact_results = 0;

  // As in OuterGain.
  std::optional<double> outer_correlation{};
  std::optional<double> outer_gain{};

  // Time from the first to the last arrival of each closed bundle. If every contribution closes
  // alone, the time from the arrival of a contribution to its result.
  std::array<uint64_t, kWaitBoundsSeconds.size() + 1> wait_counts{};
  double wait_seconds = 0;

  // By rank, in jobs with a guard; otherwise empty.
  std::vector<RankAgreement> agreement{};
  // By rank, in jobs that merge contributions in another way than by their plain mean, otherwise
  // empty: as in ContributionMerge::shares.
  std::vector<double> merge_shares{};
};

}  // namespace sluice::server
