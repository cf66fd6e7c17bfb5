#include "server/core/open_bundle.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "compress/frame.h"

namespace sluice {

OpenBundle::OpenBundle(absl::Span<const uint32_t> counts, uint32_t world_size, bool keep_frames)
    : counts_(counts), keep_frames_(keep_frames), arrivals_(world_size) {}

void OpenBundle::Admit(uint32_t rank, uint32_t checksum, std::vector<std::string> frames,
                       absl::Time now) {
  Arrival& arrival = arrivals_[rank];
  Check(!arrival.arrived, "a rank is admitted to a bundle once");
  arrival.arrived = true;
  arrival.skipped = frames.empty();
  arrival.checksum = checksum;
  arrival.frames = std::move(frames);
  for (const std::string& frame : arrival.frames) held_bytes_ += frame.size();
  n_ += arrival.skipped ? 0 : 1;
  first_arrival_ = std::min(first_arrival_, now);
  last_arrival_ = std::max(last_arrival_, now);
  ++arrived_;
  if (!keep_frames_) SumPrefix();
}

void OpenBundle::SumPrefix() {
  while (summed_ < arrivals_.size() && arrivals_[summed_].arrived) {
    if (!arrivals_[summed_].skipped) Add(&arrivals_[summed_]);
    ++summed_;
  }
}

void OpenBundle::Add(Arrival* arrival) {
  if (sum_.empty()) sum_.resize(std::accumulate(counts_.begin(), counts_.end(), size_t{0}));
  size_t at = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    const std::string& frame = arrival->frames[i];
    const absl::Status added =
        DecodeAddFrame(FrameBytes(frame), absl::MakeSpan(sum_).subspan(at, counts_[i]));
    Check(added.ok(), "a frame that was validated decodes");
    at += counts_[i];
    held_bytes_ -= frame.size();
  }
  arrival->frames = {};
}

std::vector<uint32_t> OpenBundle::MissingRanks() const {
  std::vector<uint32_t> missing;
  for (uint32_t rank = 0; rank < arrivals_.size(); ++rank) {
    if (!arrivals_[rank].arrived) missing.push_back(rank);
  }
  return missing;
}

std::vector<Included> OpenBundle::IncludedRanks(uint64_t step) const {
  std::vector<Included> included;
  included.reserve(arrivals_.size());
  for (uint32_t rank = 0; rank < arrivals_.size(); ++rank) {
    included.push_back({.rank = rank,
                        .origin_step = step,
                        .checksum = arrivals_[rank].checksum,
                        .skipped = arrivals_[rank].skipped});
  }
  return included;
}

std::vector<absl::Span<const float>> OpenBundle::Mean() {
  Check(complete() && n_ > 0, "a mean needs all ranks and one contribution");
  const float divisor = static_cast<float>(n_);
  for (float& x : sum_) x /= divisor;
  std::vector<absl::Span<const float>> means;
  means.reserve(counts_.size());
  size_t at = 0;
  for (const uint32_t count : counts_) {
    means.push_back(absl::MakeConstSpan(sum_).subspan(at, count));
    at += count;
  }
  return means;
}

std::vector<std::string> OpenBundle::TakeFrames(uint32_t rank) {
  std::vector<std::string> frames = std::move(arrivals_[rank].frames);
  arrivals_[rank].frames = {};
  for (const std::string& frame : frames) held_bytes_ -= frame.size();
  return frames;
}

}  // namespace sluice
