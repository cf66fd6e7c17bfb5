// The policy `bandwidth` on traces, against an oracle that knows the links. SLUICE_SIM_SEED=<seed>
// runs one seed, SLUICE_SIM_SEEDS=<count> so many.
#include "server/control/bandwidth.h"

#include <gtest/gtest.h>

#include "tests/control/simulated_job.h"
#include "tests/sim/seeds.h"

namespace sluice {
namespace {

constexpr double kCompute_s = 0.080;
constexpr uint64_t kSeeds = 10;

SimulatedJob JobOn(const Trace& trace, uint64_t seed, size_t ranks = 4) {
  SimulatedJob job;
  job.ranks.assign(ranks, {.up = trace, .down = trace, .compute_s = kCompute_s});
  job.tensors = SomeTensors();
  job.seed = seed;
  return job;
}

BandwidthOptions Options(const SimulatedJob& job) {
  BandwidthOptions options;
  options.ranks = static_cast<uint32_t>(job.ranks.size());
  options.tensors = job.tensors;
  options.candidates = {*ParseCodecSpec("topk:1%")};
  // Any bytes that links may ask for: what is proved here is the law of budgets.
  options.sparse.density_min = 1e-6;
  options.sparse.density_max = 1;
  options.first = *ParseCodecSpec("topk:1%");
  return options;
}

SimulatedRun RunBandwidth(const SimulatedJob& job) {
  auto policy = MakeBandwidthPolicy(Options(job));
  EXPECT_TRUE(policy.ok()) << policy.status();
  return Run(job, *std::move(policy));
}

struct Figures {
  double step = 0;
  double bytes = 0;
  double plans = 0;
};

Figures Compare(const SimulatedJob& job, const SimulatedRun& run) {
  const SimulatedRun oracle = RunOracle(job);
  const Figures figures{run.MeanStep() / oracle.MeanStep(), run.MeanBytes() / oracle.MeanBytes(),
                        run.PlansPerStep()};
  GTEST_LOG_(INFO) << job.ranks[0].up.name << ", SLUICE_SIM_SEED=" << job.seed << ": step "
                   << figures.step << " and bytes " << figures.bytes << " of the oracle's, "
                   << figures.plans << " plans a step";
  return figures;
}

TEST(Bandwidth, OnStepsRampsAndSinesIsNearTheOracle) {
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + SeedCount(kSeeds); ++seed) {
    for (const Trace& trace : {StepTrace(), RampTrace(), SineTrace()}) {
      const SimulatedJob job = JobOn(trace, seed);
      const SimulatedRun run = RunBandwidth(job);
      const Figures figures = Compare(job, run);
      EXPECT_LE(figures.step, 1.05) << trace.name << " seed " << seed;
      EXPECT_GE(figures.bytes, 0.85) << trace.name << " seed " << seed;
      for (const double drop : trace.drops) {
        const int steps = run.StepsToSettleAfterDrop(drop, kCompute_s);
        GTEST_LOG_(INFO) << "settles " << steps << " steps after a drop";
        EXPECT_LE(steps, 10) << "seed " << seed;
      }
      for (const double rise : trace.rises) {
        const int steps = run.StepsToSettleAfterRise(rise);
        GTEST_LOG_(INFO) << "settles " << steps << " steps after a rise";
        EXPECT_LE(steps, 60) << "seed " << seed;
      }
    }
  }
}

TEST(Bandwidth, UnderNoiseAndBurstsKeepsCalm) {
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + SeedCount(kSeeds); ++seed) {
    for (const Trace& trace : {NoiseTrace(seed), BurstTrace()}) {
      const SimulatedJob job = JobOn(trace, seed);
      const Figures figures = Compare(job, RunBandwidth(job));
      EXPECT_LE(figures.step, 1.05) << trace.name << " seed " << seed;
      EXPECT_GE(figures.bytes, 0.75) << trace.name << " seed " << seed;
      EXPECT_LE(figures.plans, 0.1) << trace.name << " seed " << seed;
    }
  }
}

}  // namespace
}  // namespace sluice
