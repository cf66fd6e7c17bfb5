// The outcome of a pipeline's step: its result, the means and updates, and the publications.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "worker/core/pipeline.h"

namespace sluice::worker {

StepResult Pipeline::Result() const {
  StepResult result;
  result.step = step_;
  result.bundles_skipped_here = bundles_skipped_here_;
  result.first_skipped_tensor = first_skipped_tensor_;
  result.first_skipped_buffer = first_skipped_buffer_;
  result.checkpoint_due = step_ > 0 && step_ == checkpoint_step_;
  result.plan = plan_;
  std::optional<uint64_t> open_step;
  for (size_t shard = 0; shard < shards_.size(); ++shard) {
    for (size_t bundle = 0; bundle < shards_[shard].flights.size(); ++bundle) {
      const BundleState& flight = shards_[shard].flights[bundle];
      const uint32_t n = flight.record.n;
      open_step = std::min(open_step.value_or(flight.open_step), flight.open_step);
      result.staleness = std::max(result.staleness, flight.staleness);
      if (options_.layout.bundles[shard][bundle].buffers) {
        result.buffers_averaged = result.buffers_averaged || n > 0;
        continue;
      }
      result.n_min = result.bundles == 0 ? n : std::min(result.n_min, n);
      result.n_max = std::max(result.n_max, n);
      ++result.bundles;
    }
  }
  if (result.n_min == 0) result.without_mean = WithoutMean();
  if (options_.elastic) {
    for (const protocol::Included& included : shards_[0].flights[0].record.included) {
      if (included.origin_step == step_) result.members.push_back(included.rank);
    }
  }
  // Without lockstep, no worker counts as late: after a rollback, shards may be ahead of it.
  if (options_.lockstep && open_step.value_or(0) > step_ + 1) {
    result.steps_behind = *open_step - (step_ + 1);
  }
  if (catching_up_) result.steps_behind = std::max(result.steps_behind, uint64_t{1});
  return result;
}

// Returns whether any part of the tensor has a mean.
bool Pipeline::HasMean(uint32_t tensor) const {
  for (uint32_t id = first_chunk_[tensor]; id < first_chunk_[tensor + 1]; ++id) {
    const protocol::Chunk& chunk = options_.layout.chunks[id];
    if (shards_[chunk.shard].flights[chunk.bundle].record.n > 0) return true;
  }
  return false;
}

// Returns the trained tensors without a mean; there are almost never any.
std::vector<uint32_t> Pipeline::WithoutMean() const {
  std::vector<uint32_t> tensors;
  for (uint32_t tensor = 0; tensor < trained_; ++tensor) {
    if (!HasMean(tensor)) tensors.push_back(tensor);
  }
  return tensors;
}

std::vector<ReadyTensor> Pipeline::TakeReady() {
  std::vector<ReadyTensor> taken;
  for (const uint32_t tensor : arrivals_.Take()) {
    if (tensor >= trained_ && !buffers_due_) continue;
    taken.push_back({.tensor = tensor, .has_mean = HasMean(tensor)});
  }
  return taken;
}

absl::Status Pipeline::CheckMean(uint32_t tensor, size_t elements) const {
  if (tensor < options_.table.size() && elements == options_.table[tensor].elements()) {
    Check(!open_ || IsReady(tensor), "the results of the tensor have arrived");
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the mean of tensor ", tensor, " was requested with ", elements, " elements: ",
                   tensor < options_.table.size()
                       ? absl::StrCat("it is ", ToString(options_.table[tensor]))
                       : absl::StrCat("the job has ", options_.table.size(), " tensors")));
}

absl::Span<const std::byte> Pipeline::ResultOf(uint32_t chunk) const {
  const protocol::Chunk& place = options_.layout.chunks[chunk];
  const std::vector<std::string>& results = shards_[place.shard].flights[place.bundle].results;
  if (results.empty()) return {};
  return protocol::FrameBytes(results[position_[chunk]]);
}

absl::StatusOr<std::vector<ResultPart>> Pipeline::Parts(uint32_t tensor, size_t elements,
                                                        ResultUse use) const {
  absl::Status fits = CheckMean(tensor, elements);
  if (!fits.ok()) return fits;
  const bool is_buffer = tensor >= trained_;
  if (is_buffer && use != ResultUse::kMean) {
    return absl::InvalidArgumentError(absl::StrCat("buffer ", options_.table[tensor].name,
                                                   " has no gradient and no update: Apply writes "
                                                   "the mean of its values"));
  }
  std::vector<ResultPart> parts;
  for (uint32_t id = first_chunk_[tensor]; id < first_chunk_[tensor + 1]; ++id) {
    const protocol::Chunk& chunk = options_.layout.chunks[id];
    const absl::Span<const std::byte> result = ResultOf(id);
    if (result.empty() && is_buffer) continue;
    const bool exact = shards_[chunk.shard].flights[chunk.bundle].exact;
    parts.push_back({.offset = chunk.offset,
                     .count = chunk.count,
                     .from_zero = use != ResultUse::kUpdate || exact,
                     .frames = result});
  }
  return parts;
}

std::vector<Published> Pipeline::TakePublished() {
  Check(!open_ && !encoding_, "results are whole when the step is done");
  std::vector<Published> taken;
  // Step 0 published parameters, which encoders do not observe.
  if (step_ == 0 || !options_.lockstep) return taken;
  for (size_t shard = 0; shard < shards_.size(); ++shard) {
    for (size_t bundle = 0; bundle < shards_[shard].flights.size(); ++bundle) {
      BundleState& flight = shards_[shard].flights[bundle];
      if (flight.taken) continue;
      flight.taken = true;
      const std::vector<std::string>& frames =
          flight.results.empty() ? flight.published : flight.results;
      if (frames.empty()) continue;
      taken.push_back({options_.layout.bundles[shard][bundle].chunks, frames});
    }
  }
  return taken;
}

const protocol::ClosingRecord& Pipeline::Record(uint32_t shard, uint32_t bundle) const {
  return shards_[shard].flights[bundle].record;
}

}  // namespace sluice::worker
