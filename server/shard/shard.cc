#include "server/shard/shard.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
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
        "a shard that goes on from a checkpoint has no step 0: parameters come from it too");
  }
  if (options.rule.has_value() && options.parameters_agree && options.restore == nullptr) {
    return absl::InvalidArgumentError(
        "a shard that does the updates needs step 0, which brings it the parameters");
  }
  if (options.quorum > options.incarnations.size()) {
    return absl::InvalidArgumentError(absl::StrCat("a quorum of ", options.quorum, " of ",
                                                   options.incarnations.size(), " ranks"));
  }
  if (options.quorum > 0 && (options.replay || options.replay_bytes > 0)) {
    return absl::InvalidArgumentError(
        "a shard that closes steps without some ranks cannot go through them again: who was "
        "included does not follow from what the workers kept");
  }
  if (options.elastic && (options.quorum > 0 || options.replay || !job::InLockstep(options.mode))) {
    return absl::InvalidArgumentError(
        "a shard whose workers come and go closes every step with all who are there: it has no "
        "quorum, mode sync or local_sgd, and goes through no steps again");
  }
  const bool somebody = std::any_of(options.incarnations.begin(), options.incarnations.end(),
                                    [](uint64_t incarnation) { return incarnation != 0; });
  if (options.elastic && !somebody) {
    return absl::InvalidArgumentError("a shard needs somebody to begin with");
  }
  if (options.replay && !options.parameters_agree) {
    return absl::InvalidArgumentError(
        "a shard cannot go through the parameter agreement again: the job has to begin anew");
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
  if (job::InLockstep(options.mode)) {
    return SyncShard::Create(std::move(options));
  }
  if (options.mode == "async" || options.mode == "ssp") {
    return AsyncShard::Create(std::move(options));
  }
  return absl::UnimplementedError(absl::StrCat("no shard runs mode ", options.mode));
}

}  // namespace sluice::server
