// SPDX-License-Identifier: Apache-2.0
#include "server/control/slowest_stream.h"

#include <algorithm>

namespace sluice::server {
namespace {

constexpr double kEqualUpTo = 1.5;

// One direction of a stream.
struct Way {
  double seconds = 0;  // Time of a step's bytes, without the latency. 0 if it is not known.
  double latency_s = 0;
};

Way UpOf(const ShardStreams& shard, size_t rank) {
  if (rank >= shard.ranks.size() || shard.ranks[rank].up_rate <= 0) return {};
  return {.seconds = static_cast<double>(shard.elements) / shard.ranks[rank].up_rate,
          .latency_s = shard.ranks[rank].up_latency_s};
}

Way DownOf(const ShardStreams& shard, size_t rank) {
  if (rank >= shard.ranks.size() || shard.ranks[rank].down_rate <= 0) return {};
  return {.seconds = static_cast<double>(shard.elements) / shard.ranks[rank].down_rate,
          .latency_s = shard.ranks[rank].down_latency_s};
}

void Compare(const Way& way, const Way& at_shard_0, double* times, double* later_s) {
  if (way.seconds <= 0 || at_shard_0.seconds <= 0) return;
  const double longer = way.seconds / at_shard_0.seconds;
  if (longer > kEqualUpTo) *times = std::max(*times, longer);
  *later_s = std::max(*later_s, way.latency_s - at_shard_0.latency_s);
}

void SlowDown(double times, double later_s, std::vector<Transfer>* transfers) {
  for (Transfer& transfer : *transfers) {
    transfer.bytes = static_cast<uint64_t>(static_cast<double>(transfer.bytes) / times);
    transfer.seconds += later_s;
  }
}

}  // namespace

std::vector<SlowestStream> SlowestStreams(absl::Span<const ShardStreams> shards) {
  if (shards.empty()) return {};
  std::vector<SlowestStream> slowest(shards[0].ranks.size());
  for (size_t rank = 0; rank < slowest.size(); ++rank) {
    SlowestStream& of = slowest[rank];
    for (const ShardStreams& shard : shards.subspan(1)) {
      Compare(UpOf(shard, rank), UpOf(shards[0], rank), &of.up_times, &of.up_later_s);
      Compare(DownOf(shard, rank), DownOf(shards[0], rank), &of.down_times, &of.down_later_s);
    }
  }
  return slowest;
}

void ApplySlowestStreams(absl::Span<const SlowestStream> slowest, StepMeasurements* measured) {
  for (size_t rank = 0; rank < std::min(slowest.size(), measured->ranks.size()); ++rank) {
    const SlowestStream& of = slowest[rank];
    SlowDown(of.up_times, of.up_later_s, &measured->ranks[rank].up);
    SlowDown(of.down_times, of.down_later_s, &measured->ranks[rank].down);
  }
}

}  // namespace sluice::server
