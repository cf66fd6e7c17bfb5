// SPDX-License-Identifier: Apache-2.0
// Tests EF21 and DIANA: the memories of senders and receiver must stay equal even if frames are
// skipped or refused, and the published values must match the definitions.
#include "compress/feedback/difference.h"

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/one_chunk.h"
#include "tests/compress/short_runs.h"

namespace sluice::compress {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr size_t kDifferenceCount = 1536;

std::vector<CodecSpec> SpecsWithMemory() {
  std::vector<CodecSpec> specs;
  for (const CodecSpec& spec : CompensatedSpecs()) {
    if (HasMemory(spec.compensator.id)) specs.push_back(spec);
  }
  for (const char* text : {"qsgd:4/diana:0.3", "natural/diana:1", "eden:1/diana:0.05"}) {
    specs.push_back(*ParseCodecSpec(text));
  }
  return specs;
}

std::vector<float> MemoryOf(Compressor* sender) {
  return sender->Save().chunks[0].state.at("memory");
}
std::vector<float> MemoryOf(Aggregator* receiver) {
  return SaveFields(receiver->State()).at("memory");
}

double DifferenceEnergy(absl::Span<const float> values) {
  double energy = 0;
  for (const float x : values) energy += double{x} * x;
  return energy;
}

class WithMemory : public ::testing::TestWithParam<CodecSpec> {
 protected:
  bool Ef21() const { return GetParam().compensator.id == CompensatorId::kEf21; }
};

// Implements the papers' algorithms in fp64, with one memory per sender at the receiver.
class PlainReceiver {
 public:
  PlainReceiver(const CodecSpec& spec, uint32_t senders)
      : ef21_(spec.compensator.id == CompensatorId::kEf21),
        step_size_(MemoryStepSize(spec)),
        memories_(senders, std::vector<double>(kDifferenceCount)) {}

  std::vector<double> Step(const std::vector<std::vector<std::byte>>& frames,
                           const std::vector<uint32_t>& refused) {
    std::vector<double> before = Mean(), differences(kDifferenceCount);
    double contributors = 0;
    for (uint32_t rank = 0; rank < memories_.size(); ++rank) {
      if (frames[rank].empty() || std::count(refused.begin(), refused.end(), rank) > 0) continue;
      const std::vector<float> decoded = Decode(frames[rank], kDifferenceCount);
      for (size_t i = 0; i < kDifferenceCount; ++i) {
        memories_[rank][i] += step_size_ * decoded[i];
        differences[i] += decoded[i];
      }
      ++contributors;
    }
    if (ef21_) return Mean();
    for (size_t i = 0; i < kDifferenceCount; ++i) before[i] += differences[i] / contributors;
    return before;
  }

  std::vector<double> Mean() const {
    std::vector<double> mean(kDifferenceCount);
    for (const std::vector<double>& memory : memories_) {
      for (size_t i = 0; i < kDifferenceCount; ++i) {
        mean[i] += memory[i] / static_cast<double>(memories_.size());
      }
    }
    return mean;
  }

 private:
  const bool ef21_;
  const double step_size_;
  std::vector<std::vector<double>> memories_;
};

void ExpectNear(absl::Span<const float> found, absl::Span<const double> wanted, double off,
                const std::string& what) {
  double worst = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    worst = std::max(worst, std::abs(found[i] - wanted[i]));
  }
  EXPECT_LE(worst, off) << what;
}

// Tests the conservation law over steps in which senders are absent and frames are refused.
TEST_P(WithMemory, ReceiverHoldsTheMeanOfAllSendersMemories) {
  for (const uint32_t senders : {1u, 2u, 5u}) {
    OneChunk chunk(GetParam(), kDifferenceCount, senders);
    PlainReceiver plain(GetParam(), senders);
    double largest = 0;
    for (uint64_t step = 0; step < 40; ++step) {
      OneChunk::Gradients gradients;
      for (uint32_t rank = 0; rank < senders; ++rank) {
        gradients.push_back(HeavyTailed(kDifferenceCount, 100 * rank + step % 7));
        for (const float x : gradients.back()) largest = std::max(largest, std::abs(double{x}));
      }
      const auto odd = static_cast<uint32_t>(step % senders);
      std::vector<uint32_t> refused;
      if (senders > 1 && step % 3 == 1) gradients[odd].clear();
      if (senders > 2 && step % 4 == 2) refused.push_back((odd + 1) % senders);
      const std::vector<float> mean = chunk.Step(gradients, refused);
      // Each step rounds once or twice at the sender and at the receiver.
      const double off = largest * 1e-6;
      const std::string where = absl::StrCat(senders, " senders, step ", step);
      ExpectNear(mean, plain.Step(chunk.frames(), refused), off, "published, " + where);
      std::vector<double> memories(kDifferenceCount);
      for (uint32_t rank = 0; rank < senders; ++rank) {
        const std::vector<float> memory = MemoryOf(&chunk.sender(rank));
        for (size_t i = 0; i < kDifferenceCount; ++i) memories[i] += double{memory[i]} / senders;
      }
      ExpectNear(MemoryOf(&chunk.aggregator()), memories, off, "memories, " + where);
      ExpectNear(MemoryOf(&chunk.aggregator()), plain.Mean(), off, "memory, " + where);
    }
  }
}

// If gradients are constant, memories must converge to them.
TEST_P(WithMemory, MemoriesSettleOnGradientsThatStay) {
  const double density = MakeCodec(GetParam())->density();
  const bool slow = (density > 0 && density < 0.02) ||
                    (GetParam().codec == CodecId::kBlockTopK && GetParam().level > 64) ||
                    (GetParam().codec == CodecId::kRandomK && GetParam().level < 0.02);
  OneChunk chunk(GetParam(), kDifferenceCount, 2);
  const OneChunk::Gradients gradients = {Gaussian(kDifferenceCount, 1),
                                         Gaussian(kDifferenceCount, 2)};
  const int steps = kShortRuns ? 40 : slow ? 8000 : 800;
  for (int step = 0; step < steps; ++step) chunk.Step(gradients);
  if (kShortRuns) return;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    const std::vector<float> memory = MemoryOf(&chunk.sender(rank));
    double off = 0;
    for (size_t i = 0; i < kDifferenceCount; ++i) {
      off += std::pow(double{memory[i]} - gradients[rank][i], 2);
    }
    EXPECT_LE(off, (slow ? 0.03 : 1e-4) * DifferenceEnergy(gradients[rank]));
  }
}

// After ReturnFrame, the sender's memory must be the same as before the refused frame.
TEST_P(WithMemory, RefusedFramesAreTakenBack) {
  OneChunk chunk(GetParam(), kDifferenceCount, 1);
  for (uint64_t step = 0; step < 3; ++step) chunk.Step({HeavyTailed(kDifferenceCount, step)});
  const std::vector<float> before = MemoryOf(&chunk.sender(0));
  std::vector<std::byte> frame;
  ASSERT_TRUE(chunk.sender(0).Encode(0, 3, HeavyTailed(kDifferenceCount, 3), &frame).ok());
  chunk.sender(0).EndStep(3);
  const bool sent =
      // At 0.1 %, not every step sends an element.
      DifferenceEnergy(Decode(frame, kDifferenceCount)) > 0;
  EXPECT_EQ(MemoryOf(&chunk.sender(0)) != before, sent);
  std::vector<std::byte> cut = frame;
  cut.pop_back();
  const std::vector<float> moved = MemoryOf(&chunk.sender(0));
  EXPECT_FALSE(chunk.sender(0).ReturnFrame(0, cut).ok());
  EXPECT_EQ(MemoryOf(&chunk.sender(0)), moved);
  ASSERT_TRUE(chunk.sender(0).ReturnFrame(0, frame).ok());
  const std::vector<double> wanted(before.begin(), before.end());
  ExpectNear(MemoryOf(&chunk.sender(0)), wanted, 1e-6 * std::sqrt(DifferenceEnergy(moved)),
             "taken back");
}

INSTANTIATE_TEST_SUITE_P(Specs, WithMemory, ::testing::ValuesIn(SpecsWithMemory()),
                         CompensatedName);

class Diana : public ::testing::TestWithParam<CodecSpec> {};

std::vector<CodecSpec> DianaSpecs() {
  std::vector<CodecSpec> specs;
  for (const CodecSpec& spec : SpecsWithMemory()) {
    if (spec.compensator.id == CompensatorId::kDiana) specs.push_back(spec);
  }
  return specs;
}

// Runs continue from the same state with N different seeds. The squared error of their mean must be
// an N-th of a single step's squared error, which shows that the published values are unbiased
// whatever the memories are. Errors of senders are independent unless the senders draw the same
// numbers.
TEST_P(Diana, WhatIsPublishedIsUnbiasedWhateverTheMemories) {
  if (TraitsOf(GetParam().codec, GetParam().options).clips)
    GTEST_SKIP() << "clipped values are sent in a later step";
  constexpr int kSeeds = kShortRuns ? 4 : 300;
  OneChunk run(GetParam(), kDifferenceCount, 2);
  for (uint64_t step = 0; step < 3; ++step) {
    run.Step({Gaussian(kDifferenceCount, step), Gaussian(kDifferenceCount, 50 + step)});
  }
  const OneChunk::Gradients gradients = {Gaussian(kDifferenceCount, 3),
                                         Gaussian(kDifferenceCount, 4)};
  std::vector<double> sum(kDifferenceCount);
  double variance = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    OneChunk draw(GetParam(), kDifferenceCount, 2, 1000 + seed);
    ASSERT_TRUE(draw.GoOnFrom(run).ok());
    const std::vector<float> mean = draw.Step(gradients);
    for (size_t i = 0; i < kDifferenceCount; ++i) {
      const double error = mean[i] - (double{gradients[0][i]} + gradients[1][i]) / 2;
      sum[i] += error;
      variance += error * error / kSeeds;
    }
  }
  double of_mean = 0;
  for (const double x : sum) of_mean += x * x / kSeeds;
  ASSERT_GT(variance, 0);
  if (kShortRuns) return;
  EXPECT_NEAR(of_mean / variance, 1, 0.4);
}

INSTANTIATE_TEST_SUITE_P(Specs, Diana, ::testing::ValuesIn(DianaSpecs()), CompensatedName);

// Returns |error|^2 / |x|^2, averaged over some draws.
double VarianceOf(const LoneCodec& codec, const std::vector<float>& x) {
  constexpr uint64_t kDraws = kShortRuns ? 2 : 60;
  double error = 0;
  for (uint64_t draw = 1; draw <= kDraws; ++draw) {
    const std::vector<float> decoded =
        codec.Decoded(codec.Encoded(x, {.own = draw, .shared = draw + 1000}), x.size());
    for (size_t i = 0; i < x.size(); ++i) error += std::pow(double{decoded[i]} - x[i], 2) / kDraws;
  }
  return error / DifferenceEnergy(x);
}

TEST(VarianceBound, IsReachedAndNeverExceeded) {
  for (const CodecSpec& spec : DianaSpecs()) {
    CodecSpec bare = spec;
    bare.compensator = {.id = CompensatorId::kNone};
    const LoneCodec codec(ToString(bare));
    const double bound = VarianceBound(spec);
    double most = 0;
    std::vector<std::vector<float>> inputs = {Gaussian(4096, 1), HeavyTailed(4096, 2),
                                              std::vector<float>(4096, 4.0f / 3)};
    // Each block has one large element. All others have the magnitude at which the quantization
    // error is largest.
    for (const size_t block : {256u, 512u}) {
      for (const double share : {0.5, 0.25, 0.0625, 1 / 14.0, 1 / 22.6, 0.0039, 1.0009765}) {
        std::vector<float> x(4096, static_cast<float>(share));
        for (size_t i = 0; i < x.size(); i += block) x[i] = 1;
        inputs.push_back(x);
        for (size_t i = 1; i < x.size(); i += block) x[i] = -1;
        inputs.push_back(std::move(x));
      }
    }
    // Here the error is large because a stratum sends only one of its elements.
    inputs.emplace_back(4096, 1.0f);
    // The largest value is just small enough not to be clipped at 2.5 times the root mean square.
    // All others are about the mean.
    std::vector<float> uncut(4096, 1.0f);
    uncut[0] = 2.45f;
    inputs.push_back(std::move(uncut));
    for (const std::vector<float>& x : inputs) {
      const double rms = std::sqrt(DifferenceEnergy(x) / static_cast<double>(x.size()));
      if (codec.traits().clips && *std::max_element(x.begin(), x.end()) > 2.5 * rms) continue;
      most = std::max(most, VarianceOf(codec, x));
    }
    if (kShortRuns) continue;
    EXPECT_LE(most, bound * 1.2) << ToString(spec);
    EXPECT_GE(most, bound * 0.3) << ToString(spec);
  }
}

TEST(Diana, StepSizeFollowsTheVarianceUnlessItIsGiven) {
  EXPECT_FLOAT_EQ(MemoryStepSize(*ParseCodecSpec("qsgd:4/diana:0.25")), 0.25f);
  EXPECT_FLOAT_EQ(MemoryStepSize(*ParseCodecSpec("randomk:5%,unbiased/diana")), 0.05f);
  EXPECT_FLOAT_EQ(MemoryStepSize(*ParseCodecSpec("natural/diana")), 8 / 9.0f);
  EXPECT_FLOAT_EQ(MemoryStepSize(*ParseCodecSpec("natural/ef21")), 1);
}

// Some codecs can minimise either the error or the bias. They must minimise the quantity that the
// compensator needs.
TEST(Differences, CodecsAreAskedForWhatTheCompensatorNeeds) {
  const std::vector<float> x = Gaussian(kDifferenceCount, 5);
  const auto first_frame = [&](const char* text) {
    OneChunk chunk(*ParseCodecSpec(text), kDifferenceCount, 1);
    chunk.Step({x});
    return chunk.frames()[0];
  };
  EXPECT_EQ(first_frame("eden:2/ef21"), first_frame("eden:2/ef"));
  EXPECT_EQ(first_frame("eden:2/diana"), first_frame("eden:2/noef"));
  EXPECT_NE(first_frame("eden:2/ef21"), first_frame("eden:2/diana"));
}

// Thresholds apply to differences, so the density must be right even though gradients stay large.
TEST(Ef21, ThresholdsFollowTheDifferences) {
  constexpr size_t kMany = 20000;
  const ChunkConfig config{.count = kMany, .spec = *ParseCodecSpec("topk:2%/ef21")};
  Compressor sender(absl::MakeConstSpan(&config, 1), {});
  const std::vector<float> constant = Gaussian(kMany, 6);
  double kept = 0;
  constexpr int kSteps = 100;
  for (uint64_t step = 1; step <= kSteps; ++step) {
    std::vector<float> gradient = Gaussian(kMany, 100 + step, 1e-4f);
    for (size_t i = 0; i < kMany; ++i) gradient[i] += constant[i];
    std::vector<std::byte> frame;
    ASSERT_TRUE(sender.Encode(0, step, gradient, &frame).ok());
    sender.EndStep(step);
    const std::vector<float> sent = Decode(frame, kMany);
    kept += static_cast<double>(kMany) -
            static_cast<double>(std::count(sent.begin(), sent.end(), 0.0f));
  }
  EXPECT_NEAR(kept / kSteps / kMany, 0.02, 0.004);
}

// A shard that holds weights encodes the difference between the weights and the published values. A
// receiver that adds the frames must get the published values, bit for bit, and these must follow
// the weights.
TEST(Ef21, WeightsAreFollowedByWhatWasPublished) {
  for (const char* text : {"topk:5%+int4/ef21", "ternary:0.5/ef21", "int4/ef21"}) {
    const ChunkConfig config = {.count = kDifferenceCount, .spec = *ParseCodecSpec(text)};
    Compressor shard(absl::MakeConstSpan(&config, 1), {.seed = 3, .sender = 0});
    std::vector<float> weights = Gaussian(kDifferenceCount, 1, 0.1f), published(kDifferenceCount);
    const double begun = DifferenceEnergy(weights);
    double off = 0;
    for (uint64_t step = 0; step < 300; ++step) {
      const std::vector<float> update = Gaussian(kDifferenceCount, step + 2, 1e-4f);
      for (size_t i = 0; i < kDifferenceCount; ++i) weights[i] += update[i];
      std::vector<std::byte> frame;
      ASSERT_TRUE(shard.Encode(0, step, weights, &frame).ok());
      shard.EndStep(step);
      ASSERT_TRUE(DecodeAddFrame(frame, absl::MakeSpan(published)).ok());
      ASSERT_EQ(published, MemoryOf(&shard)) << text << " step " << step;
      off = 0;
      for (size_t i = 0; i < kDifferenceCount; ++i) {
        off += (double{weights[i]} - published[i]) * (double{weights[i]} - published[i]);
      }
    }
    EXPECT_LT(off, 1e-3 * begun) << text;
    EXPECT_GT(off, 0) << text;
  }
}

// A residual grows until the codec sends it, but a difference does not grow. Therefore the
// threshold must fall until all differences have been sent.
TEST(Ef21, NothingWaitsForEver) {
  constexpr size_t kMany = 4096;
  std::vector<float> equal(kMany, 0.25f), few(kMany, 0.0f);
  for (size_t i = 0; i < 5; ++i) few[700 * i] = i == 0 ? 1.0f : 1e-3f;
  for (const char* text : {"topk:0.1%/ef21", "topk:1%+int4/ef21", "topk:1%+sign/ef21"}) {
    for (const std::vector<float>& gradient : {equal, few}) {
      const ChunkConfig config{.count = kMany, .spec = *ParseCodecSpec(text)};
      Compressor sender(absl::MakeConstSpan(&config, 1), {});
      for (uint64_t step = 1; step <= 400; ++step) {
        std::vector<std::byte> frame;
        ASSERT_TRUE(sender.Encode(0, step, gradient, &frame).ok());
        sender.EndStep(step);
      }
      const std::vector<float> memory = MemoryOf(&sender);
      for (size_t i = 0; i < kMany; ++i) EXPECT_NEAR(memory[i], gradient[i], 1e-5) << text << i;
    }
  }
}

TEST(Differences, RefuseWhatCouldOverflowASum) {
  for (const char* text : {"int8/ef21", "qsgd:4/diana"}) {
    const std::unique_ptr<Compensator> sender = MakeDifference(*ParseCodecSpec(text), 2);
    EXPECT_TRUE(sender->Check({0x1p100f, 0}).ok());
    EXPECT_THAT(std::string(sender->Check({0, -0x1p101f}).message()),
                AllOf(HasSubstr("element 1 is -2.5353e+30"), HasSubstr("limit is 2^100")));
    EXPECT_THAT(std::string(sender->Check({0, std::nanf("")}).message()), HasSubstr("element 1"));
    EXPECT_THAT(std::string(sender->Check({1}).message()),
                HasSubstr("1 elements, the chunk has 2"));
    ASSERT_TRUE(RestoreFields({{"memory", {1, 0x1p111f}}}, sender->State()).ok());
    EXPECT_THAT(std::string(sender->Check({1, 1}).message()),
                HasSubstr("its memory is 2.59615e+33"));
  }
}

TEST(Differences, ManyLargeSendersOverflowNothing) {
  constexpr uint32_t kMany = 64;
  OneChunk chunk(*ParseCodecSpec("int8/ef21"), 4, kMany);
  for (int step = 0; step < 3; ++step) {
    const float sign = step % 2 == 0 ? 1.0f : -1.0f;
    const std::vector<float> mean =
        chunk.Step(OneChunk::Gradients(kMany, std::vector<float>(4, sign * 0x1p100f)));
    for (const float x : mean) EXPECT_NEAR(x / (sign * 0x1p100f), 1, 0.01);
  }
}

// Frames from hostile senders may cause a sum that is not finite. Only the mean of that step may be
// lost.
TEST(Differences, AReceiverOutlivesASumThatIsNotFinite) {
  const ChunkConfig config{.count = 2, .spec = *ParseCodecSpec("int8/ef21")};
  const std::unique_ptr<Aggregator> receiver = MakeAggregator(config, 2);
  const float most = std::numeric_limits<float>::max();
  const auto step = [&](const std::vector<float>& values) {
    std::vector<std::byte> frame;
    Check(EncodeFrame(*CodecFor("none"), {.gradient = values}, &frame).ok(), "values are finite");
    std::vector<float> sum(2);
    for (uint32_t rank = 0; rank < 2; ++rank) {
      EXPECT_TRUE(receiver->Validate(rank, frame).ok());
      receiver->Add({{rank, frame}}, absl::MakeSpan(sum));
    }
    receiver->Close(2, absl::MakeSpan(sum));
    return sum;
  };
  EXPECT_EQ(step({1, 2}), (std::vector<float>{1, 2}));
  EXPECT_TRUE(std::isinf(step({most, 1})[0]));
  EXPECT_EQ(step({1, 1}), (std::vector<float>{2, 4}));
}

TEST(Differences, AreRefusedWithAReason) {
  const auto reason = [](const char* text) {
    const absl::StatusOr<CodecSpec> spec = ParseCodecSpec(text);
    return spec.ok() ? std::string("none") : std::string(spec.status().message());
  };
  EXPECT_THAT(reason("none/ef21"), HasSubstr("no error to compensate"));
  EXPECT_THAT(reason("none/diana"), HasSubstr("no error to compensate"));
  EXPECT_THAT(reason("qsgd:4/ef21"), HasSubstr("whose error is never above its input"));
  EXPECT_THAT(reason("threshold:1e-3/ef21"), HasSubstr("would never be sent"));
  EXPECT_THAT(reason("signsgd/ef21"), HasSubstr("frames that are summed"));
  EXPECT_THAT(reason("signsgd/diana"), HasSubstr("frames that are summed"));
  EXPECT_THAT(reason("int8/diana"), HasSubstr("needs an unbiased codec"));
  EXPECT_THAT(reason("randomk:5%/diana"), HasSubstr("needs an unbiased codec"));
  EXPECT_THAT(reason("qsgd:4/diana:0"), HasSubstr("above 0 and at most 1"));
  EXPECT_THAT(reason("qsgd:4/diana:1.5"), HasSubstr("above 0 and at most 1"));
  EXPECT_THAT(reason("int8/ef21:0.5"), HasSubstr("ef21 takes no argument"));
  for (const char* text : {"int8/ef21", "qsgd:4/diana", "qsgd:4/diana:0.5", "int4:sr/diana",
                           "randomk:5%,unbiased/diana:0.05", "intsum:4/ef21"}) {
    ASSERT_TRUE(ParseCodecSpec(text).ok()) << text << ": " << reason(text);
    EXPECT_EQ(ToString(*ParseCodecSpec(text)), text);
    EXPECT_THAT(std::string(DownlinkRefusal(*ParseCodecSpec(text))), HasSubstr("no such memory"));
  }
}

TEST(Differences, ReceiversSayWhatTheyHold) {
  EXPECT_EQ(MakeAggregator({.count = 700, .spec = *ParseCodecSpec("int8/ef21")}, 2)->state_bytes(),
            700 * sizeof(float));
  EXPECT_GT(
      MakeAggregator({.count = 700, .spec = *ParseCodecSpec("intsum:4/ef21")}, 2)->state_bytes(),
      700 * (sizeof(float) + 1));
}

}  // namespace
}  // namespace sluice::compress
