// SPDX-License-Identifier: Apache-2.0
// Tests the policy `auto` on traces and compares it with every fixed choice on the same traces.
// SLUICE_SIM_SEED=<seed> runs one seed.
#include "server/control/auto.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <utility>

#include "server/control/bit_allocation.h"
#include "tests/server/control/fixed_policy.h"
#include "tests/server/control/simulated_job.h"
#include "tests/sim/seeds.h"

namespace sluice::server {
namespace {

constexpr uint64_t kAutoSeeds = SLUICE_SHORT_RUNS ? 1 : 5;

// Times for 25 million elements on current processors.
std::vector<CodecCpuTime> MakeCosts() {
  const struct {
    const char* spec;
    double encode_s;
    double server_s;
  } rows[] = {{"none", 0.000, 0.004},          {"fp16", 0.003, 0.005},
              {"int8", 0.006, 0.006},          {"int4", 0.007, 0.006},
              {"ternary:0.5", 0.010, 0.007},   {"topk:1%+int4", 0.012, 0.002},
              {"topk:0.1%+int4", 0.012, 0.001}};
  std::vector<CodecCpuTime> costs;
  for (const auto& row : rows) {
    costs.push_back({*compress::ParseCodecSpec(row.spec), row.encode_s, row.server_s, 0});
  }
  return costs;
}

const std::vector<CodecCpuTime>& Costs() {
  static const std::vector<CodecCpuTime> costs = MakeCosts();
  return costs;
}

CodecTimes TimesOf(const compress::CodecSpec& spec) {
  for (const CodecCpuTime& cost : Costs()) {
    if (cost.spec == spec) return {cost.encode_s, cost.server_s};
  }
  return {};
}

SimulatedJob JobOnAuto(const Trace& trace, uint64_t seed) {
  SimulatedJob job;
  job.ranks.assign(4, {.up = trace, .down = trace});
  job.tensors = SomeTensors();
  job.seed = seed;
  job.server_s = 0;
  job.times = TimesOf;
  return job;
}

AutoOptions OptionsOfAuto(const SimulatedJob& job) {
  return {.ranks = static_cast<uint32_t>(job.ranks.size()),
          .tensors = job.tensors,
          .choices = Costs(),
          .first = *compress::ParseCodecSpec("topk:1%+int4")};
}

// Returns the time per unit of progress, once the links are known. A step without error makes one
// unit of progress. A step with error makes less, depending on the price of error.
double Cost(const SimulatedRun& run) {
  double time = 0;
  double progress = 0;
  for (size_t step = 5; step < run.steps.size(); ++step) {
    time += run.steps[step].seconds;
    progress += 1 / (1 + AutoOptions{}.error_price * run.steps[step].error);
  }
  return time / progress;
}

std::unique_ptr<Policy> Fixed(const SimulatedJob& job, const compress::CodecSpec& spec) {
  const Coding coding = SpendEvenly(job.tensors, spec)->coding;
  return std::make_unique<FixedPolicy>(
      Choice{.up = std::vector<Coding>(job.ranks.size(), coding), .down = coding});
}

struct BestFixed {
  double cost = HUGE_VAL;
  std::string name{};
};
BestFixed FindBestFixed(const SimulatedJob& job) {
  BestFixed best;
  for (const CodecCpuTime& cost : Costs()) {
    const double fixed = Cost(Simulate(job, Fixed(job, cost.spec)));
    if (fixed < best.cost) best = {fixed, ToString(cost.spec)};
  }
  return best;
}

TEST(Auto, IsAsGoodAsTheBestFixedChoiceOnEveryTrace) {
  double best_of_all = 1;
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + SeedCount(kAutoSeeds); ++seed) {
    std::vector<Trace> traces = {StepTrace(), RampTrace(), SineTrace(), BurstTrace(),
                                 NoiseTrace(seed)};
    for (const double gigabits : {0.1, 0.3, 1.0, 3.0, 10.0, 40.0, 200.0}) {
      traces.push_back(SteadyTrace(gigabits * kGigabit, 0.001));
      traces.back().name = absl::StrCat(gigabits, " Gb/s");
    }
    for (const Trace& trace : traces) {
      const SimulatedJob job = JobOnAuto(trace, seed);
      const BestFixed best = FindBestFixed(job);
      const SimulatedRun run = Simulate(job, *MakeAutoPolicy(OptionsOfAuto(job)));
      const double ratio = Cost(run) / best.cost;
      GTEST_LOG_(INFO) << trace.name << ", SLUICE_SIM_SEED=" << seed << ": " << ratio << " of "
                       << best.name << ", " << run.PlansPerStep() << " plans a step";
      EXPECT_LE(ratio, 1.03) << trace.name << " seed " << seed;
      EXPECT_LE(run.PlansPerStep(), 0.1) << trace.name << " seed " << seed;
      best_of_all = std::min(best_of_all, ratio);
    }
  }
  EXPECT_LT(best_of_all, 0.99) << "on some trace, the policy must beat every fixed choice";
}

// Normally the simulator follows the policy's model. Here it deviates: less communication can be
// hidden, encoding and the shards' work take 1.5 times as long, and frames differ from their
// planned size. The policy must still be near the best fixed choice.
TEST(Auto, IsNearTheBestFixedChoiceWhereItsModelIsWrong) {
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + SeedCount(kAutoSeeds); ++seed) {
    for (const Trace& trace : {StepTrace(), RampTrace(), SineTrace(), BurstTrace(),
                               NoiseTrace(seed), SteadyTrace(40 * kGigabit, 0.001)}) {
      SimulatedJob job = JobOnAuto(trace, seed);
      job.overlap = 0.6;
      job.byte_jitter = 0.1;
      job.times = [](const compress::CodecSpec& spec) {
        const CodecTimes times = TimesOf(spec);
        return CodecTimes{1.5 * times.encode_s, 1.5 * times.server_s};
      };
      const double ratio =
          Cost(Simulate(job, *MakeAutoPolicy(OptionsOfAuto(job)))) / FindBestFixed(job).cost;
      GTEST_LOG_(INFO) << trace.name << ", wrong model, SLUICE_SIM_SEED=" << seed << ": " << ratio;
      EXPECT_LE(ratio, 1.03) << trace.name << " seed " << seed;
    }
  }
}

// Bytes cost more time than measurements of the links show. With its model alone, the policy would
// need up to 1.7 times as long as the best choice, so it must learn from the step times.
TEST(Auto, LearnsWhatStepsTakeBeyondItsModel) {
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + SeedCount(kAutoSeeds); ++seed) {
    for (const double gigabits : {1.0, 3.0, 10.0, 40.0}) {
      SimulatedJob job = JobOnAuto(SteadyTrace(gigabits * kGigabit, 0.001), seed);
      job.unseen_s_per_byte = 1 / (2 * gigabits * kGigabit);
      const BestFixed best = FindBestFixed(job);
      const SimulatedRun run = Simulate(job, *MakeAutoPolicy(OptionsOfAuto(job)));
      const double ratio = Cost(run) / best.cost;
      GTEST_LOG_(INFO) << gigabits << " Gb/s, SLUICE_SIM_SEED=" << seed << ": " << ratio << " of "
                       << best.name << ", " << run.PlansPerStep() << " plans a step";
      EXPECT_LE(ratio, 1.15) << gigabits << " Gb/s, seed " << seed;
    }
  }
}

// Compares plain step times, without the price of error.
TEST(Auto, IsNeverSlowerThanDense) {
  for (const double gigabits : {0.1, 0.3, 1.0, 3.0, 10.0, 40.0, 200.0}) {
    const SimulatedJob job = JobOnAuto(SteadyTrace(gigabits * kGigabit, 0.001), 1);
    const double dense = Simulate(job, Fixed(job, *compress::ParseCodecSpec("fp16"))).MeanStep();
    const double chosen = Simulate(job, *MakeAutoPolicy(OptionsOfAuto(job))).MeanStep();
    GTEST_LOG_(INFO) << gigabits << " Gb/s: " << chosen / dense << " of fp16's time";
    EXPECT_LE(chosen, 1.03 * dense) << gigabits;
  }
}

// The policy must choose dense codecs here, except in occasional trials.
TEST(Auto, IsDenseWhereThatIsHidden) {
  const SimulatedJob job = JobOnAuto(SteadyTrace(200 * kGigabit, 0.0001), 1);
  const SimulatedRun run = Simulate(job, *MakeAutoPolicy(OptionsOfAuto(job)));
  const double dense = SpendEvenly(job.tensors, *compress::ParseCodecSpec("fp16"))->coding.bytes;
  size_t steps = 0;
  for (const SimulatedStep& step : run.steps) steps += step.up[0] >= dense && step.down >= dense;
  EXPECT_GT(steps, 0.95 * static_cast<double>(run.steps.size()));
}

// Encoding takes longer than the transfer of the bytes that it saves, so the policy must not choose
// expensive codecs.
TEST(Auto, CountsWhatEncodingCosts) {
  const SimulatedJob job = JobOnAuto(SteadyTrace(20 * kGigabit, 0.0001), 1);
  AutoOptions options = OptionsOfAuto(job);
  for (CodecCpuTime& cost : options.choices) {
    if (cost.spec.codec != compress::CodecId::kNone) cost.encode_s = 0.5;
  }
  EXPECT_EQ(Simulate(job, *MakeAutoPolicy(options)).plans.back().choice.up[0].codecs[0].codec,
            compress::CodecId::kNone);
}

TEST(Auto, CountsWhatTheShardsWorkCosts) {
  const SimulatedJob job = JobOnAuto(SteadyTrace(5 * kGigabit, 0.0001), 1);
  AutoOptions options = OptionsOfAuto(job);
  for (CodecCpuTime& cost : options.choices) {
    cost.server_s = cost.spec.codec == compress::CodecId::kInt8 ? 0 : 0.5;
  }
  EXPECT_EQ(Simulate(job, *MakeAutoPolicy(options)).plans.back().choice.down.codecs[0].codec,
            compress::CodecId::kInt8);
}

TEST(Auto, OneSlowLinkTakesNothingFromTheOthersUp) {
  SimulatedJob job = JobOnAuto(SteadyTrace(20 * kGigabit, 0.001), 1);
  job.ranks[2].up = SteadyTrace(0.5 * kGigabit, 0.001);
  const SimulatedRun run = Simulate(job, *MakeAutoPolicy(OptionsOfAuto(job)));
  const Choice& choice = run.plans.back().choice;
  EXPECT_GT(choice.up[0].bytes, 3 * choice.up[2].bytes);
  EXPECT_GT(choice.down.bytes, 3 * choice.up[2].bytes);
}

// Returns the choice when rank 2 has a tenth of the rate of rank 0's link, and rank 3 a thousandth.
Choice ChoiceOverUnevenLinks(bool lockstep) {
  const SimulatedJob job = JobOnAuto(SteadyTrace(1 * kGigabit, 0.0001), 1);
  AutoOptions options = OptionsOfAuto(job);
  options.lockstep = lockstep;
  const std::unique_ptr<Policy> policy = *MakeAutoPolicy(options);
  policy->First();
  std::optional<Choice> choice;
  for (uint64_t step = 0; !choice && step < 10; ++step) {
    StepMeasurements of{.step = step, .ranks = {}};
    for (const double rate : {1e9, 1e9, 1e8, 1e6}) {
      RankMeasurements& each = of.ranks.emplace_back();
      each.compute_s = 0.1;
      for (const double bytes : {1e6, 1e5}) {
        each.up.push_back({.bytes = static_cast<uint64_t>(bytes), .seconds = bytes / rate});
        each.down.push_back({.bytes = static_cast<uint64_t>(bytes), .seconds = bytes / rate});
      }
    }
    choice = policy->Next(of);
  }
  return choice.value_or(Choice());
}

TEST(Auto, WhoeverGoesOnByItselfSendsWhatItsOwnLinkIsWorth) {
  const Choice together = ChoiceOverUnevenLinks(true);
  const Choice alone = ChoiceOverUnevenLinks(false);
  ASSERT_EQ(together.up.size(), 4u);
  ASSERT_EQ(alone.up.size(), 4u);
  EXPECT_LT(alone.up[0].bytes, together.up[0].bytes)
      << "without waiting for rank 3, rank 0 has less time to send";
  EXPECT_GT(alone.up[0].bytes, alone.up[2].bytes);
  EXPECT_GT(alone.up[2].bytes, alone.up[3].bytes);
  EXPECT_GE(alone.down.bytes, together.down.bytes) << "the slowest rank is only one of four";
}

// A few bytes seem to travel at any speed, so a burst must not count as a link's rate. Bytes may
// only grow by one choice at a time, and never in an emergency.
TEST(Auto, GrowsByOneChoiceAtATimeAndNeverInAnEmergency) {
  const SimulatedJob job = JobOnAuto(SteadyTrace(1 * kGigabit, 0.0001), 1);
  const std::unique_ptr<Policy> policy = *MakeAutoPolicy(OptionsOfAuto(job));
  policy->First();
  const auto measured = [&](uint64_t step, double up_rate, double down_rate) {
    StepMeasurements of{.step = step, .ranks = {}};
    for (size_t rank = 0; rank < job.ranks.size(); ++rank) {
      RankMeasurements& each = of.ranks.emplace_back();
      each.compute_s = 0.1;
      each.exposed_s = 1e7 / up_rate - 0.1;
      for (const double bytes : {1e6, 1e5}) {
        each.up.push_back({.bytes = static_cast<uint64_t>(bytes), .seconds = bytes / up_rate});
        each.down.push_back({.bytes = static_cast<uint64_t>(bytes), .seconds = bytes / down_rate});
      }
    }
    return of;
  };
  std::optional<Choice> now;
  uint64_t step = 0;
  for (; !now && step < 10; ++step) now = policy->Next(measured(step, 1e8, 1e8));
  ASSERT_TRUE(now);
  // The uplink drops to a tenth of its rate, and downlink transfers seem to take no time.
  std::optional<Choice> next;
  for (const uint64_t end = step + 5; !next && step < end; ++step) {
    next = policy->Next(measured(step, 1e7, 1e12));
  }
  ASSERT_TRUE(next);
  EXPECT_LT(next->up[0].bytes, now->up[0].bytes);
  EXPECT_LE(next->down.bytes, now->down.bytes);
  // The downlink's bytes grow later, one choice at a time.
  for (const uint64_t end = step + 200; step < end; ++step) {
    now = std::exchange(next, std::nullopt);
    for (; !next && step < end; ++step) next = policy->Next(measured(step, 1e7, 1e12));
    if (!next) break;
    size_t between = 0;
    for (const CodecCpuTime& cost : Costs()) {
      const double bytes = SpendEvenly(job.tensors, cost.spec)->coding.bytes;
      between += bytes > now->down.bytes && bytes < next->down.bytes;
    }
    EXPECT_EQ(between, 0u) << next->reason;
  }
}

TEST(Auto, SaysWhy) {
  const SimulatedJob job = JobOnAuto(StepTrace(), 1);
  const SimulatedRun run = Simulate(job, *MakeAutoPolicy(OptionsOfAuto(job)));
  EXPECT_GT(run.plans.size(), 2u);
  for (const PolicyDecision& plan : run.plans) {
    EXPECT_FALSE(plan.choice.reason.empty());
    GTEST_LOG_(INFO) << "plan " << plan.id << " from step " << plan.effective_step << ": "
                     << plan.choice.reason;
  }
}

TEST(Auto, RefusesWhatCannotBe) {
  const SimulatedJob job = JobOnAuto(StepTrace(), 1);
  AutoOptions options = OptionsOfAuto(job);
  options.choices.clear();
  EXPECT_FALSE(MakeAutoPolicy(options).ok());
  options = OptionsOfAuto(job);
  options.choices[1].encode_s = -1;
  EXPECT_FALSE(MakeAutoPolicy(options).ok());
  options = OptionsOfAuto(job);
  options.choices[1].spec = *compress::ParseCodecSpec("lsh");
  EXPECT_FALSE(MakeAutoPolicy(options).ok());
  options = OptionsOfAuto(job);
  options.overlap = 2;
  EXPECT_FALSE(MakeAutoPolicy(options).ok());
}

}  // namespace
}  // namespace sluice::server
