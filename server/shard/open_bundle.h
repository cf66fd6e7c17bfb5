// SPDX-License-Identifier: Apache-2.0
// OpenBundle: collects the contributions to one bundle of one step until the bundle closes, and
// sums them in (rank, step) order. In a job with a quorum, a bundle may close without some ranks.
// The work of such a rank then joins a bundle of a later step. Small frames of sparse codecs wait
// until all ranks have arrived; then the frames of each chunk are summed while the chunk's sum is
// in a cache. Large frames of the lowest ranks are summed, and freed, as soon as these ranks have
// arrived.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "compress/aggregator.h"
#include "protocol/exchange.h"
#include "server/shard/shard_threads.h"

namespace sluice::server {

// Reuses memory for sums. Fresh memory costs a page fault per 4 KiB, which takes longer than the
// summation.
class SumPool {
 public:
  // The scratch memory with which one thread sums a chunk.
  struct Lane {
    std::vector<float> sum;
    std::vector<compress::SenderFrame> frames;
    std::vector<float> scaled;
  };

  // Keeps returned sums for reuse while all sums, taken and spare, hold at most `elements_max`
  // elements. `threads` must outlive the pool; null means that only the caller's thread sums.
  explicit SumPool(size_t elements_max, ShardThreads* threads = nullptr)
      : elements_max_(elements_max),
        threads_(threads),
        lanes_(threads == nullptr ? 1 : threads->lanes()) {}

  // Returns a sum with unspecified values.
  std::vector<float> Take(size_t elements);
  void GiveBack(std::vector<float> sum);
  Lane* lane(size_t lane) { return &lanes_[lane]; }
  // Calls work(part, lane) for each part, as Parallel::For.
  void For(size_t parts, Parallel::Work work);

 private:
  const size_t elements_max_;
  ShardThreads* const threads_;
  std::vector<Lane> lanes_;
  size_t elements_ = 0;  // Capacity of all sums, taken or spare.
  std::vector<std::vector<float>> spare_;
};

// One contribution that a bundle holds, other than a skip.
struct HeldContribution {
  uint32_t rank = 0;
  uint64_t origin_step = 0;  // Before the bundle's step for late work.
  uint32_t weight = 1;
  protocol::Work work{};
  float factor = 1;                      // As set by Scale.
  absl::Span<const std::string> frames;  // By chunk. Valid until the bundle changes.
};

class OpenBundle {
 public:
  // `counts` and `aggregators` hold the number of elements and the aggregator of each chunk. All
  // arguments must outlive this object. quorum_at() is set when `quorum` ranks have arrived; with a
  // quorum of 0 it stays unset. With `keeps_frames`, SumPrefix has no effect, so that Contributions
  // can be called.
  OpenBundle(absl::Span<const uint32_t> counts, absl::Span<compress::Aggregator* const> aggregators,
             uint32_t world_size, uint32_t quorum, SumPool* pool, bool keeps_frames = false);
  ~OpenBundle();
  OpenBundle(const OpenBundle&) = delete;
  OpenBundle& operator=(const OpenBundle&) = delete;

  bool arrived(uint32_t rank) const { return arrivals_[rank].arrived; }
  uint32_t checksum(uint32_t rank) const { return arrivals_[rank].checksum; }
  // Admits the contribution of a rank. Call this at most once per rank. `frames` must be valid for
  // the aggregators of their chunks; empty frames mean that the rank skips. `rate` is the rate of
  // the step's update. Adds `weight` to n().
  void Admit(uint32_t rank, uint32_t checksum, float rate, std::vector<std::string> frames,
             absl::Time now, uint32_t weight = 1, const protocol::Work& work = {});
  // Admits frames of an earlier step, which must not be a skip. Call this before the rank's Admit
  // and in order of steps.
  void AdmitLate(uint32_t rank, uint64_t origin_step, uint32_t checksum, float rate,
                 std::vector<std::string> frames, const protocol::Work& work = {});
  // Sums the frames of the lowest ranks that have all arrived, if these frames justify a pass over
  // the sum. Has no effect on a complete bundle, which MeanOf sums. Must not be called while a
  // bundle of an earlier step uses the same aggregators.
  void SumPrefix();
  // True if at least one rank is expected and all expected ranks have arrived.
  bool complete() const { return missing_ == 0 && expected_ > 0; }
  // Sets whether the bundle waits for `rank`. Initially it waits for all ranks. If a rank is no
  // longer expected, its contribution stays. A rank that becomes expected later adds no frames.
  void Expect(uint32_t rank, bool expected);
  // Admitted bytes of `rank` that the shard has not acknowledged yet.
  void SetUnanswered(uint32_t rank, uint64_t bytes) { arrivals_[rank].unanswered = bytes; }
  uint64_t unanswered(uint32_t rank) const { return arrivals_[rank].unanswered; }
  uint64_t held_bytes() const { return held_bytes_; }
  // Arrival time of the rank that completed the quorum; the infinite future before that. quorum_at,
  // first_arrival and last_arrival ignore late work of earlier steps.
  absl::Time quorum_at() const { return quorum_at_; }
  // The first time when a rank that has arrived needs the result, as far as ranks said.
  absl::Time needed_at() const { return needed_at_; }
  absl::Time first_arrival() const { return first_arrival_; }
  absl::Time last_arrival() const { return last_arrival_; }
  std::vector<uint32_t> MissingRanks() const;

  // Call the remaining methods only when the bundle closes. After that, it must not admit anything.
  // Returns the contributions in (rank, step) order, without those that Scale left out. Needs all
  // frames (`keeps_frames`).
  std::vector<HeldContribution> Contributions(uint64_t step) const;
  // Multiplies each contribution, in the order of Contributions, by its factor. A contribution with
  // a factor of 0 counts as skipped. Needs additive aggregators. Call this before MeanOf or SumOf.
  void Scale(absl::Span<const float> factors);
  uint32_t n() const { return n_; }
  // Returns the rate of the lowest rank that contributed to the step. If there is none, returns the
  // rate of the first late work. n() must not be 0.
  float rate() const;
  std::vector<protocol::Included> IncludedRanks(uint64_t step) const;
  // Returns the mean of the chunk at this position: sums the remaining frames and closes the
  // chunk's aggregator. n() must not be 0. Call this once per chunk. Threads may call it at the
  // same time with different lanes of the pool. The span is valid until the lane's next call.
  absl::Span<const float> MeanOf(size_t chunk, size_t lane = 0) { return SumOf(chunk, lane, n_); }
  // Like MeanOf, but returns the sum.
  absl::Span<const float> SumOf(size_t chunk, size_t lane = 0) { return SumOf(chunk, lane, 1); }
  std::vector<std::string> MoveFrames(uint32_t rank);

 private:
  struct Arrival {
    bool expected = true;
    bool arrived = false;
    bool skipped = false;
    uint32_t checksum = 0;
    uint32_t weight = 1;
    protocol::Work work{};
    float factor = 1;
    float rate = 0;
    uint64_t unanswered = 0;
    uint64_t bytes = 0;               // Bytes of the frames.
    std::vector<std::string> frames;  // Empty once they are summed.
  };
  struct Late {  // One piece of a rank's late work.
    uint64_t origin_step = 0;
    uint32_t checksum = 0;
    protocol::Work work{};
    float factor = 1;
    float rate = 0;
    uint64_t bytes = 0;
    std::vector<std::string> frames;
  };
  absl::Span<const Late> LateOf(size_t rank) const;
  absl::Span<const float> SumOf(size_t chunk, size_t lane, uint32_t divisor);
  void SumRanks(size_t chunk, size_t last, SumPool::Lane* lane, absl::Span<float> sum);
  void AddFrame(size_t chunk, uint32_t rank, const std::string& frame, float factor,
                SumPool::Lane* lane, absl::Span<float> sum);

  const absl::Span<const uint32_t> counts_;
  const absl::Span<compress::Aggregator* const> aggregators_;
  const uint32_t quorum_;
  const bool keeps_frames_;
  SumPool* const pool_;
  const size_t elements_;
  std::vector<Arrival> arrivals_;               // By rank.
  std::map<uint32_t, std::vector<Late>> late_;  // By rank.
  size_t arrived_ = 0;
  size_t expected_ = 0;         // Ranks that the bundle waits for.
  size_t missing_ = 0;          // Expected ranks that have not arrived.
  size_t summed_ = 0;           // Ranks below this one are summed.
  size_t there_ = 0;            // Ranks below this one have arrived or are not expected.
  uint64_t waiting_bytes_ = 0;  // Bytes of the frames of ranks summed_ to there_ - 1.
  std::vector<float> sum_;      // If a sum was begun, the sums of all chunks, one after another.
  std::vector<size_t> begins_;  // By chunk, in sum_.
  bool begun_ = false;
  uint32_t n_ = 0;
  uint64_t held_bytes_ = 0;
  absl::Time first_arrival_ = absl::InfiniteFuture();
  absl::Time last_arrival_ = absl::InfinitePast();
  absl::Time quorum_at_ = absl::InfiniteFuture();
  absl::Time needed_at_ = absl::InfiniteFuture();
};

}  // namespace sluice::server
