// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/shard_start.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/control/plan_maker.h"
#include "server/rpc/answer_streams.h"

namespace sluice::server {
namespace {

// True if the shard keeps results for restarted workers and newcomers.
bool KeepsResults(const job::JobSpec& job) {
  return job.checkpoint.enabled() && job.exchange.in_lockstep() && job::WhyNoReplay(job).empty();
}

}  // namespace

absl::StatusOr<protocol::Layout> LayoutFor(const job::JobSpec& job,
                                           const protocol::StartShard& start) {
  if (start.incarnations.size() != job::RankLimit(job)) {
    return absl::InvalidArgumentError(absl::StrCat("the coordinator names ",
                                                   start.incarnations.size(),
                                                   " ranks, the job file ", job::RankLimit(job)));
  }
  return protocol::BuildLayout(start.table, job.shards, start.layout,
                               protocol::WholeRows(job.exchange.compression, start.table));
}

ShardOptions ShardOptionsFor(const job::JobSpec& job, uint32_t shard,
                             const protocol::StartShard& start, protocol::Layout layout,
                             std::shared_ptr<const protocol::ShardSnapshot> snapshot) {
  ShardOptions options;
  options.shard = shard;
  options.table = start.table;
  options.layout = std::move(layout);
  options.exchange = job.exchange;
  options.forwards_sums = job.part.rack_of > 0;
  // In a job with relays, the shards of the parent job have the optimizer.
  if (!options.forwards_sums) {
    options.rule = job::ShardOptimizer(job);
    options.rule_momentum = job::ShardMomentum(job, start.table);
  }
  options.momentum = job::MomentumRangeOf(job);
  if (job.part.parent_plans.has_value()) {
    const job::ParentPlans& parent = *job.part.parent_plans;
    const absl::StatusOr<PlanMaker::Plan> first = FirstPlan(
        job.exchange.control, parent.compression, start.table, parent.relays, options.momentum);
    if (first.ok()) options.parent_plan = *first;
  }
  options.job_uid = start.job_uid;
  options.term = start.term;
  options.generation = start.generation;
  options.incarnations = start.incarnations;
  options.first_step = start.first_step;
  options.parameters_agree = start.parameters_agree;
  options.weights = job.part.weights;
  options.window_bytes = start.window_bytes;
  options.max_memory = job.server.max_memory;
  options.replay_bytes = KeepsResults(job) ? job.checkpoint.replay_limit : 0;
  options.replay = start.replay;
  options.unanswered_bytes = start.window_bytes / 4;
  options.restore = std::move(snapshot);
  options.restored_ranks = start.restore_world_size;
  return options;
}

// A rank that reads slowly may have asked for the results of two steps (the open one and a replayed
// one) and for one window's worth of other answers. An element's result takes at most 8 bytes,
// including its position.
uint64_t AnswerBytesMax(const ShardOptions& options) {
  constexpr uint64_t kOfElement = 8;
  constexpr uint64_t kOfChunk = 64;
  constexpr uint64_t kOfBundle = 512;
  constexpr uint64_t kOfRank = 32;  // For the record of each bundle.
  uint64_t results = 0;
  for (const protocol::Bundle& bundle : options.layout.bundles[options.shard]) {
    results += kOfBundle + kOfRank * options.incarnations.size() + kOfChunk * bundle.chunks.size() +
               kOfElement * bundle.elements;
  }
  return std::max(options.window_bytes, AnswerStreams::kBytesMin) + 2 * results;
}

std::string DescribeStart(const job::JobSpec& job, const protocol::StartShard& start,
                          const ShardStats& stats, size_t bundles, absl::Duration took) {
  return absl::StrCat(
      "job ", job.name, ": ", stats.elements, " elements in ", bundles, " bundles, ", job.workers,
      " workers",
      start.restore_step == 0
          ? ""
          : absl::StrCat(", from the checkpoint after step ", start.restore_step, ", term ",
                         start.term, ", read in ",
                         absl::FormatDuration(absl::Trunc(took, absl::Milliseconds(1)))),
      start.replay ? absl::StrCat("; replays from step ", start.first_step,
                                  " with the state that the workers kept")
                   : "");
}

std::string ReplayWarning(const job::JobSpec& job, const ShardStats& stats) {
  if (!KeepsResults(job) || stats.log_limit >= job.checkpoint.replay_limit) return "";
  return absl::StrCat("keeps ", stats.log_limit, " bytes of results for restarted ",
                      "workers, not checkpoint.replay_limit (", job.checkpoint.replay_limit,
                      "): server.max_memory leaves no more; raise it, or lower replay_limit");
}

}  // namespace sluice::server
