#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "tests/sim/async_job.h"

namespace sluice {

AsyncOptions RandomAsyncOptions(uint64_t seed) {
  CounterRandom random(seed, 17);
  const auto one_of = [&random](auto... values) {
    const std::common_type_t<decltype(values)...> list[] = {values...};
    return list[random.Below(sizeof...(values))];
  };
  AsyncOptions options;
  options.seed = seed;
  options.ranks = 1 + static_cast<uint32_t>(random.Below(5));
  options.shards = 1 + static_cast<uint32_t>(random.Below(2));
  if (random.Below(2) == 0) {
    options.mode = "ssp";
    options.staleness = static_cast<uint32_t>(random.Below(4));
  }
  options.staleness_aware_lr = random.Below(4) == 0;
  options.rule.name = one_of("sgd", "sgd", "adam", "rmsprop");
  options.rule.momentum = options.rule.name == "sgd" ? one_of(0.0, 0.5) : 0;
  options.compression.uplink = *compress::ParseCodecSpec(
      one_of("none", "fp16", "int8", "int4", "topk:10%", "topk:5%+int4", "randomk:20%", "eden:2",
             "powersgd:2", "ternary:0.5", "sign", "qsgd:4", "onebit"));
  options.compression.downlink = *compress::ParseCodecSpec(
      one_of("none", "fp16", "int8", "int4", "topk:10%", "topk:5%+int4", "ternary:0.5"));
  options.compression.min_elements = random.Below(2) == 0 ? 0 : 64;
  options.compression.layout = {.chunk_elements = 256, .bundle_elements = 256};
  options.compression.seed = seed;
  options.steps = 5 + random.Below(25);
  options.skip_share = one_of(0.0, 0.0, 0.1);
  options.nan_share = one_of(0.0, 0.0, 0.05);
  options.break_share = one_of(0.0, 0.01, 0.05);
  options.duplicate_share = one_of(0.0, 0.05);
  options.checkpoints = static_cast<uint32_t>(random.Below(4));
  options.rollbacks = static_cast<uint32_t>(random.Below(3));
  options.slowest = one_of(1.0, 1.0, 4.0, 12.0);
  return options;
}

AsyncOptions RandomPlannedAsyncOptions(uint64_t seed) {
  AsyncOptions options = RandomAsyncOptions(seed);
  CounterRandom random(seed, 18);
  options.compression.uplink = *compress::ParseCodecSpec("topk:20%+int4");
  options.compression.downlink =
      *compress::ParseCodecSpec(random.Below(2) == 0 ? "fp16" : "topk:30%");
  options.control.policy = "schedule";
  job::ScheduleSpec& schedule = options.control.schedule;
  schedule.kind = job::ScheduleKind::kCyclic;
  schedule.start = 0.4;
  schedule.end = 0.05;
  schedule.stages = 1 + random.Below(3);
  schedule.steps = 4 * schedule.stages;
  schedule.dense_steps = 2 * random.Below(4);
  return options;
}

std::string Describe(const AsyncOptions& options) {
  return absl::StrCat(options.mode, " ", options.staleness, ", ", options.ranks, " ranks, ",
                      options.shards, " shards, ", options.rule.name, " ", options.rule.momentum,
                      ", uplink ", ToString(options.compression.uplink), ", downlink ",
                      ToString(options.compression.downlink), ", ", options.steps,
                      " steps, breaks ", options.break_share, ", ", options.checkpoints,
                      " checkpoints, ", options.rollbacks, " rollbacks");
}

}  // namespace sluice
