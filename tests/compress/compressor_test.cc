// SPDX-License-Identifier: Apache-2.0
#include "compress/compressor.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "compress/feedback/compensator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/test_data.h"

namespace sluice::compress {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<float> Copy(absl::Span<const float> values) { return {values.begin(), values.end()}; }

absl::Status EncodeCompressor(Compensator& compensator, const Codec& codec,
                              const std::vector<float>& gradient, std::vector<std::byte>* frame,
                              float threshold = 0) {
  absl::Status valid = compensator.Check(gradient);
  if (!valid.ok()) return valid;
  return compensator.Encode(codec, {.gradient = gradient, .threshold = threshold}, frame);
}

size_t Kept(const std::vector<std::byte>& frame, size_t count) {
  const std::vector<float> values = Decode(frame, count);
  return count - static_cast<size_t>(std::count(values.begin(), values.end(), 0.0f));
}

absl::Status EncodeAll(Compressor* compressor, absl::Span<const uint32_t> chunks, uint64_t step,
                       absl::Span<const absl::Span<const float>> gradients,
                       std::vector<std::vector<std::byte>>* frames) {
  return compressor->EncodeEach(
      chunks, step, [&](size_t i) { return gradients[i]; }, frames);
}

TEST(Compensator, ConservesAcrossCodecsThresholdsAndRefusedFrames) {
  const size_t count = 1500;
  const std::unique_ptr<Compensator> compensator = MakeErrorFeedback(count);
  std::vector<double> sent(count), wanted(count);
  std::vector<std::string> specs;
  for (const std::string& spec : TestedSpecs()) {
    if (FindFormat(CodecFor(spec)->format())->decode_add != nullptr) specs.push_back(spec);
  }
  for (size_t step = 0; step < 200; ++step) {
    const std::vector<float> gradient = HeavyTailed(count, step);
    const std::unique_ptr<Codec> codec = CodecFor(specs[step % specs.size()]);
    std::vector<std::byte> frame;
    const float threshold = step % 3 == 0 ? 0.0f : 0.001f * static_cast<float>(step % 7);
    ASSERT_TRUE(EncodeCompressor(*compensator, *codec, gradient, &frame, threshold).ok());
    const std::vector<float> decoded = Decode(frame, count);
    const bool refused = step % 5 == 0;
    if (refused) {
      ASSERT_TRUE(compensator->ReturnFrame(frame).ok());
    }
    for (size_t i = 0; i < count; ++i) {
      if (!refused) sent[i] += decoded[i];
      wanted[i] += gradient[i];
    }
  }
  for (size_t i = 0; i < count; ++i) {
    EXPECT_NEAR(sent[i] + compensator->residual()[i], wanted[i], 1e-5) << i;
  }
}

// A bound on the residual usually makes it unnecessary to read the residual when a gradient is
// checked. If the bound is not conclusive, the check must read the residual and refuse exactly the
// gradients that overflow.
TEST(Compensator, RefusesExactlyWhatOverflows) {
  const std::unique_ptr<Compensator> compensator = MakeErrorFeedback(2);
  const std::unique_ptr<Codec> codec = CodecFor("threshold:1+sign");
  std::vector<std::byte> frame;
  // The mean magnitude is 2e38. Therefore the residual is 1e38 for the first element and -1e38 for
  // the second.
  ASSERT_TRUE(EncodeCompressor(*compensator, *codec, {3e38f, 1e38f}, &frame).ok());
  EXPECT_NEAR(compensator->residual()[0], 1e38f, 1e36f);
  EXPECT_NEAR(compensator->residual()[1], -1e38f, 1e36f);
  EXPECT_TRUE(compensator->Check({1.0f, 3e38f}).ok());
  EXPECT_TRUE(compensator->Check({-3e38f, 3e38f}).ok());
  EXPECT_FALSE(compensator->Check({3e38f, 1.0f}).ok());
  EXPECT_FALSE(compensator->Check({1.0f, -3e38f}).ok());
  EXPECT_FALSE(compensator->Check({1.0f, std::nanf("")}).ok());
  // After the frame is returned, its values are part of the residual.
  ASSERT_TRUE(compensator->ReturnFrame(frame).ok());
  EXPECT_FALSE(compensator->Check({1e38f, 1.0f}).ok());
}

// Restoring a residual writes through the pointers from State. Later checks must use the restored
// residual.
TEST(Compensator, ChecksAgainstARestoredResidual) {
  const std::unique_ptr<Compensator> compensator = MakeErrorFeedback(2);
  EXPECT_TRUE(compensator->Check({3e38f, 0}).ok());
  *compensator->State()[0].values = {3e38f, 0};
  EXPECT_FALSE(compensator->Check({3e38f, 0}).ok());
}

TEST(Compensator, LosslessCodecFlushes) {
  const std::unique_ptr<Compensator> compensator = MakeErrorFeedback(3);
  ASSERT_TRUE(RestoreFields({{"residual", {1.0f, 2.0f, 3.0f}}}, compensator->State()).ok());
  std::vector<std::byte> frame;
  ASSERT_TRUE(
      EncodeCompressor(*compensator, *CodecFor("none"), {10.0f, 20.0f, 30.0f}, &frame).ok());
  EXPECT_EQ(Decode(frame, 3), (std::vector<float>{11, 22, 33}));
  EXPECT_EQ(Copy(compensator->residual()), (std::vector<float>{0, 0, 0}));
}

TEST(Compensator, WithoutFeedbackNothingIsKept) {
  const std::unique_ptr<Compensator> compensator = MakeNoFeedback(600);
  const std::vector<float> gradient = HeavyTailed(600, 1);
  std::vector<std::byte> first, second;
  const std::unique_ptr<Codec> codec = CodecFor("ternary:0.5");
  ASSERT_TRUE(EncodeCompressor(*compensator, *codec, gradient, &first).ok());
  ASSERT_TRUE(EncodeCompressor(*compensator, *codec, gradient, &second).ok());
  EXPECT_EQ(first, second);
  EXPECT_TRUE(compensator->residual().empty());
  EXPECT_TRUE(compensator->ReturnFrame(first).ok());
  EXPECT_TRUE(compensator->State().empty());
}

TEST(Compensator, SizesAreChecked) {
  for (const bool feedback : {true, false}) {
    const std::unique_ptr<Compensator> compensator =
        feedback ? MakeErrorFeedback(4) : MakeNoFeedback(4);
    std::vector<std::byte> frame;
    EXPECT_FALSE(EncodeCompressor(*compensator, *CodecFor("fp16"), {1.0f}, &frame).ok());
    EXPECT_FALSE(RestoreFields({{"residual", {1.0f}}}, compensator->State()).ok());
    EXPECT_FALSE(compensator->ReturnFrame(frame).ok());
  }
}

std::vector<ChunkConfig> Chunks(const std::string& spec, std::vector<size_t> counts) {
  std::vector<ChunkConfig> chunks;
  for (const size_t count : counts) chunks.push_back({count, *ParseCodecSpec(spec)});
  return chunks;
}

TEST(Compressor, ThresholdIsSharedBetweenChunksOfOneSpec) {
  // Chunk 1 has all the large values, so it must get nearly all kept elements from the second step
  // on.
  Compressor compressor(Chunks("topk:1%/noef", {8192, 8192}), {});
  const std::vector<float> small = HeavyTailed(8192, 1, 1e-6f), large = HeavyTailed(8192, 2, 1.0f);
  for (int step = 0; step < 2; ++step) {
    std::vector<std::byte> a, b;
    ASSERT_TRUE(compressor.Encode(0, 0, small, &a).ok());
    ASSERT_TRUE(compressor.Encode(1, 0, large, &b).ok());
    compressor.EndStep(0);
    if (step == 0) {
      EXPECT_NEAR(static_cast<double>(Kept(a, 8192)), 82, 12);
      EXPECT_NEAR(static_cast<double>(Kept(b, 8192)), 82, 12);
    } else {
      EXPECT_EQ(Kept(a, 8192), 0u);
      EXPECT_NEAR(static_cast<double>(Kept(b, 8192)), 164, 20);
    }
  }
}

TEST(Compressor, DensityHoldsOnAverageUnderFeedback) {
  const size_t count = 16384;
  Compressor compressor(Chunks("topk:1%+int4", {count}), {});
  size_t kept = 0;
  for (uint64_t step = 0; step < 60; ++step) {
    std::vector<std::byte> frame;
    ASSERT_TRUE(compressor.Encode(0, 0, HeavyTailed(count, step), &frame).ok());
    compressor.EndStep(0);
    if (step >= 20) kept += Kept(frame, count);
  }
  EXPECT_NEAR(static_cast<double>(kept) / (40.0 * count), 0.01, 0.002);
}

// If a step with larger gradients follows, the previous step's threshold lets far too many elements
// through. The density must be right on average anyway.
TEST(Compressor, DensityHoldsOnAverageWhenStepsDifferInSize) {
  const size_t count = 20000;
  for (const char* spec : {"topk:1%/noef", "topk:1%+int4"}) {
    Compressor compressor(Chunks(spec, {count}), {});
    CounterRandom random(5);
    double kept = 0;
    const int steps = 300;
    for (int step = 1; step <= steps; ++step) {
      std::vector<std::byte> frame;
      const auto loudness = static_cast<float>(std::exp(2 * random.Uniform()));
      ASSERT_TRUE(
          compressor.Encode(0, step, HeavyTailed(count, step, 1e-3f * loudness), &frame).ok());
      compressor.EndStep(step);
      kept += static_cast<double>(Kept(frame, count));
    }
    EXPECT_NEAR(kept / steps / count, 0.01, 0.0007) << spec;
  }
}

TEST(Compressor, AStepOfZerosDoesNotOpenTheGate) {
  Compressor compressor(Chunks("topk:1%/noef", {4096}), {});
  const std::vector<float> zeros(4096, 0.0f);
  const std::vector<float> inputs[] = {HeavyTailed(4096, 1), zeros, HeavyTailed(4096, 1, 1e-4f)};
  std::vector<size_t> kept;
  for (const std::vector<float>& gradient : inputs) {
    std::vector<std::byte> frame;
    ASSERT_TRUE(compressor.Encode(0, 0, gradient, &frame).ok());
    compressor.EndStep(0);
    kept.push_back(Kept(frame, 4096));
  }
  EXPECT_NEAR(static_cast<double>(kept[0]), 41, 8);
  EXPECT_EQ(kept[1], 0u);
  // This gradient is a tenth as large as the first one, and the threshold from before the zeros
  // still applies.
  EXPECT_LT(kept[2], 4u);
}

TEST(Compressor, OrderOfChunksDoesNotMatter) {
  const std::vector<size_t> counts = {3000, 500, 4096};
  Compressor forward(Chunks("topk:2%", counts), {}), backward(Chunks("topk:2%", counts), {});
  for (uint64_t step = 0; step < 5; ++step) {
    std::vector<std::vector<std::byte>> a(3), b(3);
    for (size_t i = 0; i < 3; ++i) {
      ASSERT_TRUE(forward.Encode(i, 0, HeavyTailed(counts[i], step * 3 + i), &a[i]).ok());
    }
    for (size_t i = 3; i-- > 0;) {
      ASSERT_TRUE(backward.Encode(i, 0, HeavyTailed(counts[i], step * 3 + i), &b[i]).ok());
    }
    EXPECT_EQ(a, b) << step;
    forward.EndStep(0);
    backward.EndStep(0);
  }
}

TEST(Compressor, EncodeEachIsAllOrNothing) {
  std::vector<ChunkConfig> chunks = Chunks("topk:5%", {600, 700});
  chunks.push_back({300, *ParseCodecSpec("int8")});
  Compressor compressor(chunks, {}), twin(chunks, {});
  const std::vector<float> a = HeavyTailed(600, 1), b = HeavyTailed(700, 2);
  std::vector<float> c = HeavyTailed(300, 3);
  std::vector<std::vector<std::byte>> frames, twin_frames;
  const std::vector<uint32_t> ids = {2, 0, 1};
  ASSERT_TRUE(EncodeAll(&compressor, ids, 0, {c, a, b}, &frames).ok());
  ASSERT_TRUE(EncodeAll(&twin, ids, 0, {c, a, b}, &twin_frames).ok());
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_EQ(frames, twin_frames);

  const double energy = compressor.ResidualEnergy();
  EXPECT_FALSE(EncodeAll(&compressor, {0, 0}, 0, {a, a}, &frames).ok());
  EXPECT_FALSE(EncodeAll(&compressor, {0, 9}, 0, {a, a}, &frames).ok());
  EXPECT_FALSE(EncodeAll(&compressor, {0}, 0, {b}, &frames).ok());
  EXPECT_EQ(compressor.ResidualEnergy(), energy);

  // The refused calls must have left the state unchanged, including the thresholds.
  for (Compressor* each : {&compressor, &twin}) each->EndStep(0);
  ASSERT_TRUE(EncodeAll(&compressor, {0, 1, 2}, 0, {a, b, c}, &frames).ok());
  ASSERT_TRUE(EncodeAll(&twin, {0, 1, 2}, 0, {a, b, c}, &twin_frames).ok());
  EXPECT_EQ(frames, twin_frames);
}

TEST(Compressor, WhatIsFiniteBesideWhatIsNotStaysOwed) {
  std::vector<ChunkConfig> chunks = Chunks("topk:5%", {600, 700, 500});
  chunks.push_back({300, *ParseCodecSpec("int8")});
  Compressor compressor(chunks, {}), twin(chunks, {});
  const std::vector<uint32_t> ids = {3, 0, 1, 2};
  std::vector<std::vector<float>> gradients = {HeavyTailed(300, 3), HeavyTailed(600, 1),
                                               HeavyTailed(700, 2), HeavyTailed(500, 4)};
  const auto all = [&] {
    return std::vector<absl::Span<const float>>(gradients.begin(), gradients.end());
  };
  std::vector<std::vector<std::byte>> frames, twin_frames;
  for (Compressor* each : {&compressor, &twin}) {
    ASSERT_TRUE(EncodeAll(each, ids, 1, all(), &frames).ok());
    each->EndStep(1);
  }

  const std::vector<float> before(compressor.residual(1).begin(), compressor.residual(1).end());
  gradients[2][699] = std::numeric_limits<float>::quiet_NaN();
  const absl::Status status = EncodeAll(&compressor, ids, 2, all(), &frames);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("chunk 1"), HasSubstr("not finite: element 699")));
  EXPECT_EQ(compressor.residual(1), absl::MakeConstSpan(before));
  for (const size_t i : {0, 1, 3}) {
    std::vector<std::byte> frame;
    ASSERT_TRUE(twin.Encode(ids[i], 2, gradients[i], &frame).ok());
    ASSERT_TRUE(twin.ReturnFrame(ids[i], frame).ok());
    EXPECT_EQ(compressor.residual(ids[i]), twin.residual(ids[i]));
  }

  gradients[2][699] = 0;
  for (Compressor* each : {&compressor, &twin}) each->EndStep(2);
  ASSERT_TRUE(EncodeAll(&compressor, ids, 3, all(), &frames).ok());
  ASSERT_TRUE(EncodeAll(&twin, ids, 3, all(), &twin_frames).ok());
  EXPECT_EQ(frames, twin_frames);
}

TEST(Compressor, LosslessCodecsOweWhatIsRefusedOnlyIfAskedTo) {
  const std::vector<float> bad = {1, INFINITY, 1};
  const std::vector<float> good = {0.5f, -2};
  for (const bool owes : {false, true}) {
    Compressor compressor(Chunks("none", {3, 2}), {.owes_lossless = owes});
    std::vector<std::vector<std::byte>> frames;
    ASSERT_FALSE(EncodeAll(&compressor, {0, 1}, 1, {bad, good}, &frames).ok());
    EXPECT_TRUE(compressor.residual(0).empty());
    EXPECT_EQ(compressor.residual(1), owes ? absl::MakeConstSpan(good) : absl::Span<const float>());
    // The values must return to the residual once: the next frame contains them, and the residual
    // is then empty.
    ASSERT_TRUE(EncodeAll(&compressor, {1}, 2, {good}, &frames).ok());
    std::vector<float> decoded(2);
    ASSERT_TRUE(DecodeAddFrame(frames[0], absl::MakeSpan(decoded)).ok());
    EXPECT_THAT(decoded, ElementsAre(owes ? 1 : 0.5f, owes ? -4 : -2));
    EXPECT_EQ(compressor.ResidualEnergy(), 0);
  }
}

TEST(Compressor, EncodeErrorNamesTheChunkAndChangesNothing) {
  Compressor compressor(Chunks("topk:5%", {600, 700}), {});
  std::vector<float> bad = HeavyTailed(700, 1);
  bad[5] = std::numeric_limits<float>::infinity();
  std::vector<std::byte> frame;
  const absl::Status status = compressor.Encode(1, 0, bad, &frame);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("chunk 1"), HasSubstr("not finite: element 5")));
  EXPECT_TRUE(frame.empty());
  EXPECT_EQ(compressor.ResidualEnergy(), 0);
  EXPECT_FALSE(compressor.Encode(2, 0, bad, &frame).ok());
}

TEST(Compressor, LosslessSpecKeepsNoResidual) {
  Compressor compressor(Chunks("none", {700}), {});
  std::vector<std::byte> frame;
  ASSERT_TRUE(compressor.Encode(0, 0, HeavyTailed(700, 1), &frame).ok());
  EXPECT_TRUE(compressor.residual(0).empty());
  EXPECT_EQ(compressor.ResidualEnergy(), 0);
}

// The chunks of a sender share scratch buffers. Each codec must grow them to its own size.
TEST(Compressor, CodecsOfOtherChunksLeaveRoomInSharedBuffers) {
  for (const std::string first : {"ternary:0.5", "blocktopk:4", "randomk:100%", "powersgd:4"}) {
    const ChunkConfig chunks[] = {{.count = 65536, .spec = *ParseCodecSpec(first), .rows = 256},
                                  {.count = 300, .spec = *ParseCodecSpec("topk:100%"), .id = 1},
                                  {.count = 900, .spec = *ParseCodecSpec("ternary:0.1"), .id = 2}};
    Compressor compressor(chunks, {});
    std::vector<Compressor> alone;
    for (const ChunkConfig& chunk : chunks)
      alone.emplace_back(absl::MakeConstSpan(&chunk, 1), Compressor::Options());
    for (uint64_t step = 0; step < 3; ++step) {
      for (size_t chunk = 0; chunk < 3; ++chunk) {
        const std::vector<float> gradient = HeavyTailed(chunks[chunk].count, step);
        std::vector<std::byte> frame, expected;
        ASSERT_TRUE(compressor.Encode(chunk, step, gradient, &frame).ok());
        ASSERT_TRUE(alone[chunk].Encode(0, step, gradient, &expected).ok());
        EXPECT_EQ(frame, expected) << first << " " << chunk;
      }
    }
  }
}

// Changes specs as a plan does. No values may be lost, and chunks with unchanged specs must keep
// their state.
TEST(Compressor, RecodingKeepsWhatIsOwed) {
  const size_t count = 3000;
  const auto spec = [](const char* text) { return *ParseCodecSpec(text); };
  const std::vector<ChunkConfig> chunks = {{.count = count, .spec = spec("topk:1%+int4/ef")},
                                           {.count = count, .spec = spec("topk:5%"), .id = 1}};
  Compressor compressor(chunks, {.seed = 3});
  std::vector<double> wanted(count), sent(count);
  const char* const codecs[] = {"topk:1%+int4/ef", "fp16/ef", "topk:10%/ef", "int8/ef", "none/ef"};
  for (uint64_t step = 1; step <= 40; ++step) {
    const CodecSpec now = spec(codecs[step / 4 % 5]);
    ASSERT_TRUE(compressor.Recode({now, chunks[1].spec}).ok());
    const std::vector<float> gradient = HeavyTailed(count, step);
    std::vector<std::byte> frame, other;
    ASSERT_TRUE(compressor.Encode(0, step, gradient, &frame).ok());
    ASSERT_TRUE(compressor.Encode(1, step, gradient, &other).ok());
    compressor.EndStep(step);
    const std::vector<float> decoded = Decode(frame, count);
    for (size_t i = 0; i < count; ++i) {
      wanted[i] += gradient[i];
      sent[i] += decoded[i];
      const double owed = compressor.residual(0).empty() ? 0 : compressor.residual(0)[i];
      ASSERT_NEAR(sent[i] + owed, wanted[i], 1e-4) << step;
    }
  }
}

TEST(Compressor, RecodingToTheSameChangesNothing) {
  const std::vector<ChunkConfig> chunks = {
      {.count = 3000, .spec = *ParseCodecSpec("topk:1%")},
      {.count = 3000, .spec = *ParseCodecSpec("topk:5%"), .id = 1}};
  Compressor plain(chunks, {.seed = 3});
  Compressor recoded(chunks, {.seed = 3});
  for (uint64_t step = 1; step <= 5; ++step) {
    for (size_t chunk = 0; chunk < 2; ++chunk) {
      std::vector<std::byte> expected, frame;
      ASSERT_TRUE(plain.Encode(chunk, step, HeavyTailed(3000, step), &expected).ok());
      ASSERT_TRUE(recoded.Encode(chunk, step, HeavyTailed(3000, step), &frame).ok());
      ASSERT_EQ(frame, expected);
    }
    plain.EndStep(step);
    recoded.EndStep(step);
    ASSERT_TRUE(recoded.Recode({chunks[0].spec, chunks[1].spec}).ok());
  }
  EXPECT_EQ(recoded.Save(), plain.Save());
}

TEST(Compressor, RecodesNoMemoryAndNoState) {
  const auto refusal = [](const char* before, const char* after) {
    Compressor compressor(
        std::vector<ChunkConfig>{{.count = 64, .spec = *ParseCodecSpec(before), .rows = 8}},
        {.seed = 3});
    const SavedCompressor saved = compressor.Save();
    const absl::Status refused = compressor.Recode({*ParseCodecSpec(after)});
    EXPECT_EQ(compressor.Save(), saved);
    return std::string(refused.message());
  };
  EXPECT_THAT(refusal("topk:1%", "topk:1%/noef"), HasSubstr("cannot change"));
  EXPECT_THAT(refusal("topk:1%/dgc:0.9", "topk:2%"), HasSubstr("cannot change"));
  EXPECT_THAT(refusal("powersgd:2", "fp16/ef"), HasSubstr("cannot"));
  EXPECT_THAT(refusal("topk:1%", "powersgd:2"), HasSubstr("cannot"));
}

}  // namespace
}  // namespace sluice::compress
