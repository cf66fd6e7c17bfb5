// SPDX-License-Identifier: Apache-2.0
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/random.h"
#include "protocol/compression_plan.h"
#include "tests/sim/survival.h"

namespace sluice {

std::string ToString(Fault fault) {
  static constexpr absl::string_view kNames[] = {"lost request",
                                                 "lost reply",
                                                 "repeated",
                                                 "delayed",
                                                 "reordered",
                                                 "lost heartbeat",
                                                 "break",
                                                 "break control",
                                                 "mute",
                                                 "partition",
                                                 "pause",
                                                 "clock gap",
                                                 "kill worker",
                                                 "kill shard",
                                                 "kill coordinator",
                                                 "kill two",
                                                 "kill worker and shard",
                                                 "power cut",
                                                 "two instances",
                                                 "other bytes",
                                                 "damage",
                                                 "lose disk",
                                                 "disk full",
                                                 "disk slow",
                                                 "checkpoint requests",
                                                 "one-way cut",
                                                 "unreadable",
                                                 "no descriptors",
                                                 "refused",
                                                 "fails after write",
                                                 "write outlives",
                                                 "keeps sending",
                                                 "hangs",
                                                 "two workers",
                                                 "new version",
                                                 "other workers",
                                                 "evicted",
                                                 "away",
                                                 "gives up"};
  return std::string(kNames[static_cast<size_t>(fault)]);
}

namespace {

// One job in three has updates on the shards.
std::optional<job::OptimizerSpec> RandomRule(uint64_t seed, const compress::CodecSpec& uplink) {
  static constexpr absl::string_view kRules[] = {"sgd", "adam", "adamw", "rmsprop"};
  CounterRandom random(seed, 23);
  if (random.Below(3) != 0) return std::nullopt;
  job::OptimizerSpec rule;
  rule.location = job::UpdateLocation::kShards;
  rule.momentum = random.Below(2) == 0 ? 0.0 : 0.5;
  rule.nesterov = rule.momentum > 0 && random.Below(2) == 0;
  rule.weight_decay = random.Below(2) == 0 ? 0.0 : 0.01;
  // /dgc supports no other rule.
  if (uplink.compensator.id != compress::CompensatorId::kDgc) {
    rule.name = std::string(kRules[random.Below(std::size(kRules))]);
  }
  return rule;
}

}  // namespace

SurvivalOptions RandomSurvivalOptions(uint64_t seed) {
  static constexpr absl::string_view kSpecs[] = {"none",
                                                 "fp16",
                                                 "int8",
                                                 "topk:5%",
                                                 "topk:10%+int4",
                                                 "ternary:0.5",
                                                 "topk:5%/dgc:0.9",
                                                 "int4/ef21",
                                                 "intsum:4",
                                                 "qsgd:4",
                                                 "sign",
                                                 "lsh",
                                                 "countsketch:4x"};
  static constexpr absl::string_view kDownlinks[] = {"none", "fp16", "int8", "topk:10%+int4",
                                                     "ternary:0.5"};
  CounterRandom random(seed, 22);
  SurvivalOptions options;
  options.data_seed = seed;
  options.fault_seed = seed;
  options.ranks = 1 + static_cast<uint32_t>(random.Below(4));
  options.shards = 1 + static_cast<uint32_t>(random.Below(3));
  // In some of these jobs there are fewer chunks than shards.
  if (CounterRandom(seed, 32).Below(24) == 0) options.shards = 8;
  options.steps = 8 + random.Below(20);
  options.checkpoint_interval = 1 + random.Below(5);
  options.compression.uplink = *compress::ParseCodecSpec(kSpecs[random.Below(std::size(kSpecs))]);
  options.compression.downlink =
      *compress::ParseCodecSpec(kDownlinks[random.Below(std::size(kDownlinks))]);
  options.compression.min_elements = random.Below(2) == 0 ? 0 : 100;
  options.compression.layout = {.chunk_elements = 128u << random.Below(3),
                                .bundle_elements = 128u << random.Below(3)};
  CounterRandom fragments(seed, 36);
  if (fragments.Below(3) == 0) {
    options.compression.layout.fragments = 2 + static_cast<uint32_t>(fragments.Below(3));
  }
  options.parameters_agree = random.Below(4) != 0;
  options.rule = RandomRule(seed, options.compression.uplink);
  options.skip_share = random.Below(2) == 0 ? 0.0 : 0.2;
  options.nan_share = random.Below(2) == 0 ? 0.0 : 0.1;
  options.window_bytes =
      random.Below(2) == 0 ? uint64_t{16} << 20 : uint64_t{64} << random.Below(8);
  static constexpr double kShares[] = {0, 0.005, 0.02};
  options.lost_share = kShares[random.Below(std::size(kShares))];
  options.repeat_share = kShares[random.Below(std::size(kShares))];
  options.lost_heartbeat_share = random.Below(2) == 0 ? 0.0 : 0.05;
  // Some jobs have no checkpoints. Their processes must survive, but messages may be lost.
  if (random.Below(8) == 0) {
    options.checkpoint_interval = 0;
    options.lost_share = 0.03;
    options.repeat_share = 0.05;
    options.tight_memory = random.Below(2) == 0;
    return options;
  }
  // Some jobs keep nothing for replay, or less than they need.
  const uint64_t keeps = random.Below(8);
  if (keeps == 0) options.replay_limit = 0;
  if (keeps == 1) options.replay_limit = uint64_t{1} << (8 + random.Below(8));
  options.parts_at_shards = random.Below(4) == 0;
  const uint64_t faults = 3 + random.Below(6);
  // A restart takes up to 42 ms, so that some of these jobs end and some go on.
  if (random.Below(16) == 0)
    options.rejoin_us = 30'000 + static_cast<int64_t>(random.Below(100'000));
  if (random.Below(4) == 0) options.stall_us = 50'000 + static_cast<int64_t>(random.Below(100'000));
  for (uint64_t i = 0; i < faults; ++i) {
    options.faults.push_back(kScheduledFaults[random.Below(std::size(kScheduledFaults))]);
  }
  return options;
}

namespace {

// In a third of the jobs whose codecs allow it, results are not plain means.
job::MergeSpec RandomMerge(uint64_t seed, const SurvivalOptions& options) {
  CounterRandom random(seed, 40);
  if (random.Below(3) > 0 || !protocol::MayChange(options.compression.uplink)) return {};
  const bool radial = random.Below(3) == 0;
  const double decay = CounterRandom(seed, 42).Uniform();
  return {.weights = random.Below(3) > 0 ? job::MergeWeights::kTokens : job::MergeWeights::kEqual,
          .over = !radial && random.Below(2) == 0 ? job::MergeOver::kSenders : job::MergeOver::kAll,
          .method = radial ? job::MergeMethod::kRda : job::MergeMethod::kMean,
          .late_decay = options.quorum > 0 && decay < 0.5 ? 2 * decay : 0};
}

}  // namespace

SurvivalOptions RandomQuorumOptions(uint64_t seed) {
  static constexpr absl::string_view kSpecs[] = {
      "none",     "fp16",   "int8", "topk:10%+int4", "ternary:0.5", "topk:5%/dgc:0.9",
      "intsum:4", "qsgd:4", "sign", "countsketch:4x"};
  SurvivalOptions options = RandomSurvivalOptions(seed);
  CounterRandom random(seed, 24);
  options.ranks = 2 + static_cast<uint32_t>(random.Below(4));
  options.quorum = 1 + static_cast<uint32_t>(random.Below(options.ranks));
  options.grace_us = random.Below(2) == 0 ? 0 : static_cast<int64_t>(random.Below(3000));
  if (random.Below(2) == 0) options.late_rank = static_cast<uint32_t>(random.Below(options.ranks));
  options.replay_limit = 0;
  options.tight_memory = false;
  options.compression.uplink = *compress::ParseCodecSpec(kSpecs[random.Below(std::size(kSpecs))]);
  if (options.compression.uplink.compensator.id == compress::CompensatorId::kDgc &&
      options.rule.has_value()) {
    options.rule->name = "sgd";
  }
  options.merge = RandomMerge(seed, options);
  return options;
}

SurvivalOptions RandomPlanOptions(uint64_t seed) {
  static constexpr absl::string_view kUp[] = {"topk:10%+int4", "topk:5%", "topk:20%/noef",
                                              "topk_exact:10%"};
  static constexpr absl::string_view kDown[] = {"topk:10%+int4", "none", "int8", "topk:5%",
                                                "topk_exact:30%"};
  SurvivalOptions options = RandomSurvivalOptions(seed);
  CounterRandom random(seed, 26);
  options.compression.uplink = *compress::ParseCodecSpec(kUp[random.Below(std::size(kUp))]);
  options.compression.downlink = *compress::ParseCodecSpec(kDown[random.Below(std::size(kDown))]);
  options.steps += random.Below(20);
  job::ScheduleSpec& schedule = options.control.schedule;
  options.control.policy = job::PolicyKind::kSchedule;
  schedule.kind = static_cast<job::ScheduleKind>(random.Below(4));
  schedule.dense_steps = random.Below(2) == 0 ? 0 : 2 + random.Below(6);
  schedule.start = 0.5;
  schedule.end = random.Below(2) == 0 ? 0.03 : 0.07;
  schedule.stages = 1 + static_cast<uint32_t>(random.Below(3));
  schedule.steps = 4 * schedule.stages + random.Below(9);
  for (uint64_t from = 0; from < options.steps; from += 2 + random.Below(6)) {
    schedule.pieces.push_back({.from = from, .density = 0.02 + 0.5 * random.Uniform()});
  }
  return options;
}

SurvivalOptions WithScheduleOf(uint64_t seed, SurvivalOptions options) {
  SurvivalOptions planned = RandomPlanOptions(seed);
  options.compression.uplink = planned.compression.uplink;
  options.compression.downlink = planned.compression.downlink;
  options.control = std::move(planned.control);
  return options;
}

SurvivalOptions RandomMeasuredOptions(uint64_t seed) {
  static constexpr const char* kUp[] = {"none", "topk:10%+int4", "ternary:0.5", "int8"};
  static constexpr const char* kDown[] = {"none", "topk:30%+int4", "int4"};
  SurvivalOptions options = RandomPlanOptions(seed);
  CounterRandom random(seed, 27);
  options.compression.uplink = *compress::ParseCodecSpec(kUp[random.Below(std::size(kUp))]);
  options.compression.downlink = *compress::ParseCodecSpec(kDown[random.Below(std::size(kDown))]);
  options.compression.min_elements = random.Below(2) == 0 ? 0 : 20;
  options.steps += 10;
  options.control = {.policy = job::PolicyKind::kBandwidth};
  if (random.Below(2) == 0) {
    options.control.candidates = {*compress::ParseCodecSpec("topk:1%+int4")};
  } else {
    for (const char* candidate : {"fp16", "int8", "int4", "ternary:0.5", "topk:2%+int4"}) {
      options.control.candidates.push_back(*compress::ParseCodecSpec(candidate));
    }
  }
  // Killing the coordinator's process also kills shard 0, which makes the plans.
  if (options.checkpoint_interval > 0 && random.Below(2) == 0) {
    options.faults.push_back(Fault::kKillCoordinator);
  }
  return options;
}

SurvivalOptions RandomElasticOptions(uint64_t seed) {
  static constexpr absl::string_view kSpecs[] = {
      "none",     "fp16",   "int8", "topk:10%+int4", "ternary:0.5", "topk:5%/dgc:0.9",
      "intsum:4", "qsgd:4", "sign", "countsketch:4x"};
  static constexpr Fault kOfWorkers[] = {Fault::kKillWorker, Fault::kMute,      Fault::kAway,
                                         Fault::kGivesUp,    Fault::kBreak,     Fault::kAway,
                                         Fault::kGivesUp,    Fault::kKillWorker};
  static constexpr Fault kOfAll[] = {Fault::kKillWorker,
                                     Fault::kAway,
                                     Fault::kGivesUp,
                                     Fault::kPause,
                                     Fault::kPartition,
                                     Fault::kClockGap,
                                     Fault::kKillShard,
                                     Fault::kKillCoordinator,
                                     Fault::kPowerCut,
                                     Fault::kKillTwo,
                                     Fault::kBreakControl,
                                     Fault::kDiskFull,
                                     Fault::kPause,
                                     Fault::kAway,
                                     Fault::kPartition,
                                     Fault::kDiskSlow,
                                     Fault::kCheckpointRequests,
                                     Fault::kOneWayCut,
                                     Fault::kUnreadable,
                                     Fault::kNoDescriptors,
                                     Fault::kRefused,
                                     Fault::kFailsAfterWrite,
                                     Fault::kWriteOutlives,
                                     Fault::kKeepsSending,
                                     Fault::kHangs,
                                     Fault::kTwoWorkers,
                                     Fault::kNewVersion,
                                     Fault::kOtherWorkers,
                                     Fault::kEvicted};
  SurvivalOptions options = RandomSurvivalOptions(seed);
  CounterRandom random(seed, 25);
  options.elastic = true;
  options.ranks = 2 + static_cast<uint32_t>(random.Below(4));
  options.begin = 1 + static_cast<uint32_t>(random.Below(options.ranks));
  options.least = random.Below(3) == 0 ? options.begin : 1;
  options.steps = 40 + random.Below(120);
  options.checkpoint_interval = 2 + random.Below(8);
  options.tight_memory = false;
  options.replay_limit =
      random.Below(4) == 0 ? uint64_t{1} << (10 + random.Below(7)) : uint64_t{1} << 30;
  if (random.Below(2) == 0) options.late_rank = static_cast<uint32_t>(random.Below(options.ranks));
  options.compression.uplink = *compress::ParseCodecSpec(kSpecs[random.Below(std::size(kSpecs))]);
  if (options.compression.uplink.compensator.id == compress::CompensatorId::kDgc &&
      options.rule.has_value()) {
    options.rule->name = "sgd";
  }
  if (CounterRandom drawn(seed, 41); drawn.Below(3) == 0) {
    options.quorum = 1 + static_cast<uint32_t>(drawn.Below(options.ranks));
    options.grace_us = drawn.Below(2) == 0 ? 0 : static_cast<int64_t>(drawn.Below(3000));
  }
  options.merge = RandomMerge(seed, options);
  // Half of the jobs lose only workers, which must never cause a rollback.
  const bool of_workers = random.Below(2) == 0;
  options.faults.clear();
  const uint64_t faults = 2 + random.Below(8);
  for (uint64_t i = 0; i < faults; ++i) {
    options.faults.push_back(of_workers ? kOfWorkers[random.Below(std::size(kOfWorkers))]
                                        : kOfAll[random.Below(std::size(kOfAll))]);
  }
  return options;
}

std::string Describe(const SurvivalOptions& options) {
  std::vector<std::string> faults;
  for (const Fault fault : options.faults) faults.push_back(ToString(fault));
  return absl::StrCat(
      "data seed ", options.data_seed, ", fault seed ", options.fault_seed, ": ", options.ranks,
      " ranks, ", options.shards, " shards, ", options.steps, " steps, a checkpoint every ",
      options.checkpoint_interval, options.parts_at_shards ? " at shards" : "", ", replay limit ",
      options.replay_limit, ", rejoin ", options.rejoin_us, " us, stall ", options.stall_us,
      " us, window ", options.window_bytes, options.tight_memory ? ", tight memory" : "", ", lost ",
      options.lost_share, ", repeated ", options.repeat_share, ", up ",
      ToString(options.compression.uplink), ", down ", ToString(options.compression.downlink),
      options.compression.layout.fragments == 1
          ? ""
          : absl::StrCat(", ", options.compression.layout.fragments, " fragments"),
      options.control.measures()
          ? absl::StrCat(", bandwidth over ", options.control.candidates.size(), " codecs")
          : "",
      options.control.policy == job::PolicyKind::kSchedule
          ? absl::StrCat(", schedule ", static_cast<int>(options.control.schedule.kind), " after ",
                         options.control.schedule.dense_steps, " dense steps")
          : "",
      options.rule.has_value() ? absl::StrCat(", ", options.rule->name, " on the shards") : "",
      options.quorum == 0
          ? ""
          : absl::StrCat(", quorum ", options.quorum, " after ", options.grace_us, " us"),
      options.merge.plain()
          ? ""
          : absl::StrCat(", weights ", NameOf(options.merge.weights), " over ",
                         NameOf(options.merge.over), ", ", NameOf(options.merge.method)),
      options.elastic
          ? absl::StrCat(", elastic: ", options.begin, " begin, at least ", options.least)
          : "",
      IsAsync(options)
          ? absl::StrCat(", ", NameOf(options.mode), " with staleness ", options.staleness)
          : "",
      options.late_rank == 0xFFFFFFFF ? "" : absl::StrCat(", rank ", options.late_rank, " late"),
      options.parameters_agree ? "" : ", with step 0", ", faults: ", absl::StrJoin(faults, ", "));
}

}  // namespace sluice
