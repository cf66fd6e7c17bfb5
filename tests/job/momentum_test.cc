// SPDX-License-Identifier: Apache-2.0
#include "job/momentum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "job/job_spec.h"

namespace sluice::job {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

compress::CodecSpec Spec(const char* text) { return *compress::ParseCodecSpec(text); }

constexpr MomentumRange kUsual{.base = 0.9};

TEST(Momentum, StaysWhereNothingComesLate) {
  for (const char* codec :
       {"none", "fp16", "bf16", "int8", "int4", "int2", "fp8", "natural", "qsgd:2", "terngrad",
        "eden:1", "intsum:2", "powersgd:1", "signsgd", "topk:50%", "topk:100%+int4",
        // The values that these codecs omit are never sent, or are right on average.
        "topk:1%/noef", "randomk:1%,unbiased", "int8:sr/diana"}) {
    EXPECT_EQ(MomentumWith(Spec(codec), kUsual), 0.9) << codec;
  }
}

TEST(Momentum, IsLoweredWhereValuesWait) {
  for (const char* codec :
       {"ternary:0.5", "sign", "onebit", "topk:10%", "topk:1%+int4", "topk_exact:5%", "randomk:1%",
        "blocktopk:64", "threshold:1e-2", "countsketch:10x", "topk:1%/ef21"}) {
    EXPECT_EQ(MomentumWith(Spec(codec), kUsual), 0.5) << codec;
    EXPECT_EQ(MomentumWith(Spec(codec), {.base = 0.3}), 0.3) << codec;
    EXPECT_EQ(MomentumWith(Spec(codec), {.base = 0.9, .coded = 0}), 0) << codec;
  }
}

TEST(Momentum, IsLogLinearInBetween) {
  compress::CodecSpec codec = Spec("topk:10%");
  codec.level = std::sqrt(0.10 * 0.50);
  EXPECT_NEAR(MomentumWith(codec, kUsual), 0.7, 1e-9);
  double before = 0.5;
  for (codec.level = 0.1; codec.level < 0.5; codec.level += 0.02) {
    EXPECT_GE(MomentumWith(codec, kUsual), before);
    before = MomentumWith(codec, kUsual);
  }
}

// The momentum must be right at the one measured staleness and fall from there to 0.
TEST(Momentum, FallsWithStaleness) {
  EXPECT_NEAR(MomentumAtStaleness(0), 0.9, 1e-12);
  EXPECT_NEAR(MomentumAtStaleness(4.5), 0.5, 1e-12);
  EXPECT_EQ(MomentumAtStaleness(100), 0);
}

JobSpec Job(const char* optimizer, double momentum, const char* uplink) {
  JobSpec spec;
  spec.workers = 4;
  spec.optimizer = {.name = optimizer, .lr = 0.1, .momentum = momentum};
  spec.exchange.compression.uplink = Spec(uplink);
  return spec;
}

const protocol::TensorTable kTable = {{.name = "weight", .shape = {1000, 1000}, .strides = {}},
                                      {.name = "bias", .shape = {2000}, .strides = {}}};

TEST(JobMomentum, FollowsFromTheCodecsOfLargeTensors) {
  EXPECT_EQ(JobMomentum(Job("sgd", 0.9, "fp16"), kTable), 0.9);
  EXPECT_EQ(JobMomentum(Job("sgd", 0.9, "topk:1%"), kTable), 0.5);
  EXPECT_EQ(JobMomentum(Job("adam", 0, "topk:1%"), kTable), 0.5)
      << "the limit applies to Adam's beta1";
  EXPECT_EQ(JobMomentum(Job("sgd", 0, "topk:1%"), kTable), 0);
  JobSpec spec = Job("sgd", 0.9, "fp16");
  spec.exchange.compression.overrides = {{"bias", Spec("topk:1%"), {}}};
  EXPECT_EQ(JobMomentum(spec, kTable), 0.9) << "a small tensor's codec does not count";
  spec.exchange.compression.overrides = {{"weight", {}, Spec("ternary:0.5")}};
  EXPECT_EQ(JobMomentum(spec, kTable), 0.5);
  spec.exchange.compression.overrides = {};
  spec.relays = {.workers = {2, 2}, .uplink = Spec("topk:1%")};
  EXPECT_EQ(JobMomentum(spec, kTable), 0.5) << "the uplink to the relays is sparse";
}

TEST(JobMomentum, IsTheJobFilesWhereItSaysSo) {
  JobSpec spec = Job("sgd", 0.9, "topk:1%");
  spec.optimizer.delayed_momentum = 0.9;
  EXPECT_EQ(JobMomentum(spec, kTable), 0.9);
  spec.optimizer.delayed_momentum = 0;
  EXPECT_EQ(JobMomentum(spec, kTable), 0);
  spec.exchange.mode = job::Mode::kAsync;
  spec.exchange.compression.uplink = Spec("none");
  spec.optimizer.delayed_momentum = 0.8;
  EXPECT_EQ(JobMomentum(spec, kTable), 0.8)
      << "a momentum from the job file is not adjusted for staleness";
}

TEST(JobMomentum, WorkersThatDoNotWaitDelayEachOther) {
  JobSpec spec = Job("sgd", 0.9, "none");
  spec.exchange.mode = job::Mode::kAsync;
  EXPECT_NEAR(JobMomentum(spec, kTable), 1 - 0.1 * (1 + 3 / 1.125), 1e-12);
  spec.workers = 1;
  EXPECT_EQ(JobMomentum(spec, kTable), 0.9);
  spec.workers = 4;
  spec.optimizer.momentum = 0.5;
  EXPECT_EQ(JobMomentum(spec, kTable), 0.5) << "the momentum is already low enough";
  spec.exchange.mode = job::Mode::kLocalSgd;
  spec.optimizer.momentum = 0.9;
  spec.exchange.compression.uplink = Spec("topk:1%");
  EXPECT_EQ(JobMomentum(spec, kTable), 0.9) << "local steps are not delayed";
}

// The workers of a rack take their steps together, so only relays delay each other.
TEST(JobMomentum, RelaysThatDoNotWaitDelayEachOther) {
  JobSpec job = Job("sgd", 0.9, "int8");
  job.workers = 10;
  job.exchange.mode = Mode::kAsync;
  const double of_workers = MomentumRangeOf(job).most;
  job.relays = {.workers = {5, 5}, .uplink = Spec("int8")};
  EXPECT_EQ(MomentumRangeOf(job).most, MomentumAtStaleness(1));
  EXPECT_GT(MomentumRangeOf(job).most, of_workers);
}

// No plan changes the codec inside racks.
TEST(JobMomentum, TheCodecInsideRacksDelaysUnderEveryPlan) {
  JobSpec job = Job("sgd", 0.9, "int8");
  job.relays = {.workers = {2, 2}, .uplink = Spec("topk:1%")};
  EXPECT_EQ(MomentumRangeOf(job).most, 1);
  job.exchange.control.policy = PolicyKind::kAuto;
  EXPECT_EQ(MomentumRangeOf(job).most, 0.5);
  protocol::CompressionPlan plan{.id = 1, .effective_step = 1};
  EXPECT_EQ(JobMomentum(job, {}, &plan), 0.5);
  job.relays.uplink = Spec("int8");
  EXPECT_EQ(JobMomentum(job, {}, &plan), 0.9);
}

TEST(JobMomentum, IsThePlansWhereOneHolds) {
  const JobSpec spec = Job("sgd", 0.9, "topk:1%");
  protocol::CompressionPlan plan{.id = 1, .effective_step = 1};
  EXPECT_EQ(JobMomentum(spec, kTable, &plan), 0.9);
  plan.momentum = 0.25f;
  EXPECT_EQ(JobMomentum(spec, kTable, &plan), 0.25);
}

TEST(MomentumNote, NamesAllThatDelays) {
  JobSpec spec = Job("sgd", 0.9, "int8");
  spec.exchange.compression.downlink = Spec("ternary:0.5");
  spec.exchange.compression.overrides = {{"fc*", Spec("topk:30%"), {}}};
  EXPECT_THAT(MomentumNote(spec), AllOf(HasSubstr("ternary:0.5 down and topk:30% up"),
                                        HasSubstr("up in fc* delay gradients")));
}

TEST(ShardMomentum, IsOfTheJobsOwnOptimizerAlone) {
  JobSpec spec = Job("sgd", 0.9, "topk:1%");
  EXPECT_EQ(ShardMomentum(spec, kTable), std::nullopt);
  spec.optimizer.location = job::UpdateLocation::kShards;
  EXPECT_EQ(ShardMomentum(spec, kTable), 0.5);
  spec.exchange.mode = job::Mode::kLocalSgd;
  EXPECT_EQ(ShardMomentum(spec, kTable), std::nullopt);
}

// With a constant gradient, a change of momentum must not change the length of this step or of
// later steps.
TEST(BufferFactor, ChangesMomentumWithoutAJump) {
  const OptimizerSpec sgd{.name = "sgd", .lr = 0.1, .momentum = 0.9};
  double momentum = 0.9;
  double buffer = 1 / (1 - momentum);
  const double length = sgd.lr * buffer;
  for (const double now : {0.5, 0.0, 0.7, 0.9}) {
    buffer *= BufferFactor(sgd, 100, momentum, now);
    momentum = now;
    for (int step = 0; step < 5; ++step) {
      buffer = momentum * buffer + 1;
      EXPECT_NEAR(sgd.lr * RateFactor(sgd, momentum) * buffer, length, 1e-9);
    }
  }
}

// Adam's buffer is a running average, which bias correction normalizes from the first step on. A
// change of beta1 must keep the corrected average at 1.
TEST(BufferFactor, OfAdamKeepsTheAverageWhole) {
  const OptimizerSpec adam{.name = "adamw", .lr = 0.1};
  EXPECT_EQ(RateFactor(adam, 0.5), 1);
  double beta1 = 0.9;
  double buffer = 0;
  int updates = 0;
  for (const double now : {0.9, 0.5, 0.0, 0.7, 0.9}) {
    buffer *= BufferFactor(adam, static_cast<uint64_t>(updates), beta1, now);
    beta1 = now;
    for (int step = 0; step < 3; ++step) {
      buffer = beta1 * buffer + (1 - beta1);
      EXPECT_NEAR(buffer / (1 - std::pow(beta1, ++updates)), 1, 1e-12) << updates;
    }
  }
}

TEST(MomentumNote, SaysWhatBecomesOfTheMomentumAndWhy) {
  // One whole note as an example.
  EXPECT_EQ(MomentumNote(Job("sgd", 0.9, "topk:1%+int4")),
            "momentum 0.5 (of 0.9): topk:1%+int4 up delays gradients; lr x 5");
  EXPECT_THAT(
      MomentumNote(Job("adam", 0, "ternary:0.5")),
      AllOf(HasSubstr("beta1 0.5 (of 0.9)"), HasSubstr("ternary:0.5 up"), Not(HasSubstr("lr x"))));
  EXPECT_EQ(MomentumNote(Job("sgd", 0.5, "topk:1%")), "");
  EXPECT_EQ(MomentumNote(Job("sgd", 0.9, "int8")), "");
  JobSpec spec = Job("sgd", 0.9, "topk:1%");
  spec.exchange.control.policy = job::PolicyKind::kSchedule;
  EXPECT_EQ(MomentumNote(spec), "momentum 0.9 to 0.5, as plans say");
  spec.exchange.mode = job::Mode::kAsync;
  EXPECT_EQ(MomentumNote(spec), "momentum 0.633 to 0.5, as plans say");
  spec.workers = 10;
  EXPECT_EQ(MomentumNote(spec), "momentum 0.1, as plans say");
  spec = Job("sgd", 0.9, "topk:1%");
  spec.exchange.mode = job::Mode::kAsync;
  spec.workers = 10;
  EXPECT_THAT(MomentumNote(spec),
              AllOf(HasSubstr("momentum 0.1 (of 0.9)"), HasSubstr("mode async with 10 workers"),
                    HasSubstr("lr x 9")));
}

}  // namespace
}  // namespace sluice::job
