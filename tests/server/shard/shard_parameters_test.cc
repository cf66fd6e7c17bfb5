// SPDX-License-Identifier: Apache-2.0
#include "server/shard/shard_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numeric>
#include <optional>

#include "base/random.h"
#include "compress/codec_spec.h"
#include "compress/compressor.h"
#include "compress/frame.h"

namespace sluice::server {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint32_t kReplicaCount = 700;

UpdateRule Rule(job::OptimizerSpec spec) {
  absl::StatusOr<UpdateRule> rule = UpdateRule::Create(spec);
  EXPECT_TRUE(rule.ok()) << rule.status();
  return *std::move(rule);
}

job::OptimizerSpec AdamW() { return {.name = "adamw", .lr = 0.01, .weight_decay = 0.1}; }

std::vector<float> Noise(uint64_t step) {
  CounterRandom random(7, step, 0);
  std::vector<float> values(kReplicaCount);
  for (float& value : values) value = static_cast<float>(random.Next() % 2001) / 1000.0f - 1.0f;
  return values;
}

// Returns the parameters of one chunk after each step, with the same gradients in every run and a
// changing momentum. With `restore`, saves and restores the chunk before each step.
std::vector<std::vector<float>> Parameters(const job::OptimizerSpec& spec, bool restore) {
  const uint32_t counts[] = {kReplicaCount};
  auto replica = std::make_unique<ShardParameters>(Rule(spec), counts);
  replica->Set(0, Noise(0));
  std::vector<std::vector<float>> seen;
  for (const std::optional<float> momentum :
       {std::optional<float>(), std::optional(0.5f), std::optional(0.5f), std::optional(0.0f),
        std::optional<float>(), std::optional(0.7f)}) {
    if (restore) {
      auto other = std::make_unique<ShardParameters>(Rule(spec), counts);
      EXPECT_TRUE(other->Restore(0, replica->Save(0)).ok());
      replica = std::move(other);
    }
    replica->SetMomentum(momentum);
    replica->Update(0, spec.lr, Noise(seen.size() + 1));
    const absl::Span<const float> now = replica->parameters(0);
    seen.emplace_back(now.begin(), now.end());
  }
  return seen;
}

TEST(ShardParameters, ChangesMomentumWithoutAJump) {
  const job::OptimizerSpec spec{.name = "sgd", .lr = 0.1, .momentum = 0.9};
  const std::vector<std::vector<float>> got = Parameters(spec, /*restore=*/false);
  const double momenta[] = {0.9, 0.5, 0.5, 0, 0.9, 0.7};
  for (size_t i = 0; i < kReplicaCount; ++i) {
    double x = Noise(0)[i], moved = 0;
    for (size_t step = 0; step < got.size(); ++step) {
      const double m = momenta[step];
      moved = m * moved + spec.lr * (1 - m) / 0.1 * double{Noise(step + 1)[i]};
      x -= moved;
      ASSERT_NEAR(got[step][i], x, 1e-4) << step;
    }
  }
}

TEST(ShardParameters, GoesOnWithTheMomentumThatItWasSavedWith) {
  for (const job::OptimizerSpec& spec :
       {job::OptimizerSpec{.name = "sgd", .lr = 0.1, .momentum = 0.9},
        job::OptimizerSpec{.name = "sgd", .lr = 0.1, .momentum = 0.9, .nesterov = true},
        job::OptimizerSpec{.name = "adam", .lr = 0.1},
        job::OptimizerSpec{.name = "adamw", .lr = 0.1},
        job::OptimizerSpec{.name = "rmsprop", .lr = 0.1, .momentum = 0.9},
        job::OptimizerSpec{.name = "rmsprop", .lr = 0.1},
        job::OptimizerSpec{.name = "sgd", .lr = 0.1}}) {
    EXPECT_EQ(Parameters(spec, true), Parameters(spec, false)) << spec.name;
  }
}

TEST(ShardParameters, RefusesAMomentumThatIsNone) {
  const uint32_t counts[] = {kReplicaCount};
  ShardParameters replica(Rule({.name = "sgd", .lr = 0.1, .momentum = 0.9}), counts);
  replica.Set(0, Noise(0));
  compress::SavedState saved = replica.Save(0);
  for (const float momentum : {1.0f, -0.1f, 17.0f}) {
    saved["momentum"] = {momentum};
    EXPECT_THAT(replica.Restore(0, saved).message(), HasSubstr("momentum of"));
  }
}

// A shard's downlink. It keeps no residual, because ShardParameters already tracks what is owed.
class Publisher {
 public:
  explicit Publisher(absl::string_view codec) : compressor_(MakeCompressor(codec)) {}

  std::vector<std::byte> Publish(uint64_t step, ShardParameters* replica) {
    std::vector<std::byte> frame;
    EXPECT_TRUE(compressor_.Encode(0, step, replica->Owed(0), &frame).ok());
    compressor_.EndStep(step);
    replica->Publish(0, frame);
    return frame;
  }

 private:
  static compress::Compressor MakeCompressor(absl::string_view codec) {
    absl::StatusOr<compress::CodecSpec> spec = compress::ParseCodecSpec(codec);
    EXPECT_TRUE(spec.ok()) << spec.status();
    spec->compensator = {.id = compress::CompensatorId::kNone};
    const std::vector<compress::ChunkConfig> chunks = {{.count = kReplicaCount, .spec = *spec}};
    return compress::Compressor(chunks, {.seed = 3, .sender = compress::Compressor::kShardSender});
  }

  compress::Compressor compressor_;
};

TEST(ShardParameters, UpdatesAsItsRuleDoes) {
  ShardParameters replica(Rule({.name = "sgd", .lr = 1, .momentum = 0.5}), {2u});
  replica.Set(0, {1.0f, 2.0f});
  EXPECT_THAT(replica.Owed(0), ElementsAre(0.0f, 0.0f));
  replica.Update(0, 0.5, {1.0f, -1.0f});
  replica.Update(0, 0.5, {0.0f, 2.0f});
  // The momentum is 1 and then 0.5 for the first parameter, and -1 and then 1.5 for the second.
  EXPECT_THAT(replica.parameters(0), ElementsAre(0.25f, 1.75f));
  EXPECT_THAT(replica.published(0), ElementsAre(1.0f, 2.0f));
  EXPECT_THAT(replica.Owed(0), ElementsAre(-0.75f, -0.25f));
  EXPECT_EQ(replica.updates(0), 2u);
  EXPECT_DOUBLE_EQ(replica.OwedEnergy(), 0.5625 + 0.0625);
}

TEST(ShardParameters, IsNothingBeforeItIsSet) {
  const ShardParameters replica(Rule(AdamW()), {4u, 0u});
  EXPECT_THAT(replica.published(0), IsEmpty());
  EXPECT_THAT(replica.Save(0), IsEmpty());
}

// Even if publications omit most of an update, workers must hold the published values bit for bit.
// When updates stop, the published values must converge to the parameters.
TEST(ShardParameters, WhatIsLeftOutOfOnePublicationGoesWithTheNext) {
  for (const absl::string_view codec : {"none", "fp16", "int8", "topk:10%", "topk:10%+int4"}) {
    ShardParameters replica(Rule(AdamW()), {kReplicaCount});
    Publisher publisher(codec);
    replica.Set(0, Noise(0));
    std::vector<float> worker = Noise(0);
    for (uint64_t step = 1; step <= 300; ++step) {
      if (step <= 100) replica.Update(0, 0.01, Noise(step));
      const std::vector<std::byte> frame = publisher.Publish(step, &replica);
      ASSERT_TRUE(compress::DecodeAddFrames(frame, absl::MakeSpan(worker)).ok());
      ASSERT_THAT(worker, ElementsAreArray(replica.published(0))) << codec << ", step " << step;
    }
    EXPECT_LT(replica.OwedEnergy(), 1e-6) << codec;
  }
}

TEST(ShardParameters, GoesOnFromWhatWasSaved) {
  ShardParameters replica(Rule(AdamW()), {kReplicaCount});
  replica.Set(0, Noise(0));
  for (uint64_t step = 1; step <= 5; ++step) replica.Update(0, 0.01, Noise(step));
  ShardParameters restored(Rule(AdamW()), {kReplicaCount});
  ASSERT_TRUE(restored.Restore(0, replica.Save(0)).ok());
  EXPECT_EQ(restored.updates(0), 5u);
  for (ShardParameters* one : {&replica, &restored}) one->Update(0, 0.01, Noise(6));
  EXPECT_THAT(restored.parameters(0), ElementsAreArray(replica.parameters(0)));
  EXPECT_THAT(restored.published(0), ElementsAreArray(replica.published(0)));
  EXPECT_EQ(restored.Save(0), replica.Save(0));
}

TEST(ShardParameters, RefusesWhatIsNotItsOwn) {
  ShardParameters replica(Rule(AdamW()), {kReplicaCount});
  replica.Set(0, Noise(0));
  const compress::SavedState saved = replica.Save(0);
  const auto refusal = [&](const ShardParameters& like, compress::SavedState changed) {
    ShardParameters other = like;
    const absl::Status status = other.Restore(0, changed);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(other.Save(0), like.Save(0));
    return std::string(status.message());
  };
  const ShardParameters same(Rule(AdamW()), {kReplicaCount});
  EXPECT_THAT(refusal(ShardParameters(Rule({.name = "sgd"}), {kReplicaCount}), saved),
              HasSubstr("slot-0"));
  EXPECT_THAT(refusal(ShardParameters(Rule(AdamW()), {kReplicaCount - 1}), saved),
              HasSubstr("699"));
  EXPECT_THAT(refusal(same, {}), HasSubstr("parameters"));
  compress::SavedState changed = saved;
  changed.erase("slot-1");
  EXPECT_THAT(refusal(same, changed), HasSubstr("slot-1"));
  changed = saved;
  changed["updates"] = {0.5f, 0.0f};
  EXPECT_THAT(refusal(same, changed), HasSubstr("updates"));
  changed = saved;
  changed["published"][3] = std::nanf("");
  EXPECT_THAT(refusal(same, changed), HasSubstr("not finite"));
}

}  // namespace
}  // namespace sluice::server
