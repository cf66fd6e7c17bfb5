// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/sim_kinds.h"

#include <algorithm>
#include <utility>

#include "tests/sim/relay_sim.h"

namespace sluice {
namespace {

SimOutcome OutcomeOf(std::string job, SurvivalReport report) {
  return {.violations = std::move(report.violations),
          .job = std::move(job),
          .faults = std::move(report.faults),
          .trace_hash = report.trace_hash,
          .parameters_hash = report.parameters_hash};
}

template <SurvivalOptions (*Job)(uint64_t seed)>
SimOutcome RunSurvivalSeed(uint64_t seed) {
  const SurvivalOptions options = Job(seed);
  return OutcomeOf(Describe(options), RunSurvival(options));
}

template <RelaySimOptions (*Job)(uint64_t seed)>
SimOutcome RunRelaySeed(uint64_t seed) {
  const RelaySimOptions options = Job(seed);
  return OutcomeOf(Describe(options), RunRelays(options).all);
}

template <auto Job>
std::optional<Shrunk> ShrinkSeed(uint64_t seed, uint64_t runs_max) {
  return Shrink(Job(seed), runs_max);
}

// Every second job has plans, from a schedule or from measurements.
SurvivalOptions RandomAsyncJob(uint64_t seed) {
  if (seed % 2 == 0) return RandomAsyncOptions(seed);
  return seed % 4 == 1 ? RandomPlannedAsyncOptions(seed) : RandomMeasuredAsyncOptions(seed);
}

constexpr SimKind kSimKinds[] = {
    {"fixed", RunSurvivalSeed<RandomSurvivalOptions>, ShrinkSeed<RandomSurvivalOptions>},
    {"elastic", RunSurvivalSeed<RandomElasticOptions>, ShrinkSeed<RandomElasticOptions>},
    {"quorum", RunSurvivalSeed<RandomQuorumOptions>, ShrinkSeed<RandomQuorumOptions>},
    {"relay", RunRelaySeed<RandomRelayOptions>, ShrinkSeed<RandomRelayOptions>},
    {"async_relay", RunRelaySeed<RandomAsyncRelayOptions>, ShrinkSeed<RandomAsyncRelayOptions>},
    {"async", RunSurvivalSeed<RandomAsyncJob>, ShrinkSeed<RandomAsyncJob>},
    {"elastic_async", RunSurvivalSeed<RandomElasticAsyncOptions>,
     ShrinkSeed<RandomElasticAsyncOptions>},
    {"plans", RunSurvivalSeed<RandomPlannedJob>, ShrinkSeed<RandomPlannedJob>}};

}  // namespace

absl::Span<const SimKind> SimKinds() { return kSimKinds; }

SurvivalOptions RandomPlannedJob(uint64_t seed) {
  switch (seed % 4) {
    case 0:
      return RandomPlanOptions(seed);
    case 1:
      return RandomMeasuredOptions(seed);
    case 2:
      return WithScheduleOf(seed, RandomQuorumOptions(seed));
    default: {
      SurvivalOptions options = WithScheduleOf(seed, RandomElasticOptions(seed));
      options.steps = std::min<uint64_t>(options.steps, 60);
      return options;
    }
  }
}

}  // namespace sluice
