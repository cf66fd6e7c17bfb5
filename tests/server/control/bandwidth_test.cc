// SPDX-License-Identifier: Apache-2.0
// Tests the policy `bandwidth` on traces and compares it with an oracle that knows the links.
// SLUICE_SIM_SEED=<seed> runs one seed; SLUICE_SIM_SEEDS=<count> runs that many seeds.
#include "server/control/bandwidth.h"

#include <gtest/gtest.h>

#include "tests/server/control/simulated_job.h"
#include "tests/sim/seeds.h"

namespace sluice::server {
namespace {

constexpr double kCompute_s = 0.080;
constexpr uint64_t kBandwidthSeeds = SLUICE_SHORT_RUNS ? 1 : 10;

SimulatedJob JobOnBandwidth(const Trace& trace, uint64_t seed, size_t ranks = 4) {
  SimulatedJob job;
  job.ranks.assign(ranks, {.up = trace, .down = trace, .compute_s = kCompute_s});
  job.tensors = SomeTensors();
  job.seed = seed;
  return job;
}

BandwidthOptions OptionsOfBandwidth(const SimulatedJob& job) {
  BandwidthOptions options;
  options.ranks = static_cast<uint32_t>(job.ranks.size());
  options.tensors = job.tensors;
  options.candidates = {*compress::ParseCodecSpec("topk:1%")};
  // The densities allow any number of bytes, because these tests check only the budgets.
  options.sparse.density_min = 1e-6;
  options.sparse.density_max = 1;
  options.first = *compress::ParseCodecSpec("topk:1%");
  return options;
}

SimulatedRun RunBandwidth(const SimulatedJob& job) {
  auto policy = MakeBandwidthPolicy(OptionsOfBandwidth(job));
  EXPECT_TRUE(policy.ok()) << policy.status();
  return Simulate(job, *std::move(policy));
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
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + SeedCount(kBandwidthSeeds); ++seed) {
    for (const Trace& trace : {StepTrace(), RampTrace(), SineTrace()}) {
      const SimulatedJob job = JobOnBandwidth(trace, seed);
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
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + SeedCount(kBandwidthSeeds); ++seed) {
    for (const Trace& trace : {NoiseTrace(seed), BurstTrace()}) {
      const SimulatedJob job = JobOnBandwidth(trace, seed);
      const Figures figures = Compare(job, RunBandwidth(job));
      EXPECT_LE(figures.step, 1.05) << trace.name << " seed " << seed;
      EXPECT_GE(figures.bytes, 0.75) << trace.name << " seed " << seed;
      EXPECT_LE(figures.plans, 0.1) << trace.name << " seed " << seed;
    }
  }
}

// Returns the budget of each rank in the last plan.
std::vector<double> LastBudgets(const SimulatedRun& run) {
  std::vector<double> budgets;
  for (const Coding& up : run.plans.back().choice.up) budgets.push_back(up.bytes);
  return budgets;
}

TEST(Bandwidth, UnderNoiseOfEachLinkByItselfKeepsCalm) {
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + SeedCount(kBandwidthSeeds); ++seed) {
    SimulatedJob job = JobOnBandwidth(NoiseTrace(seed), seed);
    for (size_t rank = 0; rank < job.ranks.size(); ++rank) {
      job.ranks[rank].up = NoiseTrace(1000 * seed + rank);
      job.ranks[rank].down = NoiseTrace(1000 * seed + 100 + rank);
    }
    const SimulatedRun run = RunBandwidth(job);
    const Figures figures = Compare(job, run);
    EXPECT_LE(figures.plans, 0.1) << "seed " << seed;
    EXPECT_LE(figures.step, 1.10) << "seed " << seed;
  }
}

TEST(Bandwidth, OnAsymmetricLinksUsesBothDirections) {
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + SeedCount(kBandwidthSeeds); ++seed) {
    for (const double up : {1.0, 10.0}) {
      SimulatedJob job = JobOnBandwidth(SteadyTrace(up * kGigabit, 0.001), seed);
      for (SimulatedRank& rank : job.ranks) {
        rank.up.name = "asymmetry";
        rank.down.rate = SteadyTrace((11 - up) * kGigabit, 0.001).rate;
      }
      const SimulatedRun run = RunBandwidth(job);
      const Figures figures = Compare(job, run);
      EXPECT_LE(figures.step, 1.05) << "seed " << seed;
      EXPECT_GE(figures.bytes, 0.85) << "seed " << seed;
    }
  }
}

TEST(Bandwidth, TellsLatencyFromRate) {
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + SeedCount(kBandwidthSeeds); ++seed) {
    // Latencies up to 0.9 of the target time of 56 ms, and far above the target.
    for (const double latency_s : {0.001, 0.010, 0.020, 0.0252, 0.050, 0.100}) {
      const SimulatedJob job = JobOnBandwidth(SteadyTrace(kGigabit, latency_s / 2), seed);
      const SimulatedRun run = RunBandwidth(job);
      const Figures figures = Compare(job, run);
      EXPECT_LE(figures.step, 1.05) << "seed " << seed << " latency " << latency_s;
      EXPECT_GE(figures.bytes, 0.75) << "seed " << seed << " latency " << latency_s;
    }
  }
}

// An estimate of bytes / time falls when fewer bytes are sent. A policy that used it would send
// less and less. This policy must not.
TEST(Bandwidth, DoesNotSpiralDownWhenLatencyIsNearlyAllOfTheTarget) {
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + SeedCount(kBandwidthSeeds); ++seed) {
    const double time_s = 0.7 * kCompute_s - 0.001;
    SimulatedJob job = JobOnBandwidth(SteadyTrace(kGigabit, 0.9 * time_s / 2), seed);
    job.ranks[0].up.name = "latency 0.9 of the target";
    job.seconds = 240;
    const SimulatedRun run = RunBandwidth(job);
    const Figures figures = Compare(job, run);
    EXPECT_LE(figures.step, 1.05) << "seed " << seed;
    double early = 0;
    double late = 0;
    const size_t steps = run.steps.size();
    for (size_t i = 0; i < 500; ++i) {
      early += run.steps[100 + i].bytes;
      late += run.steps[steps - 500 + i].bytes;
    }
    EXPECT_GE(late, 0.8 * early) << "seed " << seed;
    EXPECT_GE(figures.bytes, 0.75) << "seed " << seed;
  }
}

TEST(Bandwidth, StaysWhereItIsOnASteadyLink) {
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + SeedCount(kBandwidthSeeds); ++seed) {
    SimulatedJob job = JobOnBandwidth(SteadyTrace(kGigabit, 0.002), seed);
    job.seconds = 240;
    job.byte_jitter = 0.1;
    const SimulatedRun run = RunBandwidth(job);
    int changes = 0;
    for (size_t step = 100; step < run.steps.size(); ++step) changes += run.steps[step].changed;
    GTEST_LOG_(INFO) << changes << " changes in " << run.steps.size() << " steps";
    EXPECT_LE(changes, 3) << "seed " << seed;
  }
}

TEST(Bandwidth, ASlowLinkTakesNothingFromTheOthersUp) {
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + SeedCount(kBandwidthSeeds); ++seed) {
    SimulatedJob job = JobOnBandwidth(SteadyTrace(5 * kGigabit, 0.001), seed);
    const std::vector<double> equal = LastBudgets(RunBandwidth(job));
    job.ranks[2].up = job.ranks[2].down = SteadyTrace(0.5 * kGigabit, 0.001);
    job.ranks[0].up.name = "one slow worker";
    const SimulatedRun run = RunBandwidth(job);
    const Figures figures = Compare(job, run);
    EXPECT_LE(figures.step, 1.05) << "seed " << seed;
    EXPECT_GE(figures.bytes, 0.85) << "seed " << seed;
    const std::vector<double> unequal = LastBudgets(run);
    for (const size_t rank : {0, 1, 3}) {
      EXPECT_GE(unequal[rank] / equal[rank], 0.88) << "seed " << seed;
    }
    EXPECT_NEAR(unequal[2] / equal[2], 0.1, 0.03) << "seed " << seed;
  }
}

// A slow processor must not change any budget, however slow it is. The test compares the plans step
// by step.
TEST(Bandwidth, AComputeStragglerChangesNoBudget) {
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + SeedCount(kBandwidthSeeds); ++seed) {
    SimulatedJob job = JobOnBandwidth(SteadyTrace(5 * kGigabit, 0.001), seed);
    job.ranks[1].compute_s *= 1.2;
    const SimulatedRun even = RunBandwidth(job);
    job.ranks[1].compute_s *= 2.5;
    job.seconds *= 2.5;
    const SimulatedRun uneven = RunBandwidth(job);
    EXPECT_GT(uneven.MeanStep(), 2 * even.MeanStep());
    const size_t steps = std::min(even.steps.size(), uneven.steps.size());
    ASSERT_GT(steps, 500u);
    for (size_t step = 0; step < steps; ++step) {
      for (size_t rank = 0; rank < 4; ++rank) {
        ASSERT_NEAR(uneven.steps[step].up[rank] / even.steps[step].up[rank], 1, 1e-6)
            << "seed " << seed << " step " << step;
      }
    }
  }
}

TEST(Bandwidth, KeepsAStepTimeThatIsGiven) {
  const SimulatedJob job = JobOnBandwidth(SteadyTrace(kGigabit, 0.001), 1);
  BandwidthOptions options = OptionsOfBandwidth(job);
  options.step_time_s = 0.160;
  const SimulatedRun slow = Simulate(job, *MakeBandwidthPolicy(options));
  EXPECT_NEAR(slow.MeanStep(), 0.155, 0.01);
  options.step_time_s = 0.030;
  options.sparse.density_min = 1e-3;
  const SimulatedRun wish = Simulate(job, *MakeBandwidthPolicy(options));
  EXPECT_LT(wish.MeanBytes(), 0.3 * slow.MeanBytes());
  EXPECT_NEAR(wish.MeanStep(), kCompute_s, 0.006);
}

TEST(Bandwidth, SpendsOverCodecs) {
  const SimulatedJob job = JobOnBandwidth(SteadyTrace(2 * kGigabit, 0.001), 1);
  BandwidthOptions options = OptionsOfBandwidth(job);
  options.candidates.clear();
  for (const char* spec : {"fp16", "int8", "int4", "ternary:0.5", "topk:1%+int4"}) {
    options.candidates.push_back(*compress::ParseCodecSpec(spec));
  }
  const SimulatedRun run = Simulate(job, *MakeBandwidthPolicy(options));
  const Choice& choice = run.plans.back().choice;
  EXPECT_GT(choice.down.bytes, 4e6);
  EXPECT_LT(run.steps.back().error, 0.6);
  EXPECT_LE(run.MeanStep(), 1.05 * RunOracle(job).MeanStep());
}

TEST(Bandwidth, SaysWhy) {
  const SimulatedJob job = JobOnBandwidth(StepTrace(), 1);
  const SimulatedRun run = RunBandwidth(job);
  for (const PolicyDecision& plan : run.plans) {
    EXPECT_FALSE(plan.choice.reason.empty());
    GTEST_LOG_(INFO) << "plan " << plan.id << " from step " << plan.effective_step << ": "
                     << plan.choice.reason;
  }
}

TEST(Bandwidth, CloneGoesOnAsTheOriginal) {
  const SimulatedJob job = JobOnBandwidth(NoiseTrace(3), 3);
  auto policy = *MakeBandwidthPolicy(OptionsOfBandwidth(job));
  const SimulatedRun original = Simulate(job, policy->Clone());
  const SimulatedRun again = Simulate(job, std::move(policy));
  ASSERT_EQ(original.plans.size(), again.plans.size());
  for (size_t i = 0; i < again.plans.size(); ++i) {
    EXPECT_EQ(original.plans[i].choice.up, again.plans[i].choice.up);
    EXPECT_EQ(original.plans[i].choice.reason, again.plans[i].choice.reason);
  }
}

TEST(Bandwidth, RefusesWhatCannotBe) {
  const SimulatedJob job = JobOnBandwidth(SteadyTrace(kGigabit, 0.001), 1);
  BandwidthOptions options = OptionsOfBandwidth(job);
  options.candidates = {};
  EXPECT_FALSE(MakeBandwidthPolicy(options).ok());
  options = OptionsOfBandwidth(job);
  options.candidates = {*compress::ParseCodecSpec("powersgd:4")};
  EXPECT_FALSE(MakeBandwidthPolicy(options).ok());
  options = OptionsOfBandwidth(job);
  options.overlap = 0;
  EXPECT_FALSE(MakeBandwidthPolicy(options).ok());
  options = OptionsOfBandwidth(job);
  options.step_time_s = -1;
  EXPECT_FALSE(MakeBandwidthPolicy(options).ok());
  options = OptionsOfBandwidth(job);
  options.ranks = 0;
  EXPECT_FALSE(MakeBandwidthPolicy(options).ok());
}

}  // namespace
}  // namespace sluice::server
