// SPDX-License-Identifier: Apache-2.0
#include "server/shard/shard.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "job/support.h"
#include "server/shard/async_shard.h"
#include "server/shard/sync_shard.h"

namespace sluice::server {
namespace {

absl::Status CheckOptions(const ShardOptions& options) {
  if (options.incarnations.empty()) {
    return absl::InvalidArgumentError("a shard needs at least one rank");
  }
  if (options.shard >= options.layout.bundles.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "shard ", options.shard, " of ", options.layout.bundles.size(), " does not exist"));
  }
  if (options.first_step == 0) return absl::InvalidArgumentError("the first step is 1 or later");
  if (options.restore != nullptr && !options.parameters_agree) {
    return absl::InvalidArgumentError(
        "a shard that continues from a checkpoint has no step 0: the checkpoint also has the "
        "parameters");
  }
  if (options.rule.has_value() && options.parameters_agree && options.restore == nullptr) {
    return absl::InvalidArgumentError(
        "a shard with an update rule needs step 0, which sends it the parameters");
  }
  if (options.exchange.quorum > options.incarnations.size()) {
    return absl::InvalidArgumentError(absl::StrCat("a quorum of ", options.exchange.quorum, " of ",
                                                   options.incarnations.size(), " ranks"));
  }
  const bool repairs = options.replay || (options.replay_bytes > 0 && !options.exchange.elastic());
  if (options.exchange.quorum > 0 && repairs) {
    return absl::InvalidArgumentError(
        "a shard with a quorum cannot replay steps: the state that workers keep does not say which "
        "ranks were included");
  }
  if (options.exchange.guard.changes_results() && repairs) {
    return absl::InvalidArgumentError(
        "a shard with a guard that clips or skips cannot replay steps: what the guard saw in "
        "earlier steps is not kept");
  }
  if (options.exchange.elastic() && options.replay) {
    return absl::InvalidArgumentError(
        "an elastic shard does not replay, because only the lost shard knew the participants of a "
        "step");
  }
  const bool has_holder = std::any_of(options.incarnations.begin(), options.incarnations.end(),
                                      [](uint64_t incarnation) { return incarnation != 0; });
  if (options.exchange.elastic() && !has_holder) {
    return absl::InvalidArgumentError("a shard needs at least one worker at the start");
  }
  if (options.replay && !options.parameters_agree) {
    return absl::InvalidArgumentError(
        "a shard cannot replay the parameter agreement: start the job again");
  }
  return absl::OkStatus();
}

}  // namespace

double ShareOfElements(const ShardOptions& options) {
  uint64_t own = 0;
  uint64_t all = 0;
  for (const protocol::Chunk& chunk : options.layout.chunks) {
    all += chunk.count;
    if (chunk.shard == options.shard) own += chunk.count;
  }
  return own == 0 ? 1 : static_cast<double>(own) / static_cast<double>(all);
}

absl::StatusOr<std::unique_ptr<Shard>> Shard::Create(ShardOptions options) {
  if (absl::Status checked = CheckOptions(options); !checked.ok()) return checked;
  if (options.exchange.in_lockstep()) {
    return SyncShard::Create(std::move(options));
  }
  return AsyncShard::Create(std::move(options));
}

}  // namespace sluice::server
