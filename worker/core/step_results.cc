// SPDX-License-Identifier: Apache-2.0
#include "worker/core/step_results.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::worker {

StepResults::StepResults(const PipelineOptions& options, const ChunkIndex& index, uint32_t trained)
    : options_(options),
      index_(index),
      trained_(trained),
      arrivals_(options.layout, options.table.size()) {
  for (const std::vector<protocol::Bundle>& bundles : options.layout.bundles) {
    bundles_.emplace_back(bundles.size());
    versions_.emplace_back(bundles.size());
  }
}

void StepResults::StartStep(bool observed) {
  arrivals_.StartStep();
  for (std::vector<BundleResult>& bundles : bundles_) {
    for (BundleResult& bundle : bundles) {
      BundleResult next;
      if (observed && !bundle.taken && !bundle.exact) {
        next.published = std::move(bundle.frames.empty() ? bundle.published : bundle.frames);
      }
      bundle = std::move(next);
    }
  }
}

void StepResults::Add(uint32_t shard, protocol::ExchangeReply answer) {
  BundleResult& bundle = bundles_[shard][answer.bundle];
  bundle.record = std::move(answer.record);
  bundle.exact = answer.exact;
  bundle.staleness = answer.staleness;
  bundle.open_step = answer.open_step;
  bundle.members = std::move(answer.members);
  bundle.frames = std::move(answer.results);
  versions_[shard][answer.bundle] = answer.version;
  for (const uint32_t chunk : options_.layout.bundles[shard][answer.bundle].chunks) {
    arrivals_.Add(options_.layout.chunks[chunk].tensor);
  }
}

bool StepResults::InTime(uint64_t latest) const {
  return std::all_of(
      bundles_.begin(), bundles_.end(), [latest](const std::vector<BundleResult>& bundles) {
        return std::all_of(bundles.begin(), bundles.end(), [latest](const BundleResult& bundle) {
          return bundle.open_step <= latest;
        });
      });
}

// Returns whether any part of the tensor has a mean.
bool StepResults::HasMean(uint32_t tensor) const {
  const absl::Span<const protocol::Chunk> chunks = index_.Of(tensor);
  return std::any_of(chunks.begin(), chunks.end(), [this](const protocol::Chunk& chunk) {
    return bundles_[chunk.shard][chunk.bundle].record.n > 0;
  });
}

std::vector<ReadyTensor> StepResults::TakeReady(bool with_buffers) {
  std::vector<ReadyTensor> taken;
  for (const uint32_t tensor : arrivals_.Take()) {
    if (tensor >= trained_ && !with_buffers) continue;
    taken.push_back({.tensor = tensor, .has_mean = HasMean(tensor)});
  }
  return taken;
}

absl::Status StepResults::CheckUse(uint32_t tensor, size_t elements, ResultUse use) const {
  if (tensor >= options_.table.size() || elements != options_.table[tensor].elements()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the mean of tensor ", tensor, " was requested with ", elements, " elements: ",
                     tensor < options_.table.size()
                         ? absl::StrCat("it is ", ToString(options_.table[tensor]))
                         : absl::StrCat("the job has ", options_.table.size(), " tensors")));
  }
  if (tensor < trained_ || use == ResultUse::kMean) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("buffer ", options_.table[tensor].name,
                                                 " has no gradient and no update: Apply writes "
                                                 "the mean of its values"));
}

absl::StatusOr<std::vector<ResultPart>> StepResults::Parts(uint32_t tensor, size_t elements,
                                                           ResultUse use) const {
  absl::Status valid = CheckUse(tensor, elements, use);
  if (!valid.ok()) return valid;
  std::vector<ResultPart> parts;
  for (const protocol::Chunk& chunk : index_.Of(tensor)) {
    const BundleResult& bundle = bundles_[chunk.shard][chunk.bundle];
    const bool is_buffer = tensor >= trained_;
    if (bundle.frames.empty() && is_buffer) continue;
    absl::Span<const std::byte> frames;
    if (!bundle.frames.empty()) {
      frames = protocol::FrameBytes(bundle.frames[index_.position(chunk)]);
    }
    parts.push_back({.offset = chunk.offset,
                     .count = chunk.count,
                     .from_zero = use != ResultUse::kUpdate || bundle.exact,
                     .frames = frames});
  }
  return parts;
}

StepResult StepResults::Summary(uint64_t step, bool may_lag) const {
  StepResult result;
  result.step = step;
  std::optional<uint64_t> open_step;
  for (size_t shard = 0; shard < bundles_.size(); ++shard) {
    for (size_t i = 0; i < bundles_[shard].size(); ++i) {
      const BundleResult& bundle = bundles_[shard][i];
      const protocol::Bundle& place = options_.layout.bundles[shard][i];
      const uint32_t n = bundle.record.n;
      open_step = std::min(open_step.value_or(bundle.open_step), bundle.open_step);
      result.staleness = std::max(result.staleness, bundle.staleness);
      if (place.buffers) {
        result.buffers_averaged = result.buffers_averaged || n > 0;
        continue;
      }
      if (!protocol::IsFragmentDue(options_.layout.fragments, place.fragment, step)) continue;
      result.n_min = result.bundles == 0 ? n : std::min(result.n_min, n);
      result.n_max = std::max(result.n_max, n);
      ++result.bundles;
    }
  }
  // There are almost never tensors without a mean.
  for (uint32_t tensor = 0; result.n_min == 0 && tensor < trained_; ++tensor) {
    if (!HasMean(tensor)) result.without_mean.push_back(tensor);
  }
  if (options_.exchange.lists_members()) {
    result.members = bundles_[0][0].members;
  } else if (options_.exchange.elastic()) {
    for (const protocol::Included& included : bundles_[0][0].record.included) {
      if (included.origin_step == step) result.members.push_back(included.rank);
    }
  }
  if (may_lag && open_step.value_or(0) > step + 1) {
    result.steps_behind = *open_step - (step + 1);
  }
  return result;
}

std::vector<Published> StepResults::TakePublished() {
  std::vector<Published> taken;
  for (size_t shard = 0; shard < bundles_.size(); ++shard) {
    for (size_t i = 0; i < bundles_[shard].size(); ++i) {
      BundleResult& bundle = bundles_[shard][i];
      if (bundle.exact || std::exchange(bundle.taken, true)) continue;
      const std::vector<std::string>& frames =
          bundle.frames.empty() ? bundle.published : bundle.frames;
      if (frames.empty()) continue;
      taken.push_back({options_.layout.bundles[shard][i].chunks, frames});
    }
  }
  return taken;
}

}  // namespace sluice::worker
