// SPDX-License-Identifier: Apache-2.0
#include "server/shard/open_bundle.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "compress/frame.h"

namespace sluice::server {
namespace {

// Frames justify a pass over a sum in memory if their bytes are at least 1 / kWorthAPass of the
// bytes of the sum.
constexpr uint64_t kWorthAPass = 4;
// A sender's slack counts as at most a day.
constexpr uint64_t kSlackMaxUs = uint64_t{86'400} * 1'000'000;

}  // namespace

std::vector<float> SumPool::Take(size_t elements) {
  std::vector<float> sum;
  if (!spare_.empty()) {
    // The most recently used sum is the most likely to be in a cache.
    sum = std::move(spare_.back());
    spare_.pop_back();
  }
  elements_ -= sum.capacity();
  sum.resize(elements);
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

void SumPool::For(size_t parts, Parallel::Work work) {
  if (threads_ != nullptr) return threads_->For(protocol::Stage::kSum)->For(parts, work);
  for (size_t part = 0; part < parts; ++part) work(part, 0);
}

OpenBundle::OpenBundle(absl::Span<const uint32_t> counts,
                       absl::Span<compress::Aggregator* const> aggregators, uint32_t world_size,
                       uint32_t quorum, SumPool* pool, bool keeps_frames)
    : counts_(counts),
      aggregators_(aggregators),
      quorum_(quorum),
      keeps_frames_(keeps_frames),
      pool_(pool),
      elements_(std::accumulate(counts.begin(), counts.end(), size_t{0})),
      arrivals_(world_size),
      expected_(world_size),
      missing_(world_size) {}

OpenBundle::~OpenBundle() {
  if (!sum_.empty()) pool_->GiveBack(std::move(sum_));
}

void OpenBundle::Admit(uint32_t rank, uint32_t checksum, float rate,
                       std::vector<std::string> frames, absl::Time now, uint32_t weight,
                       const protocol::Work& work) {
  Arrival& arrival = arrivals_[rank];
  Check(!arrival.arrived, "a rank is admitted to a bundle once");
  arrival.arrived = true;
  arrival.skipped = frames.empty();
  arrival.checksum = checksum;
  arrival.weight = arrival.skipped ? 1 : weight;
  arrival.work = work;
  arrival.rate = rate;
  arrival.frames = std::move(frames);
  arrival.bytes = protocol::TotalBytes(arrival.frames);
  held_bytes_ += arrival.bytes;
  n_ += arrival.skipped ? 0 : arrival.weight;
  first_arrival_ = std::min(first_arrival_, now);
  last_arrival_ = std::max(last_arrival_, now);
  // A rank that skips needs the result, too.
  if (work.slack_us > 0) {
    const auto slack = absl::Microseconds(std::min(work.slack_us, kSlackMaxUs));
    needed_at_ = std::min(needed_at_, now + slack);
  }
  if (arrival.expected) --missing_;
  if (++arrived_ == quorum_) quorum_at_ = now;
}

void OpenBundle::Expect(uint32_t rank, bool expected) {
  Arrival& arrival = arrivals_[rank];
  if (arrival.expected == expected) return;
  arrival.expected = expected;
  const size_t step = expected ? size_t{1} : ~size_t{0};  // Adds or subtracts 1.
  expected_ += step;
  if (!arrival.arrived) missing_ += step;
}

void OpenBundle::AdmitLate(uint32_t rank, uint64_t origin_step, uint32_t checksum, float rate,
                           std::vector<std::string> frames, const protocol::Work& work) {
  std::vector<Late>& of_rank = late_[rank];
  Check(!arrivals_[rank].arrived && (of_rank.empty() || of_rank.back().origin_step < origin_step),
        "late work comes first, and in order");
  Late& late = of_rank.emplace_back();
  late = {.origin_step = origin_step,
          .checksum = checksum,
          .work = work,
          .factor = 1,
          .rate = rate,
          .bytes = 0,
          .frames = std::move(frames)};
  late.bytes = protocol::TotalBytes(late.frames);
  held_bytes_ += late.bytes;
  ++n_;
}

absl::Span<const OpenBundle::Late> OpenBundle::LateOf(size_t rank) const {
  const auto late = late_.find(static_cast<uint32_t>(rank));
  return late == late_.end() ? absl::Span<const Late>() : late->second;
}

float OpenBundle::rate() const {
  Check(n_ > 0, "a rank contributed");
  const auto first = std::find_if(arrivals_.begin(), arrivals_.end(), [](const Arrival& arrival) {
    return arrival.arrived && !arrival.skipped;
  });
  if (first != arrivals_.end()) return first->rate;
  return late_.begin()->second.front().rate;
}

void OpenBundle::SumPrefix() {
  if (keeps_frames_ || complete()) return;
  for (; there_ < arrivals_.size(); ++there_) {
    if (arrivals_[there_].expected && !arrivals_[there_].arrived) break;
    waiting_bytes_ += arrivals_[there_].bytes;
    for (const Late& late : LateOf(there_)) waiting_bytes_ += late.bytes;
  }
  if (waiting_bytes_ == 0 || waiting_bytes_ < sizeof(float) * elements_ / kWorthAPass) return;
  if (sum_.empty()) {
    sum_ = pool_->Take(elements_);
    std::exclusive_scan(counts_.begin(), counts_.end(), std::back_inserter(begins_), size_t{0});
  }
  pool_->For(counts_.size(), [this](size_t chunk, size_t lane) {
    SumRanks(chunk, there_, pool_->lane(lane),
             absl::MakeSpan(sum_).subspan(begins_[chunk], counts_[chunk]));
  });
  for (; summed_ < there_; ++summed_) {
    arrivals_[summed_].frames = {};
    const auto late = late_.find(static_cast<uint32_t>(summed_));
    if (late == late_.end()) continue;
    for (Late& of_rank : late->second) of_rank.frames = {};
  }
  begun_ = true;
  held_bytes_ -= waiting_bytes_;
  waiting_bytes_ = 0;
}

// Adds the frames of ranks summed_ to `last` - 1 to the sum. Sets the sum to 0 first unless begun_.
void OpenBundle::SumRanks(size_t chunk, size_t last, SumPool::Lane* lane, absl::Span<float> sum) {
  if (!begun_) std::fill(sum.begin(), sum.end(), 0.0f);
  lane->frames.clear();
  for (auto rank = static_cast<uint32_t>(summed_); rank < last; ++rank) {
    for (const Late& late : LateOf(rank)) {
      AddFrame(chunk, rank, late.frames[chunk], late.factor, lane, sum);
    }
    const Arrival& arrival = arrivals_[rank];
    if (!arrival.arrived || arrival.skipped) continue;
    AddFrame(chunk, rank, arrival.frames[chunk], arrival.factor, lane, sum);
  }
  if (!lane->frames.empty()) aggregators_[chunk]->Add(lane->frames, sum);
}

// Adds a scaled frame at once, after the frames before it. Collects other frames, because one call
// adds many of them faster.
void OpenBundle::AddFrame(size_t chunk, uint32_t rank, const std::string& frame, float factor,
                          SumPool::Lane* lane, absl::Span<float> sum) {
  if (factor == 1) {
    lane->frames.push_back({.sender = rank, .frame = protocol::FrameBytes(frame)});
    return;
  }
  if (!lane->frames.empty()) aggregators_[chunk]->Add(lane->frames, sum);
  lane->frames.clear();
  if (factor == 0) return;
  compress::AddScaledValidFrames(protocol::FrameBytes(frame), factor, &lane->scaled, sum);
}

std::vector<HeldContribution> OpenBundle::Contributions(uint64_t step) const {
  Check(!begun_, "all frames are there");
  std::vector<HeldContribution> out;
  for (uint32_t rank = 0; rank < arrivals_.size(); ++rank) {
    for (const Late& late : LateOf(rank)) {
      if (late.factor == 0) continue;
      out.push_back({.rank = rank,
                     .origin_step = late.origin_step,
                     .work = late.work,
                     .factor = late.factor,
                     .frames = late.frames});
    }
    const Arrival& arrival = arrivals_[rank];
    if (!arrival.arrived || arrival.skipped) continue;
    out.push_back({.rank = rank,
                   .origin_step = step,
                   .weight = arrival.weight,
                   .work = arrival.work,
                   .factor = arrival.factor,
                   .frames = arrival.frames});
  }
  return out;
}

void OpenBundle::Scale(absl::Span<const float> factors) {
  size_t at = 0;
  const auto leave_out = [this](uint32_t weight) { n_ -= weight; };
  for (uint32_t rank = 0; rank < arrivals_.size(); ++rank) {
    const auto late = late_.find(rank);
    if (late != late_.end()) {
      for (Late& of_rank : late->second) {
        of_rank.factor = factors[at++];
        if (of_rank.factor == 0) leave_out(1);
      }
    }
    Arrival& arrival = arrivals_[rank];
    if (!arrival.arrived || arrival.skipped) continue;
    arrival.factor = factors[at++];
    if (arrival.factor != 0) continue;
    arrival.skipped = true;
    leave_out(arrival.weight);
  }
}

absl::Span<const float> OpenBundle::SumOf(size_t chunk, size_t lane, uint32_t divisor) {
  Check(n_ > 0, "a sum needs one contribution");
  SumPool::Lane* const scratch = pool_->lane(lane);
  // If no sum was begun, all chunks of a lane use the same memory, one after another.
  if (!begun_ && scratch->sum.size() < counts_[chunk]) scratch->sum.resize(counts_[chunk]);
  const absl::Span<float> sum = begun_
                                    ? absl::MakeSpan(sum_).subspan(begins_[chunk], counts_[chunk])
                                    : absl::MakeSpan(scratch->sum).first(counts_[chunk]);
  SumRanks(chunk, arrivals_.size(), scratch, sum);
  aggregators_[chunk]->Close(divisor, sum);
  return sum;
}

std::vector<uint32_t> OpenBundle::MissingRanks() const {
  std::vector<uint32_t> missing;
  for (uint32_t rank = 0; rank < arrivals_.size(); ++rank) {
    if (arrivals_[rank].expected && !arrivals_[rank].arrived) missing.push_back(rank);
  }
  return missing;
}

std::vector<protocol::Included> OpenBundle::IncludedRanks(uint64_t step) const {
  std::vector<protocol::Included> included;
  included.reserve(arrived_ + late_.size());
  for (uint32_t rank = 0; rank < arrivals_.size(); ++rank) {
    for (const Late& late : LateOf(rank)) {
      included.push_back({.rank = rank,
                          .origin_step = late.origin_step,
                          .checksum = late.checksum,
                          .skipped = late.factor == 0});
    }
    if (!arrivals_[rank].arrived) continue;
    included.push_back({.rank = rank,
                        .origin_step = step,
                        .checksum = arrivals_[rank].checksum,
                        .skipped = arrivals_[rank].skipped,
                        .weight = arrivals_[rank].weight});
  }
  return included;
}

std::vector<std::string> OpenBundle::MoveFrames(uint32_t rank) {
  std::vector<std::string> frames = std::move(arrivals_[rank].frames);
  arrivals_[rank].frames = {};
  for (const std::string& frame : frames) held_bytes_ -= frame.size();
  return frames;
}

}  // namespace sluice::server
