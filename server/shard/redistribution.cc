// SPDX-License-Identifier: Apache-2.0
#include "server/shard/redistribution.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "protocol/compression_plan.h"

namespace sluice::server {
namespace {

size_t ChunksOf(const std::vector<protocol::Bundle>& bundles) {
  size_t chunks = 0;
  for (const protocol::Bundle& bundle : bundles) chunks += bundle.chunks.size();
  return chunks;
}

absl::Status CheckCount(uint32_t shard, absl::string_view what, size_t found, size_t expected) {
  if (found == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the state of former shard ", shard, " has ",
                                                 found, " ", what, ", expected ", expected));
}

uint64_t NewestId(const std::vector<protocol::CompressionPlan>& plans) {
  return plans.empty() ? 0 : plans.back().id;
}

}  // namespace

absl::StatusOr<Redistribution> Redistribution::Create(Options options) {
  const std::vector<bool> whole_rows = protocol::WholeRows(options.compression, options.table);
  absl::StatusOr<protocol::Layout> before = protocol::BuildLayout(
      options.table, options.former_shards, options.compression.layout, whole_rows);
  if (!before.ok()) return before.status();
  absl::StatusOr<protocol::Layout> after =
      protocol::BuildLayout(options.table, options.shards, options.compression.layout, whole_rows);
  if (!after.ok()) return after.status();
  if (options.shard >= options.shards) {
    return absl::InvalidArgumentError(
        absl::StrCat("shard ", options.shard, " of ", options.shards, " does not exist"));
  }
  return Redistribution(std::move(options), *std::move(before), *std::move(after));
}

Redistribution::Redistribution(Options options, protocol::Layout before, protocol::Layout after)
    : options_(std::move(options)),
      before_(std::move(before)),
      after_(std::move(after)),
      added_(options_.former_shards),
      chunks_(after_.chunks.size()) {
  std::set<uint32_t> sources = {0};
  for (size_t id = 0; id < after_.chunks.size(); ++id) {
    if (after_.chunks[id].shard == options_.shard) sources.insert(before_.chunks[id].shard);
  }
  sources_.assign(sources.begin(), sources.end());
}

absl::Status Redistribution::CheckFits(const protocol::ShardSnapshot& former) const {
  if (former.shard >= added_.size() || added_[former.shard]) {
    return absl::InvalidArgumentError(absl::StrCat("a state of former shard ", former.shard,
                                                   " was not expected: there were ", added_.size(),
                                                   " shards, and each has one state"));
  }
  const std::vector<protocol::Bundle>& bundles = before_.bundles[former.shard];
  const size_t chunks = ChunksOf(bundles);
  for (const absl::Status& fits :
       {CheckCount(former.shard, "bundles", former.versions.size(), bundles.size()),
        CheckCount(former.shard, "chunks", former.aggregators.size(), chunks),
        CheckCount(former.shard, "chunks on the downlink", former.downlink.chunks.size(), chunks),
        CheckCount(former.shard, "chunks with parameters", former.replica.size(),
                   former.replica.empty() ? 0 : chunks),
        CheckCount(former.shard, "clocks of ranks", former.clocks.size(),
                   former.clocks.size() / bundles.size() * bundles.size())}) {
    if (!fits.ok()) return fits;
  }
  if (!has_head_) return absl::OkStatus();
  const bool same = former.job_uid == head_.job_uid && former.term == head_.term &&
                    former.step == head_.step && former.replica.empty() != has_replica_ &&
                    former.clocks.size() == ranks_ * bundles.size();
  if (same) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the state of former shard ", former.shard, " is after step ", former.step,
                   " of term ", former.term, " and does not belong to the others, after step ",
                   head_.step, " of term ", head_.term));
}

absl::Status Redistribution::Add(protocol::ShardSnapshot former) {
  if (absl::Status fits = CheckFits(former); !fits.ok()) return fits;
  const std::vector<protocol::Bundle>& bundles = before_.bundles[former.shard];
  added_[former.shard] = true;
  if (!has_head_) {
    head_.job_uid = former.job_uid;
    head_.term = former.term;
    head_.step = former.step;
    has_replica_ = !former.replica.empty();
    ranks_ = former.clocks.size() / bundles.size();
    has_head_ = true;
  }
  size_t local = 0;
  for (size_t b = 0; b < bundles.size(); ++b) {
    for (const uint32_t id : bundles[b].chunks) {
      const size_t i = local++;
      if (after_.chunks[id].shard != options_.shard) continue;
      ChunkState& state = chunks_[id].emplace();
      state.downlink = std::move(former.downlink.chunks[i]);
      state.aggregator = std::move(former.aggregators[i]);
      if (has_replica_) state.replica = std::move(former.replica[i]);
      state.version = former.versions[b];
      const auto clocks = former.clocks.begin() + static_cast<ptrdiff_t>(b * ranks_);
      state.clocks.assign(clocks, clocks + static_cast<ptrdiff_t>(ranks_));
    }
  }
  AdoptPlans(std::move(former.plans));
  return absl::OkStatus();
}

// Shard 0 makes the plans, so its list is at least as new as any other. In modes whose ranks do not
// wait for each other, shards may use different ones.
void Redistribution::AdoptPlans(std::vector<protocol::CompressionPlan> plans) {
  const bool newer =
      NewestId(plans) > NewestId(head_.plans) ||
      (NewestId(plans) == NewestId(head_.plans) && plans.size() > head_.plans.size());
  if (newer) head_.plans = std::move(plans);
}

// In lockstep modes, all shards use the same plan in a step. In other modes (with clocks), a former
// shard may not have known the newest plan yet. The codecs of plans keep no state except a
// residual, so a saved chunk may take another codec. Returns an empty list if no chunk needs that.
std::vector<compress::CodecSpec> Redistribution::NewestCodecs() const {
  if (head_.plans.empty() || ranks_ == 0) return {};
  return protocol::SpecsUnder(&head_.plans.back(), protocol::Direction::kDownlink,
                              compress::Compressor::kShardSender,
                              protocol::ChunkConfigs(options_.compression, options_.table, after_,
                                                     protocol::Direction::kDownlink));
}

absl::StatusOr<protocol::ShardSnapshot> Redistribution::Take() {
  for (const uint32_t source : sources_) {
    if (added_[source]) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("the state of former shard ", source, " is missing"));
  }
  const std::vector<compress::CodecSpec> codecs = NewestCodecs();
  protocol::ShardSnapshot result = std::move(head_);
  result.shard = options_.shard;
  for (const protocol::Bundle& bundle : after_.bundles[options_.shard]) {
    // The first chunk stands for the bundle, as it does for the number of its updates.
    const bool is_empty = bundle.chunks.empty();
    result.versions.push_back(is_empty ? 1 : chunks_[bundle.chunks.front()]->version);
    std::vector<uint64_t> clocks(ranks_, is_empty ? result.step : 0);
    for (const uint32_t id : bundle.chunks) {
      ChunkState& state = *chunks_[id];
      for (size_t rank = 0; rank < ranks_; ++rank) {
        clocks[rank] = std::max(clocks[rank], state.clocks[rank]);
      }
      if (!codecs.empty()) {
        const compress::CompensatorSpec compensator = state.downlink.config.spec.compensator;
        state.downlink.config.spec = codecs[id];
        state.downlink.config.spec.compensator = compensator;
      }
      result.downlink.chunks.push_back(std::move(state.downlink));
      result.aggregators.push_back(std::move(state.aggregator));
      if (has_replica_) result.replica.push_back(std::move(state.replica));
    }
    result.clocks.insert(result.clocks.end(), clocks.begin(), clocks.end());
  }
  return result;
}

}  // namespace sluice::server
