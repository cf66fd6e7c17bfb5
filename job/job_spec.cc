// SPDX-License-Identifier: Apache-2.0
#include "job/job_spec.h"

#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compress/codec_table.h"
#include "job/momentum.h"

namespace sluice::job {
namespace {

// With sparse codecs and a momentum above this limit, feedback delay costs accuracy. At the limit,
// runs match dense runs.
constexpr double kMomentumMax = 0.5;

// A codec of the job. `where` tells readers of a message where the job uses the codec.
struct CodecUse {
  std::string where;
  compress::CodecSpec codec;
};

std::vector<CodecUse> CodecsOf(const protocol::CompressionSpec& compression) {
  std::vector<CodecUse> uses = {{"uplink", compression.uplink}, {"downlink", compression.downlink}};
  for (const protocol::CompressionOverride& o : compression.overrides) {
    const std::string suffix = absl::StrCat(" of tensors ", o.tensors);
    if (o.uplink) uses.push_back({absl::StrCat("uplink", suffix), *o.uplink});
    if (o.downlink) uses.push_back({absl::StrCat("downlink", suffix), *o.downlink});
  }
  return uses;
}

// Returns true for feedback that takes many steps to send its residual. DIANA is excluded: its
// memory also takes many steps to settle, but the published values are always right on average.
bool DelaysGradients(const compress::CodecSpec& codec) {
  if (codec.compensator.id == compress::CompensatorId::kDiana) return false;
  return codec.error_feedback() && (compress::FindCodec(codec.codec).facts.one_bit ||
                                    compress::TraitsOf(codec.codec, codec.options).sparse);
}

// Returns true for codecs that send only a few bits per value, so that a single step is mostly
// noise.
bool IsCoarse(const compress::CodecSpec& codec) {
  return compress::FindCodec(codec.codec).facts.coarse.value()(codec) ||
         compress::TraitsOf(codec.codec, codec.options).sparse;
}

// Returns true if the codec drops much of a gradient and never compensates for it, not even on
// average. Sketches do not count, because the receiver keeps the values that it does not publish.
bool LosesForGood(const compress::CodecSpec& codec) {
  return !codec.error_feedback() && IsCoarse(codec) &&
         !compress::TraitsOf(codec.codec, codec.options).unbiased &&
         compress::FindCodec(codec.codec).aggregation != compress::Aggregation::kSketch;
}

// Returns a warning, or an empty string if the compensator suits the optimizer and the gradients of
// small batches.
std::string CompensatorWarning(const CodecUse& use, const OptimizerSpec& optimizer) {
  const std::string spec = absl::StrCat(use.where, " ", ToString(use.codec));
  const double momentum = MomentumOf(optimizer);
  if (use.codec.compensator.id == compress::CompensatorId::kDgc && momentum > 0) {
    return absl::StrCat(spec, " has a momentum of its own, which the optimizer's ", momentum,
                        " is added to: use ", MomentumKey(optimizer), " 0");
  }
  if (use.codec.compensator.id == compress::CompensatorId::kEf21 && IsCoarse(use.codec)) {
    compress::CodecSpec with_feedback = use.codec;
    with_feedback.compensator = {.id = compress::CompensatorId::kErrorFeedback};
    return absl::StrCat(spec, " treats the noise of small batches as signal and learns less: use ",
                        ToString(with_feedback), " unless batches are large");
  }
  return "";
}

bool HasOuterMomentum(const JobSpec& spec) {
  return TraitsOf(spec.exchange.mode).local_steps &&
         spec.local.outer_optimizer == OuterOptimizer::kNesterov;
}

// The outer momentum sums the changes of about this many exchanges.
long long ExchangesInMomentum(const JobSpec& spec) {
  return std::llround(1 / (1 - spec.local.outer_momentum));
}

bool HasShortRounds(const JobSpec& spec) {
  return HasOuterMomentum(spec) && spec.local.outer_momentum > kMomentumMax &&
         ExchangesInMomentum(spec) > static_cast<long long>(spec.local.steps);
}

// Returns a warning, or an empty string if the outer optimizer's momentum suits local_steps.
// bench/outer_step.py measures what is lost if the momentum sums more exchanges than there are
// steps between two of them.
std::string ShortRoundsWarning(const JobSpec& spec) {
  if (!HasShortRounds(spec)) return "";
  return absl::StrCat("outer_momentum ", spec.local.outer_momentum, " sums the changes of about ",
                      ExchangesInMomentum(spec), " exchanges, which trains badly with local_steps ",
                      spec.local.steps, ": use outer_momentum ", kMomentumMax,
                      " and outer_lr 0.6, or outer_optimizer average");
}

// Returns a warning, or an empty string if the momentum of the outer optimizer, which runs
// on the shards, suits the codecs. In other modes the momentum is lowered automatically
// (job/momentum.h).
std::string OuterMomentumWarning(const JobSpec& spec) {
  if (!HasOuterMomentum(spec) || spec.local.outer_momentum <= kMomentumMax) return "";
  std::vector<std::string> delaying;
  for (const CodecUse& use : CodecsOf(spec.exchange.compression)) {
    if (!DelaysGradients(use.codec)) continue;
    delaying.push_back(absl::StrCat(use.where, " ", ToString(use.codec)));
  }
  if (delaying.empty()) return "";
  return absl::StrCat(absl::StrJoin(delaying, " and "), delaying.size() == 1 ? " delays" : " delay",
                      " changes of weights and outer_momentum ", spec.local.outer_momentum,
                      " amplifies delay: use outer_momentum ", kMomentumMax, " and outer_lr ",
                      HasShortRounds(spec) ? "0.6" : "1", ", or outer_optimizer average");
}

}  // namespace

absl::StatusOr<uint16_t> DefaultGrpcPort(const ServerSpec& server, uint32_t shard) {
  constexpr uint64_t kLastPort = 65535;
  if (server.port == 0) return 0;
  uint64_t port = uint64_t{server.port} + shard;
  if (server.port < server.http_port && server.http_port <= port) ++port;
  if (port > kLastPort) {
    return absl::OutOfRangeError(absl::StrCat("server.port ", server.port,
                                              " leaves no port for shard ", shard,
                                              " below 65536: lower it, or pass --listen"));
  }
  return static_cast<uint16_t>(port);
}

std::optional<OptimizerSpec> ShardOptimizer(const JobSpec& spec) {
  if (TraitsOf(spec.exchange.mode).local_steps &&
      spec.local.outer_optimizer == OuterOptimizer::kNesterov) {
    return OptimizerSpec{.name = "sgd",
                         .lr = spec.local.outer_lr,
                         .momentum = spec.local.outer_momentum,
                         .nesterov = spec.local.outer_momentum > 0,
                         .location = UpdateLocation::kShards};
  }
  if (SendsWeights(spec))
    return OptimizerSpec{.name = "sgd", .lr = 1, .location = UpdateLocation::kShards};
  if (spec.optimizer.location == UpdateLocation::kShards) return spec.optimizer;
  return std::nullopt;
}

uint32_t RankLimit(const JobSpec& spec) {
  return spec.exchange.membership == Membership::kElastic ? spec.max_workers : spec.workers;
}

bool SendsWeights(const JobSpec& spec) {
  if (TraitsOf(spec.exchange.mode).local_steps) return true;
  return !TraitsOf(spec.exchange.mode).workers_update &&
         spec.optimizer.location == UpdateLocation::kWorkers;
}

double ShardRate(const JobSpec& spec, double rate) {
  if (!SendsWeights(spec)) return rate;
  return TraitsOf(spec.exchange.mode).local_steps ? spec.local.outer_lr : 1;
}

bool StreamsFragments(const JobSpec& spec) {
  return TraitsOf(spec.exchange.mode).local_steps &&
         (spec.exchange.compression.layout.fragments > 1 || spec.local.fragment_delay > 0 ||
          spec.local.merge_alpha > 0);
}

uint64_t StepsPerExchange(const JobSpec& spec) {
  return TraitsOf(spec.exchange.mode).local_steps ? spec.local.steps : 1;
}

std::string WhyNoReplay(const JobSpec& spec) {
  if (spec.exchange.quorum > 0 && !spec.exchange.elastic()) {
    return "with a quorum, the data that workers and shards keep does not determine which workers "
           "were in a step";
  }
  if (spec.exchange.guard.changes_results() && !spec.exchange.elastic()) {
    return "with a guard that clips or skips, results also depend on what the shards saw in "
           "earlier steps";
  }
  // An elastic job continues without the lost worker, and needs no replay for a newcomer.
  if (InLockstep(spec.exchange.mode) || spec.exchange.elastic()) return "";
  return absl::StrCat(
      "in mode ", NameOf(spec.exchange.mode),
      " the data that workers and shards keep does not determine the order of updates");
}

std::vector<std::string> JobWarnings(const JobSpec& spec) {
  std::vector<std::string> warnings = spec.file_warnings;
  std::string momentum = OuterMomentumWarning(spec);
  if (!momentum.empty()) warnings.push_back(std::move(momentum));
  std::string rounds = ShortRoundsWarning(spec);
  if (!rounds.empty()) warnings.push_back(std::move(rounds));
  for (const CodecUse& use : CodecsOf(spec.exchange.compression)) {
    std::string compensator = CompensatorWarning(use, spec.optimizer);
    if (!compensator.empty()) warnings.push_back(std::move(compensator));
    if (!LosesForGood(use.codec)) continue;
    compress::CodecSpec with_feedback = use.codec;
    with_feedback.compensator = {.id = compress::CompensatorId::kErrorFeedback};
    warnings.push_back(absl::StrCat(use.where, " ", ToString(use.codec),
                                    " permanently loses the values that it does not send; use ",
                                    ToString(with_feedback), ", which sends them later"));
  }
  if (spec.checkpoint.enabled() && spec.checkpoint.keep == 1) {
    warnings.emplace_back(
        "checkpoint.keep 1 leaves no other checkpoint to restore if the only one is damaged; use "
        "2");
  }
  return warnings;
}

}  // namespace sluice::job
