// OpenBundle: the contributions to one bundle of one step until it closes, and their sum. In a job
// with a quorum it may close without some ranks, and have work of earlier steps, which came too
// late for these. Frames are summed in (rank, step) order. Small ones, of sparse codecs, wait as
// they are: once all are there, each chunk's are summed while its sum is in a cache. Large ones of
// the lowest ranks that are all there are summed as they arrive and let go.
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

namespace sluice::server {

// Memory for sums, used again and again: fresh memory costs a page fault for every 4 KiB, which is
// more than the sum itself.
class SumPool {
 public:
  // Keeps no more than `elements_max`, in use and spare together, for the next.
  explicit SumPool(size_t elements_max) : elements_max_(elements_max) {}

  // What is in it means nothing.
  std::vector<float> Take(size_t elements);
  void GiveBack(std::vector<float> sum);
  size_t spare_elements() const;

 private:
  const size_t elements_max_;
  size_t elements_ = 0;  // Room in all that were taken or are spare.
  std::vector<std::vector<float>> spare_;
};

class OpenBundle {
 public:
  // Elements and aggregator of each chunk; all must outlive this. `quorum`: how many ranks
  // quorum_at waits for; 0: it waits for ever.
  OpenBundle(absl::Span<const uint32_t> counts, absl::Span<compress::Aggregator* const> aggregators,
             uint32_t world_size, uint32_t quorum, SumPool* pool);
  ~OpenBundle();
  OpenBundle(const OpenBundle&) = delete;
  OpenBundle& operator=(const OpenBundle&) = delete;

  bool arrived(uint32_t rank) const { return arrivals_[rank].arrived; }
  uint32_t checksum(uint32_t rank) const { return arrivals_[rank].checksum; }
  // `frames` must be valid for their chunks' aggregators; none: the rank skips. Each rank once.
  // `rate` is that of the update that it is for; `weight` what it adds to n.
  void Admit(uint32_t rank, uint32_t checksum, float rate, std::vector<std::string> frames,
             absl::Time now, uint32_t weight = 1);
  // Work of an earlier step: frames, not a skip. Before the rank's Admit, and in order of steps.
  void AdmitLate(uint32_t rank, uint64_t origin_step, uint32_t checksum, float rate,
                 std::vector<std::string> frames);
  // Sums the frames of the lowest ranks as far as they are there, if that is worth a pass over the
  // sum; once all are, that is left to MeanOf. Not while a bundle of an earlier step uses the same
  // aggregators.
  void SumPrefix();
  // All that are waited for are there, and there is somebody to wait for.
  bool complete() const { return missing_ == 0 && expected_ > 0; }
  // Whether `rank` is waited for; at first all are. What one that no longer is has brought stays.
  // One that was not so far, and now is, brings no frames.
  void Expect(uint32_t rank, bool expected);
  // Bytes that `rank` was told nothing of.
  void SetUnanswered(uint32_t rank, uint64_t bytes) { arrivals_[rank].unanswered = bytes; }
  uint64_t unanswered(uint32_t rank) const { return arrivals_[rank].unanswered; }
  uint64_t held_bytes() const { return held_bytes_; }
  // Of the rank with which the quorum was there; the infinite future before. This, and the next
  // two, are about the step's own work.
  absl::Time quorum_at() const { return quorum_at_; }
  absl::Time first_arrival() const { return first_arrival_; }
  absl::Time last_arrival() const { return last_arrival_; }
  std::vector<uint32_t> MissingRanks() const;

  // The rest is for a bundle that closes: nothing is admitted any more.
  uint32_t n() const { return n_; }
  // Of the lowest rank that contributed to the step itself, if one did; n is not 0.
  float rate() const;
  std::vector<protocol::Included> IncludedRanks(uint64_t step) const;
  // The mean of a chunk (its position): sums what is left of it and closes its aggregator. n is not
  // 0. Once each, in order; good until the next is asked for.
  absl::Span<const float> MeanOf(size_t chunk) { return SumOf(chunk, n_); }
  // Likewise; the sum itself.
  absl::Span<const float> SumOf(size_t chunk) { return SumOf(chunk, 1); }
  std::vector<std::string> TakeFrames(uint32_t rank);

 private:
  struct Arrival {
    bool expected = true;
    bool arrived = false;
    bool skipped = false;
    uint32_t checksum = 0;
    uint32_t weight = 1;
    float rate = 0;
    uint64_t unanswered = 0;
    uint64_t bytes = 0;               // Of the frames.
    std::vector<std::string> frames;  // Until they are summed.
  };
  struct Late {  // One piece of a rank's late work.
    uint64_t origin_step = 0;
    uint32_t checksum = 0;
    float rate = 0;
    uint64_t bytes = 0;
    std::vector<std::string> frames;
  };
  absl::Span<const Late> LateOf(size_t rank) const;
  absl::Span<const float> SumOf(size_t chunk, uint32_t divisor);
  void SumRanks(size_t chunk, size_t last, absl::Span<float> sum);

  const absl::Span<const uint32_t> counts_;
  const absl::Span<compress::Aggregator* const> aggregators_;
  const uint32_t quorum_;
  SumPool* const pool_;
  const size_t elements_;
  std::vector<Arrival> arrivals_;               // By rank.
  std::map<uint32_t, std::vector<Late>> late_;  // By rank.
  size_t arrived_ = 0;
  size_t expected_ = 0;         // Ranks that are waited for, and
  size_t missing_ = 0;          // those of them that are not there.
  size_t summed_ = 0;           // Ranks below it are summed.
  size_t there_ = 0;            // Ranks below it have arrived.
  uint64_t waiting_bytes_ = 0;  // Of the frames of ranks between the two.
  // If a sum was begun: of all chunks, one after the other.
  std::vector<float> sum_;
  bool begun_ = false;
  size_t mean_at_ = 0;                         // Where the next chunk's lies then.
  std::vector<compress::SenderFrame> frames_;  // Scratch.
  uint32_t n_ = 0;
  uint64_t held_bytes_ = 0;
  absl::Time first_arrival_ = absl::InfiniteFuture();
  absl::Time last_arrival_ = absl::InfinitePast();
  absl::Time quorum_at_ = absl::InfiniteFuture();
};

}  // namespace sluice::server
