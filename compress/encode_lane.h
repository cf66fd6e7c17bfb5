// SPDX-License-Identifier: Apache-2.0
// EncodeLane: what one of several threads needs to encode chunks: scratch memory, and its own
// counts of each group, which are added to the groups' counts afterwards.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "compress/codec.h"
#include "compress/feedback/codec_group.h"

namespace sluice::compress {

class EncodeLane {
 public:
  // Prepares for chunks of so many groups.
  void Begin(size_t groups) { counts_.resize(groups); }
  // Returns this lane's counts of the group.
  GroupCounts* CountsOf(size_t group);
  // Adds the counts to those of the groups, and clears them.
  void MoveCounts(absl::Span<CodecGroup> groups);

  EncodeScratch scratch;

 private:
  std::vector<std::unique_ptr<GroupCounts>> counts_;  // By group. Null before the first use.
  std::vector<size_t> used_;                          // Groups that have counts.
};

}  // namespace sluice::compress
