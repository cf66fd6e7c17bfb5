// SPDX-License-Identifier: Apache-2.0
#include "compress/feedback/residual_merge.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/feedback/difference.h"
#include "compress/frame.h"

namespace sluice::compress {
namespace {

// Adds the lists of `state` to `*sums`. An absent list represents zeros.
absl::Status AddLists(const SavedState& state, size_t chunk, SavedState* sums) {
  for (const auto& [name, values] : state) {
    if (name == kCodecState) continue;
    std::vector<float>& sum = (*sums)[name];
    if (sum.empty()) sum.resize(values.size());
    if (sum.size() != values.size()) {
      return absl::InvalidArgumentError(absl::StrCat("chunk ", chunk, ": saved ", name, " has ",
                                                     values.size(), " elements, and had ",
                                                     sum.size(), " with another rank"));
    }
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
  }
  return absl::OkStatus();
}

// Returns whether the residuals of two chunks can be added. Their codecs may differ, because ranks
// take up a compression plan at different times.
bool MayBeAdded(ChunkConfig a, const ChunkConfig& b) {
  if (!(a.spec.compensator == b.spec.compensator)) return false;
  a.spec = b.spec;
  return a == b;
}

// Clears the state that assumes that the receiver remembers earlier frames of the sender. The
// receiver remembers nothing of a new sender.
void ForgetReceiver(SavedCompressor::Chunk* chunk) {
  if (chunk->config.spec.codec != CodecId::kLsh) return;
  const auto codec = chunk->state.find(kCodecState);
  if (codec != chunk->state.end()) std::fill(codec->second.begin(), codec->second.end(), 0.0f);
}

}  // namespace

SavedCompressor ForNewReceivers(SavedCompressor saved, const SavedCompressor& initial) {
  for (size_t i = 0; i < saved.chunks.size() && i < initial.chunks.size(); ++i) {
    SavedState& state = saved.chunks[i].state;
    const SavedState& begin = initial.chunks[i].state;
    if (HasMemory(saved.chunks[i].config.spec.compensator.id)) {
      state = begin;
      continue;
    }
    state.erase(kCodecState);
    if (const auto codec = begin.find(kCodecState); codec != begin.end()) state.insert(*codec);
  }
  return saved;
}

void AddToResidual(absl::Span<const std::byte> frame, SavedCompressor::Chunk* chunk) {
  const CompensatorId id = chunk->config.spec.compensator.id;
  if (id != CompensatorId::kErrorFeedback && id != CompensatorId::kDgc) return;
  std::vector<float>& residual = chunk->state[kResidualState];
  residual.resize(chunk->config.count);
  AddValidFrames(frame, absl::MakeSpan(residual));
}

absl::Status ResidualMerge::Add(SavedCompressor saved, bool as_rest) {
  if (senders_ == 0) {
    for (const SavedCompressor::Chunk& chunk : saved.chunks) configs_.push_back(chunk.config);
    sums_.resize(configs_.size());
  }
  const bool same = saved.chunks.size() == configs_.size() &&
                    std::equal(configs_.begin(), configs_.end(), saved.chunks.begin(),
                               [](const ChunkConfig& config, const SavedCompressor::Chunk& chunk) {
                                 return MayBeAdded(config, chunk.config);
                               });
  if (!same) return absl::InvalidArgumentError("ranks had different chunks or compensators");
  for (size_t i = 0; i < sums_.size(); ++i) {
    absl::Status added = AddLists(saved.chunks[i].state, i, &sums_[i]);
    if (!added.ok()) return added;
  }
  ++senders_;
  if (!as_rest) return absl::OkStatus();
  // Only the codecs' lists are kept, because residuals are as large as the model.
  for (SavedCompressor::Chunk& chunk : saved.chunks) {
    std::erase_if(chunk.state, [](const auto& list) { return list.first != kCodecState; });
    ForgetReceiver(&chunk);
  }
  rest_ = std::move(saved);
  has_rest_ = true;
  return absl::OkStatus();
}

absl::StatusOr<SavedCompressor> ResidualMerge::Take() {
  if (!has_rest_) return absl::FailedPreconditionError("no rank's state was added");
  const float divisor = static_cast<float>(senders_);
  for (size_t i = 0; i < sums_.size(); ++i) {
    for (auto& [name, sum] : sums_[i]) {
      for (float& x : sum) x /= divisor;
      rest_.chunks[i].state[name] = std::move(sum);
    }
  }
  return std::move(rest_);
}

}  // namespace sluice::compress
