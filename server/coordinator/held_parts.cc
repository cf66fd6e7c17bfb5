// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/held_parts.h"

#include <algorithm>

namespace sluice::server {
namespace {

// Limit on the held parts. Each rank needs one, and rank 0 one for each of its files for people.
constexpr size_t kPartsMax = 4096;

}  // namespace

void HeldParts::Keep(const protocol::CheckpointPart& part) {
  if (!parts_.empty() && parts_.begin()->second.term < part.term) parts_.clear();
  if (parts_.size() < kPartsMax || parts_.contains(part.name)) {
    parts_.insert_or_assign(part.name, part);
  }
}

std::vector<protocol::CheckpointPart> HeldParts::Take(uint64_t step, uint32_t term) {
  std::vector<protocol::CheckpointPart> taken;
  std::erase_if(parts_, [&](const auto& entry) {
    const protocol::CheckpointPart& part = entry.second;
    if (part.term == term && part.step == step) taken.push_back(part);
    return part.term != term || part.step <= step;
  });
  std::stable_partition(taken.begin(), taken.end(), [](const protocol::CheckpointPart& part) {
    return !part.name.starts_with("worker-");
  });
  return taken;
}

void HeldParts::RemoveRank(uint32_t rank) {
  std::erase_if(parts_, [rank](const auto& entry) {
    const auto& [name, part] = entry;
    return name == protocol::WorkerPartName(rank, part.term) ||
           (rank == 0 && !name.starts_with("worker-"));
  });
}

}  // namespace sluice::server
