// The outcome of a pipeline's step: its result, the means and updates, and the publications.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compress/frame.h"
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

// Returns the trained tensors without a mean in any part; there are almost never any.
std::vector<uint32_t> Pipeline::WithoutMean() const {
  std::vector<uint32_t> tensors;
  for (uint32_t tensor = 0; tensor < trained_; ++tensor) {
    bool has_mean = false;
    for (uint32_t id = first_chunk_[tensor]; id < first_chunk_[tensor + 1]; ++id) {
      const protocol::Chunk& chunk = options_.layout.chunks[id];
      has_mean = has_mean || shards_[chunk.shard].flights[chunk.bundle].record.n > 0;
    }
    if (!has_mean) tensors.push_back(tensor);
  }
  return tensors;
}

absl::Status Pipeline::CheckMean(uint32_t tensor, size_t elements) const {
  Check(!open_, "means are there when the step is done");
  if (tensor < options_.table.size() && elements == options_.table[tensor].elements()) {
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

absl::Status Pipeline::DecodeMean(uint32_t tensor, absl::Span<float> mean) const {
  absl::Status fits = CheckMean(tensor, mean.size());
  if (!fits.ok()) return fits;
  for (uint32_t id = first_chunk_[tensor]; id < first_chunk_[tensor + 1]; ++id) {
    const protocol::Chunk& chunk = options_.layout.chunks[id];
    const absl::Span<float> part = mean.subspan(chunk.offset, chunk.count);
    const absl::Span<const std::byte> result = ResultOf(id);
    if (result.empty() && tensor >= trained_) continue;
    std::fill(part.begin(), part.end(), 0.0f);
    compress::AddValidFrames(result, part);
  }
  return absl::OkStatus();
}

absl::Status Pipeline::AddMean(uint32_t tensor, float scale, absl::Span<float> values) {
  absl::Status fits = CheckMean(tensor, values.size());
  if (!fits.ok()) return fits;
  if (tensor >= trained_) {
    return absl::InvalidArgumentError(absl::StrCat("buffer ", options_.table[tensor].name,
                                                   " cannot be added to: a buffer's mean "
                                                   "replaces its values"));
  }
  for (uint32_t id = first_chunk_[tensor]; id < first_chunk_[tensor + 1]; ++id) {
    const protocol::Chunk& chunk = options_.layout.chunks[id];
    compress::AddScaledValidFrames(ResultOf(id), scale, &scratch_,
                                   values.subspan(chunk.offset, chunk.count));
  }
  return absl::OkStatus();
}

absl::Status Pipeline::ApplyUpdate(uint32_t tensor, absl::Span<float> parameters) const {
  absl::Status fits = CheckMean(tensor, parameters.size());
  if (!fits.ok()) return fits;
  if (tensor >= trained_) {
    return absl::InvalidArgumentError(
        absl::StrCat("buffer ", options_.table[tensor].name, " has no updates"));
  }
  for (uint32_t id = first_chunk_[tensor]; id < first_chunk_[tensor + 1]; ++id) {
    const protocol::Chunk& chunk = options_.layout.chunks[id];
    const absl::Span<float> part = parameters.subspan(chunk.offset, chunk.count);
    if (shards_[chunk.shard].flights[chunk.bundle].exact) std::fill(part.begin(), part.end(), 0.0f);
    compress::AddValidFrames(ResultOf(id), part);
  }
  return absl::OkStatus();
}

absl::Status Pipeline::AppendSums(uint32_t tensor, bool update, absl::Span<float> values,
                                  std::vector<compress::DeviceSum>* sums) const {
  absl::Status fits = CheckMean(tensor, values.size());
  if (!fits.ok()) return fits;
  if (tensor >= trained_) {
    return absl::InvalidArgumentError(
        absl::StrCat("buffer ", options_.table[tensor].name, " is kept on the host"));
  }
  for (uint32_t id = first_chunk_[tensor]; id < first_chunk_[tensor + 1]; ++id) {
    const protocol::Chunk& chunk = options_.layout.chunks[id];
    compress::DeviceSum& sum = sums->emplace_back();
    sum.sum = values.data() + chunk.offset;
    sum.count = chunk.count;
    sum.from_zero = !update || shards_[chunk.shard].flights[chunk.bundle].exact;
    sum.frames = ResultOf(id);
  }
  return absl::OkStatus();
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
