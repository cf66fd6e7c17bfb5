// SPDX-License-Identifier: Apache-2.0
#include "worker/core/late_work.h"

#include <algorithm>
#include <utility>

namespace sluice::worker {

LateWork::LateWork(const PipelineOptions& options) : options_(options) {
  if (options_.exchange.quorum == 0) return;
  for (const std::vector<protocol::Bundle>& bundles : options_.layout.bundles) {
    bundles_.emplace_back(bundles.size());
  }
}

void LateWork::Resolve(uint32_t shard, const protocol::ExchangeReply& result,
                       const std::shared_ptr<const protocol::ExchangeRequest>& own) {
  if (bundles_.empty() || own == nullptr) return;
  OfBundle& bundle = bundles_[shard][result.bundle];
  bool includes_own = false;
  for (const protocol::Included& included : result.record.included) {
    if (included.rank != options_.sender.rank) continue;
    includes_own = includes_own || included.origin_step == result.step;
    const auto found =
        std::find_if(bundle.waiting.begin(), bundle.waiting.end(),
                     [&](const auto& waiting) { return waiting->step == included.origin_step; });
    if (found == bundle.waiting.end()) continue;
    const uint64_t age = (result.step - included.origin_step) / options_.layout.fragments;
    const float rest = 1 - options_.exchange.merge.LateFactor(age);
    if (!included.skipped && rest > 0) {
      bundle.returned.push_back({.chunks = options_.layout.bundles[shard][result.bundle].chunks,
                                 .contribution = std::move(*found),
                                 .share = rest});
    }
    bundle.waiting.erase(found);
  }
  // A shard drops late buffers.
  const bool buffers = options_.layout.bundles[shard][result.bundle].buffers;
  if (!includes_own && !own->skip && !buffers) bundle.waiting.push_back(own);
}

std::vector<ReturnedWork> LateWork::Take(uint32_t shard, uint32_t bundle) {
  if (bundles_.empty()) return {};
  return std::exchange(bundles_[shard][bundle].returned, {});
}

LateParts LateWork::TakeAll() {
  LateParts all;
  for (size_t shard = 0; shard < bundles_.size(); ++shard) {
    for (size_t i = 0; i < bundles_[shard].size(); ++i) {
      for (ReturnedWork& work : Take(static_cast<uint32_t>(shard), static_cast<uint32_t>(i))) {
        all.returned.push_back(std::move(work));
      }
      for (const auto& waiting : bundles_[shard][i].waiting) {
        all.pending.push_back({.chunks = options_.layout.bundles[shard][i].chunks,
                               .contribution = waiting,
                               .share = 1});
      }
    }
  }
  return all;
}

}  // namespace sluice::worker
