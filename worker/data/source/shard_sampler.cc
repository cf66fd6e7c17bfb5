// SPDX-License-Identifier: Apache-2.0
#include "worker/data/source/shard_sampler.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/random.h"

namespace sluice::worker {
namespace {

constexpr uint64_t kShuffleStream = 0x5348;  // Separates this use of the seed from others.

}  // namespace

ShardSampler::ShardSampler(const ShardSamplerOptions& options) : options_(options) {
  Check(options.samples > 0 && options.ranks > 0 && options.batch_size > 0 &&
            options.passes_per_step > 0,
        "a sampler has samples, ranks and a batch size");
}

uint64_t ShardSampler::StepsAfter(uint64_t offset) const {
  const uint64_t left = options_.samples - std::min<uint64_t>(offset, options_.samples);
  // Rank 0 always has the longest deal.
  const uint64_t most = (left + options_.ranks - 1) / options_.ranks;
  const uint64_t per_step = uint64_t{options_.batch_size} * options_.passes_per_step;
  return (most + per_step - 1) / per_step;
}

uint64_t ShardSampler::OffsetAfter(uint64_t offset, uint64_t steps) const {
  const uint64_t per_step =
      uint64_t{options_.batch_size} * options_.passes_per_step * options_.ranks;
  return std::min<uint64_t>(options_.samples, offset + steps * per_step);
}

std::vector<uint32_t> ShardSampler::Deal(uint64_t epoch, uint64_t offset) const {
  if (options_.rank >= options_.ranks) return {};
  std::vector<uint32_t> deck(options_.samples);
  std::iota(deck.begin(), deck.end(), 0u);
  CounterRandom random(options_.seed, kShuffleStream, epoch);
  for (size_t i = deck.size() - 1; i > 0; --i) std::swap(deck[i], deck[random.Below(i + 1)]);
  std::vector<uint32_t> dealt;
  dealt.reserve(deck.size() / options_.ranks + 1);
  for (uint64_t i = offset + options_.rank; i < deck.size(); i += options_.ranks) {
    dealt.push_back(deck[i]);
  }
  return dealt;
}

absl::Span<const uint32_t> ShardSampler::Batch(absl::Span<const uint32_t> dealt, uint64_t step,
                                               uint32_t pass) const {
  const uint64_t first = (step * options_.passes_per_step + pass) * options_.batch_size;
  if (first >= dealt.size()) return {};
  return dealt.subspan(first, options_.batch_size);
}

}  // namespace sluice::worker
