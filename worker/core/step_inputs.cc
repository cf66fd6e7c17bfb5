// SPDX-License-Identifier: Apache-2.0
#include "worker/core/step_inputs.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace sluice::worker {

StepInputs::StepInputs(const PipelineOptions& options, const ChunkIndex& index, uint32_t trained)
    : options_(options),
      index_(index),
      trained_(trained),
      gradients_(options.table.size()),
      ready_(options.table.size()),
      due_(options.table.size()),
      shards_(options.layout.bundles.size()) {}

void StepInputs::StartStep(uint64_t step, bool buffers_due) {
  step_ = step;
  buffers_due_ = buffers_due;
  skipped_ = false;
  to_encode_ = 0;
  bundles_skipped_ = 0;
  first_skipped_tensor_.clear();
  first_skipped_buffer_.clear();
  ready_.assign(ready_.size(), false);
  due_.assign(due_.size(), false);
  for (uint32_t i = 0; i < shards_.size(); ++i) {
    ShardInputs& shard = shards_[i];
    const std::vector<protocol::Bundle>& bundles = options_.layout.bundles[i];
    shard.next = 0;
    shard.weight.assign(bundles.size(), 1);
    shard.chunks_missing.clear();
    for (const protocol::Bundle& bundle : bundles) {
      // An empty bundle is never complete, because there is nothing to encode.
      const size_t missing = std::max<size_t>(bundle.chunks.size(), 1);
      shard.chunks_missing.push_back(static_cast<uint32_t>(missing));
      if (!IsDue(bundle)) continue;
      ++to_encode_;
      for (const uint32_t chunk : bundle.chunks) due_[options_.layout.chunks[chunk].tensor] = true;
    }
    SkipToDue(i);
  }
}

bool StepInputs::IsDue(const protocol::Bundle& bundle) const {
  if (bundle.chunks.empty()) return false;
  if (bundle.buffers) return buffers_due_;
  return protocol::IsFragmentDue(options_.layout.fragments, bundle.fragment, step_);
}

void StepInputs::SkipToDue(uint32_t shard) {
  const std::vector<protocol::Bundle>& bundles = options_.layout.bundles[shard];
  uint32_t& next = shards_[shard].next;
  while (next < bundles.size() && !IsDue(bundles[next])) ++next;
}

absl::Status StepInputs::Submit(uint32_t tensor, const GradientView& gradient) {
  if (tensor >= options_.table.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", tensor, " was submitted, but the job has ", options_.table.size(), " tensors"));
  }
  const protocol::TensorInfo& info = options_.table[tensor];
  if (gradient.size != info.elements()) {
    return absl::InvalidArgumentError(absl::StrCat("a gradient of ", gradient.size,
                                                   " elements was submitted for ", ToString(info)));
  }
  if (tensor >= trained_ && !buffers_due_) {
    return absl::InvalidArgumentError(
        absl::StrCat("buffer ", info.name, " was submitted, but buffers are not averaged in step ",
                     step_, ": submit them only if BuffersDue returns true"));
  }
  if (!due_[tensor]) {
    return absl::InvalidArgumentError(absl::StrCat(
        info.name, " was submitted, but no part of it belongs to the fragment of step ", step_,
        ": submit only the tensors of PartsDue"));
  }
  if (skipped_ || ready_[tensor]) {
    return absl::InvalidArgumentError(absl::StrCat(
        info.name, " was submitted ", skipped_ ? "after this worker skipped" : "twice in", " step ",
        step_, skipped_ ? "" : ": submit each tensor once, when its gradient is final"));
  }
  ready_[tensor] = true;
  gradients_[tensor] = gradient;
  for (const protocol::Chunk& chunk : index_.Of(tensor)) {
    --shards_[chunk.shard].chunks_missing[chunk.bundle];
  }
  return absl::OkStatus();
}

absl::Status StepInputs::SetWeight(uint32_t shard, uint32_t bundle, uint32_t contributions) {
  if (shard >= shards_.size() || bundle >= options_.layout.bundles[shard].size()) {
    return absl::InvalidArgumentError(absl::StrCat("a weight was set for bundle ", bundle,
                                                   " of shard ", shard, ", which does not exist"));
  }
  shards_[shard].weight[bundle] = contributions;
  return absl::OkStatus();
}

absl::Status StepInputs::Skip() {
  if (skipped_ || std::find(ready_.begin(), ready_.end(), true) != ready_.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("step ", step_, " cannot be skipped: ",
                     skipped_ ? "it was skipped already" : "a tensor of it was submitted"));
  }
  skipped_ = true;
  to_encode_ = 0;
  return absl::OkStatus();
}

std::optional<EncodeTask> StepInputs::NextTask() {
  if (skipped_ || encoding_) return std::nullopt;
  // Shards take turns, so that all of them have work from the start.
  const ShardInputs* best = nullptr;
  for (const ShardInputs& shard : shards_) {
    if (shard.next == shard.chunks_missing.size() || shard.chunks_missing[shard.next] > 0) continue;
    if (best == nullptr || shard.next < best->next) best = &shard;
  }
  if (best == nullptr) return std::nullopt;
  encoding_ = true;
  EncodeTask task;
  task.step = step_;
  task.shard = static_cast<uint32_t>(best - shards_.data());
  task.bundle = best->next;
  task.last_of_step = to_encode_ == 1;
  task.nothing = best->weight[best->next] == 0;
  task.chunks = options_.layout.bundles[task.shard][task.bundle].chunks;
  for (const uint32_t id : task.chunks) {
    const protocol::Chunk& chunk = options_.layout.chunks[id];
    task.gradients.push_back(gradients_[chunk.tensor].Part(chunk.offset, chunk.count));
  }
  return task;
}

void StepInputs::Encoded(const EncodedBundle& encoded) {
  Check(encoding_, "a task was taken before");
  ShardInputs& shard = shards_[encoded.shard];
  Check(encoded.step == step_ && encoded.bundle == shard.next, "tasks come back as taken");
  encoding_ = false;
  ++shard.next;
  SkipToDue(encoded.shard);
  --to_encode_;
  if (!encoded.skipped || shard.weight[encoded.bundle] == 0) return;
  const bool buffer = encoded.skipped_tensor >= trained_;
  if (!buffer) ++bundles_skipped_;
  std::string& first = buffer ? first_skipped_buffer_ : first_skipped_tensor_;
  if (first.empty()) first = options_.table[encoded.skipped_tensor].name;
}

std::vector<uint32_t> StepInputs::NotDue(uint32_t shard) const {
  const std::vector<protocol::Bundle>& bundles = options_.layout.bundles[shard];
  std::vector<uint32_t> not_due;
  for (uint32_t bundle = 0; bundle < bundles.size(); ++bundle) {
    if (!IsDue(bundles[bundle])) not_due.push_back(bundle);
  }
  return not_due;
}

std::optional<uint32_t> StepInputs::MissingTensor() const {
  if (skipped_) return std::nullopt;
  for (uint32_t tensor = 0; tensor < ready_.size(); ++tensor) {
    if (due_[tensor] && !ready_[tensor]) return tensor;
  }
  return std::nullopt;
}

void StepInputs::AddSkippedTo(StepResult* result) const {
  result->bundles_skipped_here = bundles_skipped_;
  result->first_skipped_tensor = first_skipped_tensor_;
  result->first_skipped_buffer = first_skipped_buffer_;
}

}  // namespace sluice::worker
