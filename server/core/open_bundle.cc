#include "server/core/open_bundle.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace sluice {

std::vector<float> SumPool::Take(size_t elements) {
  std::vector<float> sum;
  if (!spare_.empty()) {
    sum = std::move(spare_.back());  // The last that was used is the most likely to be in a cache.
    spare_.pop_back();
  }
  elements_ -= sum.capacity();
  sum.assign(elements, 0.0f);
  elements_ += sum.capacity();
  return sum;
}

void SumPool::GiveBack(std::vector<float> sum) {
  if (elements_ <= elements_max_) {
    spare_.push_back(std::move(sum));
  } else {
    elements_ -= sum.capacity();
  }
}

size_t SumPool::spare_elements() const {
  return std::accumulate(
      spare_.begin(), spare_.end(), size_t{0},
      [](size_t total, const std::vector<float>& sum) { return total + sum.capacity(); });
}

OpenBundle::OpenBundle(absl::Span<const uint32_t> counts, absl::Span<Aggregator* const> aggregators,
                       uint32_t world_size, SumPool* pool)
    : counts_(counts), aggregators_(aggregators), pool_(pool), arrivals_(world_size) {}

OpenBundle::~OpenBundle() {
  if (!sum_.empty()) pool_->GiveBack(std::move(sum_));
}

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
}

void OpenBundle::SumPrefix() {
  const size_t first = summed_;
  while (summed_ < arrivals_.size() && arrivals_[summed_].arrived) ++summed_;
  const absl::Span<Arrival> arrivals = absl::MakeSpan(arrivals_).subspan(first, summed_ - first);
  std::vector<SenderFrame> frames;
  size_t at = 0;
  for (size_t chunk = 0; chunk < counts_.size(); ++chunk) {
    frames.clear();
    for (size_t i = 0; i < arrivals.size(); ++i) {
      if (arrivals[i].skipped) continue;
      frames.push_back({.sender = static_cast<uint32_t>(first + i),
                        .frame = FrameBytes(arrivals[i].frames[chunk])});
      held_bytes_ -= arrivals[i].frames[chunk].size();
    }
    if (frames.empty()) break;
    if (sum_.empty()) {
      sum_ = pool_->Take(std::accumulate(counts_.begin(), counts_.end(), size_t{0}));
    }
    aggregators_[chunk]->Add(frames, absl::MakeSpan(sum_).subspan(at, counts_[chunk]));
    at += counts_[chunk];
  }
  for (Arrival& arrival : arrivals) arrival.frames = {};
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
  SumPrefix();
  std::vector<absl::Span<const float>> means;
  means.reserve(counts_.size());
  size_t at = 0;
  for (size_t chunk = 0; chunk < counts_.size(); ++chunk) {
    const absl::Span<float> sum = absl::MakeSpan(sum_).subspan(at, counts_[chunk]);
    aggregators_[chunk]->Close(n_, sum);
    means.push_back(sum);
    at += counts_[chunk];
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
