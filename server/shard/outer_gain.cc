// SPDX-License-Identifier: Apache-2.0
#include "server/shard/outer_gain.h"

#include <algorithm>
#include <cmath>

namespace sluice::server {
namespace {

// Returns the distance between sampled elements. It is odd, because the rows of a matrix often have
// an even length and the sample must not consist of a few columns.
size_t StrideOf(size_t count) {
  return ((count + OuterGain::kSampled - 1) / OuterGain::kSampled) | 1;
}

}  // namespace

void OuterGain::Add(size_t chunk, double rate, absl::Span<const float> change) {
  if (change.empty()) return;
  const size_t stride = StrideOf(change.size());
  const size_t sampled = (change.size() + stride - 1) / stride;
  ChunkState& state = chunks_[chunk];
  rate_ = rate;
  const bool has_previous = !state.previous.empty();
  state.previous.resize(sampled);
  double product = 0;
  double energy = 0;
  double previous_energy = 0;
  for (size_t i = 0; i < sampled; ++i) {
    const double now = change[i * stride];
    const double before = state.previous[i];
    product += now * before;
    energy += now * now;
    previous_energy += before * before;
    state.previous[i] = change[i * stride];
  }
  if (!has_previous) return;
  const double norms = std::sqrt(energy) * std::sqrt(previous_energy);
  state.energy = norms * static_cast<double>(change.size()) / static_cast<double>(sampled);
  if (norms == 0) return;
  state.cosines = kMemory * state.cosines + product / norms;
  state.weights = kMemory * state.weights + 1;
}

std::optional<double> OuterGain::correlation() const {
  double sum = 0;
  double energy = 0;
  for (const ChunkState& state : chunks_) {
    if (state.energy == 0) continue;
    sum += state.energy * state.cosines / state.weights;
    energy += state.energy;
  }
  if (energy == 0) return std::nullopt;
  return std::clamp(sum / energy, -1.0, 1.0);
}

std::optional<double> OuterGain::gain() const {
  const std::optional<double> rho = correlation();
  if (!rho.has_value()) return std::nullopt;
  return rate_ * (1 + momentum_ / (1 - momentum_ * *rho));
}

size_t OuterGain::bytes() const {
  size_t floats = 0;
  for (const ChunkState& state : chunks_) floats += state.previous.capacity();
  return floats * sizeof(float);
}

std::optional<OuterGain> MakeOuterGain(job::Mode mode,
                                       const std::optional<job::OptimizerSpec>& rule,
                                       size_t chunks) {
  if (!job::TraitsOf(mode).local_steps || !rule.has_value() || rule->name != "sgd") {
    return std::nullopt;
  }
  if (rule->momentum > 0 && !rule->nesterov) return std::nullopt;
  return OuterGain(chunks, rule->momentum);
}

}  // namespace sluice::server
