// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <type_traits>
#include <utility>

#include "base/random.h"
#include "tests/sim/survival.h"

namespace sluice {

SurvivalOptions RandomAsyncOptions(uint64_t seed) {
  CounterRandom random(seed, 17);
  const auto one_of = [&random](auto... values) {
    const std::common_type_t<decltype(values)...> list[] = {values...};
    return list[random.Below(sizeof...(values))];
  };
  SurvivalOptions options = RandomSurvivalOptions(seed);
  options.mode = job::Mode::kAsync;
  options.ranks = 1 + static_cast<uint32_t>(random.Below(5));
  if (random.Below(2) == 0) {
    options.mode = job::Mode::kSsp;
    options.staleness = static_cast<uint32_t>(random.Below(4));
  }
  options.staleness_aware_lr = random.Below(4) == 0;
  options.rule = {.name = one_of("sgd", "sgd", "adam", "rmsprop"), .lr = 1};
  options.rule->momentum = options.rule->name == "sgd" ? one_of(0.0, 0.5) : 0;
  options.rule->location = job::UpdateLocation::kShards;
  options.compression.uplink = *compress::ParseCodecSpec(
      one_of("none", "fp16", "int8", "int4", "topk:10%", "topk:5%+int4", "randomk:20%", "eden:2",
             "powersgd:2", "ternary:0.5", "sign", "qsgd:4", "onebit"));
  options.compression.downlink = *compress::ParseCodecSpec(
      one_of("none", "fp16", "int8", "int4", "topk:10%", "topk:5%+int4", "ternary:0.5"));
  options.compression.min_elements = random.Below(2) == 0 ? 0 : 64;
  options.compression.layout = {.chunk_elements = 256, .bundle_elements = 256};
  options.compression.seed = seed;
  options.steps = 5 + random.Below(25);
  options.replay_limit = 0;
  options.tight_memory = false;
  if (random.Below(2) == 0) options.late_rank = static_cast<uint32_t>(random.Below(options.ranks));
  // After any loss, all workers compute other values anyway.
  std::erase(options.faults, Fault::kOtherBytes);
  return options;
}

SurvivalOptions RandomPlannedAsyncOptions(uint64_t seed) {
  SurvivalOptions options = RandomAsyncOptions(seed);
  CounterRandom random(seed, 18);
  options.compression.uplink = *compress::ParseCodecSpec("topk:20%+int4");
  options.compression.downlink =
      *compress::ParseCodecSpec(random.Below(2) == 0 ? "fp16" : "topk:30%");
  options.control.policy = job::PolicyKind::kSchedule;
  job::ScheduleSpec& schedule = options.control.schedule;
  schedule.kind = job::ScheduleKind::kCyclic;
  schedule.start = 0.4;
  schedule.end = 0.05;
  schedule.stages = 1 + static_cast<uint32_t>(random.Below(3));
  schedule.steps = 4 * schedule.stages;
  schedule.dense_steps = 2 * random.Below(4);
  return options;
}

SurvivalOptions RandomMeasuredAsyncOptions(uint64_t seed) {
  SurvivalOptions options = RandomAsyncOptions(seed);
  const SurvivalOptions measured = RandomMeasuredOptions(seed);
  options.compression.uplink = measured.compression.uplink;
  options.compression.downlink = measured.compression.downlink;
  options.compression.min_elements = measured.compression.min_elements;
  options.control = measured.control;
  return options;
}

SurvivalOptions RandomElasticAsyncOptions(uint64_t seed) {
  SurvivalOptions options =
      seed % 4 == 0 ? RandomPlannedAsyncOptions(seed) : RandomAsyncOptions(seed);
  const SurvivalOptions elastic = RandomElasticOptions(seed);
  options.elastic = true;
  options.ranks = elastic.ranks;
  options.begin = elastic.begin;
  options.least = elastic.least;
  options.steps = elastic.steps;
  options.checkpoint_interval = elastic.checkpoint_interval;
  options.late_rank = elastic.late_rank;
  options.faults = elastic.faults;
  options.replay_limit = uint64_t{1} << 30;  // Newcomers need no results.
  return options;
}

}  // namespace sluice
