// SPDX-License-Identifier: Apache-2.0
#include "worker/core/replay_buffer.h"

#include <algorithm>
#include <utility>

namespace sluice::worker {
namespace {

// Includes a fixed cost, so that steps without frames also count against the limit.
uint64_t BytesOf(const protocol::ExchangeRequest& exchange) {
  uint64_t bytes = sizeof(protocol::ExchangeRequest) + sizeof(ReplayBuffer::Entry);
  for (const std::string& frame : exchange.frames) bytes += sizeof(std::string) + frame.size();
  return bytes;
}

using Key = std::pair<uint64_t, uint32_t>;

bool IsBefore(const ReplayBuffer::Entry& entry, const Key& key) {
  return Key(entry.exchange->step, entry.exchange->bundle) < key;
}

}  // namespace

ReplayBuffer::ReplayBuffer(size_t shards, uint64_t bytes_max, uint64_t first_step)
    : bytes_max_(bytes_max), from_(first_step), shards_(shards) {}

void ReplayBuffer::Add(uint32_t shard, std::shared_ptr<const protocol::ExchangeRequest> exchange) {
  const uint64_t step = exchange->step;
  // A checkpoint already covers steps below from_; this worker only re-executes them.
  if (bytes_max_ == 0 || step < from_) return;
  const uint64_t bytes = BytesOf(*exchange);
  bytes_ += bytes;
  std::deque<Entry>& entries = shards_[shard];
  // Entries usually go to the end, but a bundle without data may overtake earlier bundles.
  const auto at =
      std::lower_bound(entries.begin(), entries.end(), Key(step, exchange->bundle), IsBefore);
  entries.insert(at, {std::move(exchange), bytes});
  while (bytes_ > bytes_max_ && from_ < step) DropBefore(from_ + 1);
}

ReplayBuffer::Entry* ReplayBuffer::Find(uint32_t shard, uint64_t step, uint32_t bundle) {
  std::deque<Entry>& entries = shards_[shard];
  const auto at = std::lower_bound(entries.begin(), entries.end(), Key(step, bundle), IsBefore);
  if (at == entries.end() || at->exchange->step != step || at->exchange->bundle != bundle) {
    return nullptr;
  }
  return &*at;
}

void ReplayBuffer::Release(uint64_t step) {
  if (step >= from_) DropBefore(step + 1);
}

void ReplayBuffer::DropBefore(uint64_t step) {
  from_ = step;
  for (std::deque<Entry>& entries : shards_) {
    while (!entries.empty() && entries.front().exchange->step < step) {
      bytes_ -= entries.front().bytes;
      entries.pop_front();
    }
  }
}

}  // namespace sluice::worker
