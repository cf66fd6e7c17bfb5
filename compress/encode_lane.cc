// SPDX-License-Identifier: Apache-2.0
#include "compress/encode_lane.h"

namespace sluice::compress {

GroupCounts* EncodeLane::CountsOf(size_t group) {
  std::unique_ptr<GroupCounts>& counts = counts_[group];
  if (counts == nullptr) counts = std::make_unique<GroupCounts>();
  used_.push_back(group);
  return counts.get();
}

void EncodeLane::MoveCounts(absl::Span<CodecGroup> groups) {
  for (const size_t group : used_) {
    groups[group].counts.Add(*counts_[group]);
    counts_[group]->Clear();
  }
  used_.clear();
}

}  // namespace sluice::compress
