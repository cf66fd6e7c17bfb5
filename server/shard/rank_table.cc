// SPDX-License-Identifier: Apache-2.0
#include "server/shard/rank_table.h"

#include <algorithm>

namespace sluice::server {

RankTable::RankTable(const ShardOptions* options, size_t bundles)
    : options_(*options), ranks_(options->incarnations.size()) {
  if (options_.exchange.quorum > 0) admitted_.assign(bundles, std::vector<Admitted>(ranks_.size()));
}

uint64_t RankTable::ReservedBytes(const ShardOptions& options, size_t bundles) {
  return options.exchange.quorum == 0 ? 0
                                      : sizeof(Admitted) * bundles * options.incarnations.size();
}

void RankTable::Replace(uint32_t rank, uint64_t last_step) {
  ranks_[rank] = {.inherited = last_step};
}

void RankTable::NoteStep(uint32_t rank, uint64_t step) {
  ranks_[rank].furthest = std::max(ranks_[rank].furthest, step);
}

uint64_t RankTable::FurthestStep(Selects selects) const {
  uint64_t furthest = 0;
  for (uint32_t rank = 0; rank < size(); ++rank) {
    if (selects(rank)) furthest = std::max(furthest, ranks_[rank].furthest);
  }
  return furthest;
}

void RankTable::Reach(uint32_t rank, uint64_t step) {
  ranks_[rank].reached = std::max(ranks_[rank].reached, step);
  NoteStep(rank, step);
}

uint64_t RankTable::LowestReached(uint64_t at_most, Selects selects) const {
  uint64_t lowest = at_most;
  for (uint32_t rank = 0; rank < size(); ++rank) {
    if (selects(rank)) lowest = std::min(lowest, ranks_[rank].reached);
  }
  return lowest;
}

bool RankTable::Acknowledge(uint32_t rank, uint64_t step) {
  if (step <= ranks_[rank].acked) return false;
  ranks_[rank].acked = step;
  return true;
}

std::optional<uint64_t> RankTable::LowestAcked(Selects selects, uint64_t known) const {
  std::optional<uint64_t> lowest;
  for (uint32_t rank = 0; rank < size(); ++rank) {
    if (!selects(rank)) continue;
    lowest = std::min(lowest.value_or(ranks_[rank].acked), ranks_[rank].acked);
    if (*lowest <= known) break;
  }
  return lowest;
}

bool RankTable::MayStayUnanswered(uint32_t rank, StreamId stream, uint64_t bytes) const {
  const Rank& of = ranks_[rank];
  return options_.unanswered_bytes > 0 && of.answered == stream &&
         of.unanswered + bytes <= options_.unanswered_bytes;
}

}  // namespace sluice::server
