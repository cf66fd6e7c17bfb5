#include "job/job_spec.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compress/codec_table.h"

namespace sluice::job {
namespace {

// Above it, feedback's delay costs accuracy with sparse codecs; at it, runs match dense ones.
constexpr double kMomentumMax = 0.5;

// A codec of the job and where it is used, for messages.
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

// Feedback that takes many steps to send what it holds. DIANA's memory takes as many to settle, but
// what it publishes is right on average all the while.
bool DelaysGradients(const compress::CodecSpec& codec) {
  if (codec.compensator.id == compress::CompensatorId::kDiana) return false;
  const bool one_bit =
      codec.codec == compress::CodecId::kSign || codec.codec == compress::CodecId::kOneBit;
  return codec.error_feedback() &&
         (one_bit || compress::TraitsOf(codec.codec, codec.options).sparse);
}

// So few bits that what one step says is mostly wrong.
bool IsCoarse(const compress::CodecSpec& codec) {
  switch (codec.codec) {
    case compress::CodecId::kSign:
    case compress::CodecId::kOneBit:
    case compress::CodecId::kInt2:
    case compress::CodecId::kPowerSgd:
      return true;
    case compress::CodecId::kIntSum:
      return codec.level <= 2;
    default:
      return compress::TraitsOf(codec.codec, codec.options).sparse;
  }
}

// Drops much and does not make up for it, not even on average. What a sketch's receiver does not
// publish it keeps.
bool LosesForGood(const compress::CodecSpec& codec) {
  return !codec.error_feedback() && IsCoarse(codec) &&
         !compress::TraitsOf(codec.codec, codec.options).unbiased &&
         compress::FindCodec(codec.codec).aggregation != compress::Aggregation::kSketch;
}

// Empty if the compensator goes with the optimizer and with gradients of small batches.
std::string CompensatorWarning(const CodecUse& use, const OptimizerSpec& optimizer) {
  const std::string spec = absl::StrCat(use.where, " ", ToString(use.codec));
  const bool adam = optimizer.name == "adam" || optimizer.name == "adamw";
  const double momentum = adam ? optimizer.beta1 : optimizer.momentum;
  if (use.codec.compensator.id == compress::CompensatorId::kDgc && momentum > 0) {
    return absl::StrCat(spec, " has a momentum of its own, which the optimizer's ", momentum,
                        " is added to: use ", adam ? "beta1 0" : "momentum 0");
  }
  if (use.codec.compensator.id == compress::CompensatorId::kEf21 && IsCoarse(use.codec)) {
    compress::CodecSpec with_feedback = use.codec;
    with_feedback.compensator = {.id = compress::CompensatorId::kErrorFeedback};
    return absl::StrCat(spec, " takes the noise of small batches for news, and learns less: use ",
                        ToString(with_feedback), " unless batches are large");
  }
  return "";
}

// Empty if the momentum of the shards' rule in local_sgd goes together with codecs. That of other
// modes is lowered where need be (job/momentum.h).
std::string OuterMomentumWarning(const JobSpec& spec) {
  if (spec.mode != "local_sgd" || spec.outer_optimizer != "nesterov") return "";
  if (spec.outer_momentum <= kMomentumMax) return "";
  std::vector<std::string> delaying;
  for (const CodecUse& use : CodecsOf(spec.compression)) {
    if (!DelaysGradients(use.codec)) continue;
    delaying.push_back(absl::StrCat(use.where, " ", ToString(use.codec)));
  }
  if (delaying.empty()) return "";
  return absl::StrCat(absl::StrJoin(delaying, " and "), delaying.size() == 1 ? " delays" : " delay",
                      " changes of weights and outer_momentum ", spec.outer_momentum,
                      " amplifies delay: use outer_momentum ", kMomentumMax,
                      " and outer_lr 1, or outer_optimizer average");
}

}  // namespace

std::optional<OptimizerSpec> ShardOptimizer(const JobSpec& spec) {
  if (spec.mode == "local_sgd" && spec.outer_optimizer == "nesterov") {
    return OptimizerSpec{.name = "sgd",
                         .lr = spec.outer_lr,
                         .momentum = spec.outer_momentum,
                         .nesterov = spec.outer_momentum > 0,
                         .on = "shards"};
  }
  if (SendsWeights(spec)) return OptimizerSpec{.name = "sgd", .lr = 1, .on = "shards"};
  if (spec.optimizer.on == "shards") return spec.optimizer;
  return std::nullopt;
}

uint32_t RankLimit(const JobSpec& spec) {
  return spec.membership == "elastic" ? spec.max_workers : spec.workers;
}

bool SendsWeights(const JobSpec& spec) {
  if (spec.mode == "local_sgd") return true;
  return (spec.mode == "async" || spec.mode == "ssp") && spec.optimizer.on == "workers";
}

uint64_t StepsPerExchange(const JobSpec& spec) {
  return spec.mode == "local_sgd" ? spec.sync_every : 1;
}

std::string WhyNoReplay(const JobSpec& spec) {
  if (spec.quorum > 0) {
    return "with a quorum, who was in a step does not follow from what workers and shards keep";
  }
  if (InLockstep(spec.mode)) return "";
  return absl::StrCat("in mode ", spec.mode,
                      " the order of updates does not follow from what workers and shards keep");
}

std::vector<std::string> JobWarnings(const JobSpec& spec) {
  std::vector<std::string> warnings;
  std::string momentum = OuterMomentumWarning(spec);
  if (!momentum.empty()) warnings.push_back(std::move(momentum));
  for (const CodecUse& use : CodecsOf(spec.compression)) {
    std::string compensator = CompensatorWarning(use, spec.optimizer);
    if (!compensator.empty()) warnings.push_back(std::move(compensator));
    if (!LosesForGood(use.codec)) continue;
    compress::CodecSpec with_feedback = use.codec;
    with_feedback.compensator = {.id = compress::CompensatorId::kErrorFeedback};
    warnings.push_back(absl::StrCat(use.where, " ", ToString(use.codec),
                                    " loses for good what it does not send; use ",
                                    ToString(with_feedback), ", which sends it later"));
  }
  if (spec.checkpoint.enabled() && spec.checkpoint.keep == 1) {
    warnings.emplace_back(
        "checkpoint.keep 1 leaves none to go back to when the only one turns out damaged; use 2");
  }
  return warnings;
}

}  // namespace sluice::job
