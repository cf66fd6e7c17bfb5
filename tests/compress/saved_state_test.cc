// SPDX-License-Identifier: Apache-2.0
// Tests that the saved state of senders and receivers is complete: a run that restores it continues
// bit for bit. Any other state must be refused.
#include "compress/saved_state.h"

#include <functional>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/one_chunk.h"

namespace sluice::compress {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr size_t kSavedStateCount = 1536;
constexpr uint32_t kSavedStateSenders = 3;

OneChunk::Gradients GradientsOf(uint64_t step) {
  OneChunk::Gradients gradients;
  for (uint32_t rank = 0; rank < kSavedStateSenders; ++rank) {
    gradients.push_back(HeavyTailed(kSavedStateCount, step * 100 + rank));
  }
  // One sender is absent in some steps.
  if (step % 4 == 2) gradients[1].clear();
  return gradients;
}

class Saved : public ::testing::TestWithParam<CodecSpec> {};

TEST_P(Saved, RunsGoOnBitForBit) {
  for (const uint64_t before : {0u, 1u, 5u}) {
    OneChunk undisturbed(GetParam(), kSavedStateCount, kSavedStateSenders);
    for (uint64_t step = 0; step < before; ++step) undisturbed.Step(GradientsOf(step));
    OneChunk restored(GetParam(), kSavedStateCount, kSavedStateSenders);
    ASSERT_TRUE(restored.GoOnFrom(undisturbed).ok());
    // An object that has run different steps must also be able to restore the state.
    OneChunk strayed(GetParam(), kSavedStateCount, kSavedStateSenders);
    for (uint64_t step = 50; step < 53; ++step) strayed.Step(GradientsOf(step));
    ASSERT_TRUE(strayed.GoOnFrom(undisturbed).ok());
    for (uint64_t step = before; step < before + 5; ++step) {
      const std::vector<float> mean = undisturbed.Step(GradientsOf(step));
      for (OneChunk* other : {&restored, &strayed}) {
        ASSERT_EQ(other->Step(GradientsOf(step)), mean) << before << ", step " << step;
        ASSERT_EQ(other->frames(), undisturbed.frames()) << before << ", step " << step;
      }
    }
    for (uint32_t rank = 0; rank < kSavedStateSenders; ++rank) {
      EXPECT_EQ(restored.sender(rank).Save(), undisturbed.sender(rank).Save());
    }
    EXPECT_EQ(SaveFields(restored.aggregator().State()),
              SaveFields(undisturbed.aggregator().State()));
  }
}

TEST_P(Saved, WhatIsNotAsItWasSavedIsRefusedAndChangesNothing) {
  OneChunk chunk(GetParam(), kSavedStateCount, kSavedStateSenders);
  for (uint64_t step = 0; step < 3; ++step) chunk.Step(GradientsOf(step));
  const SavedCompressor good = chunk.sender(0).Save();
  const auto expect_refused = [&](const char* what,
                                  const std::function<void(SavedCompressor*)>& spoil) {
    SavedCompressor bad = good;
    spoil(&bad);
    const absl::Status status = chunk.sender(0).Restore(bad);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << what;
    EXPECT_EQ(chunk.sender(0).Save(), good) << what;
  };
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  expect_refused("no chunk", [](auto* saved) { saved->chunks.clear(); });
  expect_refused("two chunks", [](auto* saved) { saved->chunks.push_back(saved->chunks[0]); });
  expect_refused("two groups", [](auto* saved) { saved->groups.push_back(saved->groups[0]); });
  expect_refused("other size", [](auto* saved) { ++saved->chunks[0].config.count; });
  expect_refused("other id", [](auto* saved) { ++saved->chunks[0].config.id; });
  expect_refused("other rows", [](auto* saved) { ++saved->chunks[0].config.rows; });
  expect_refused("other level", [](auto* saved) { saved->chunks[0].config.spec.level += 0.01; });
  expect_refused("foreign list", [](auto* saved) { saved->chunks[0].state["foreign"] = {1}; });
  for (const auto& [name, values] : good.chunks[0].state) {
    const std::string& list = name;
    expect_refused("cut", [&](auto* saved) { saved->chunks[0].state[list].pop_back(); });
    expect_refused("not finite", [&](auto* saved) { saved->chunks[0].state[list][0] = kNan; });
  }
  if (good.chunks[0].state.contains("codec")) {
    expect_refused("codec", [](auto* saved) { saved->chunks[0].state.erase("codec"); });
  }
  for (const float bad : {-1.0f, kNan, std::numeric_limits<float>::infinity()}) {
    expect_refused("threshold", [&](auto* saved) { saved->groups[0]["threshold"][0] = bad; });
    expect_refused("correction", [&](auto* saved) { saved->groups[0]["correction"][0] = bad; });
  }
  expect_refused("no threshold", [](auto* saved) { saved->groups[0].erase("threshold"); });
  expect_refused("thresholds", [](auto* saved) { saved->groups[0]["threshold"].push_back(1); });

  const SavedState receiver = SaveFields(chunk.aggregator().State());
  SavedState bad = receiver;
  bad["foreign"] = {1};
  EXPECT_FALSE(RestoreFields(bad, chunk.aggregator().State()).ok());
  for (const auto& [name, values] : receiver) {
    bad = receiver;
    bad[name][0] = kNan;
    EXPECT_FALSE(RestoreFields(bad, chunk.aggregator().State()).ok());
    bad = receiver;
    bad[name].push_back(0);
    EXPECT_FALSE(RestoreFields(bad, chunk.aggregator().State()).ok());
  }
  EXPECT_EQ(SaveFields(chunk.aggregator().State()), receiver);
}

INSTANTIATE_TEST_SUITE_P(Specs, Saved, ::testing::ValuesIn(CompensatedSpecs()), CompensatedName);

// Returns several chunks: with thresholds per spec, with thresholds per tensor, with a warm-up, and
// with codecs that have states.
std::vector<ChunkConfig> ManyChunks() {
  std::vector<ChunkConfig> chunks;
  for (const char* spec :
       {"topk:1%+int4", "topk:1%+int4", "topk:2%,scope=tensor", "int4", "topk:2%,scope=tensor",
        "topk:1%/dgc:0.9,clip=2,warmup=6", "powersgd:2", "intsum:4", "qsgd:4", "none"}) {
    const auto id = static_cast<uint32_t>(chunks.size());
    chunks.push_back({.count = 4096 + 32 * size_t{id},
                      .spec = *ParseCodecSpec(spec),
                      .id = id,
                      .tensor = id,
                      .rows = 32});
  }
  return chunks;
}

std::vector<std::vector<std::byte>> StepOf(Compressor* compressor, uint64_t step) {
  std::vector<std::vector<std::byte>> frames(compressor->chunks());
  for (size_t chunk = 0; chunk < frames.size(); ++chunk) {
    const auto loudness = static_cast<float>(std::exp(CounterRandom(8, step).Uniform()));
    const std::vector<float> gradient =
        HeavyTailed(4096 + 32 * chunk, 20 * step + chunk, 1e-3f * loudness);
    Check(compressor->Encode(chunk, step, gradient, &frames[chunk]).ok(), "it is finite");
    if (compressor->observes(chunk)) compressor->Observe(chunk, frames[chunk]);
  }
  compressor->EndStep(step);
  return frames;
}

// As for chunks that come from several compressors.
TEST(SavedCompressor, WithoutGroupsAllThresholdsBeginAnew) {
  const std::vector<ChunkConfig> chunks = ManyChunks();
  Compressor compressor(chunks, {.seed = 3, .sender = 1});
  const SavedCompressor fresh = compressor.Save();
  for (uint64_t step = 1; step <= 3; ++step) StepOf(&compressor, step);
  SavedCompressor saved = compressor.Save();
  ASSERT_NE(saved.groups, fresh.groups);
  saved.groups.clear();
  ASSERT_TRUE(compressor.Restore(saved).ok());
  EXPECT_EQ(compressor.Save().groups, fresh.groups);
  EXPECT_EQ(compressor.Save().chunks, saved.chunks);
}

TEST(SavedCompressor, ManyChunksGoOnBitForBit) {
  const std::vector<ChunkConfig> chunks = ManyChunks();
  Compressor undisturbed(chunks, {.seed = 3, .sender = 1});
  for (uint64_t step = 1; step <= 12; ++step) {
    Compressor fresh(chunks, {.seed = 3, .sender = 1}), restored(chunks, {.seed = 3, .sender = 1});
    ASSERT_TRUE(restored.Restore(undisturbed.Save()).ok()) << step;
    const std::vector<std::vector<std::byte>> frames = StepOf(&undisturbed, step);
    EXPECT_EQ(StepOf(&restored, step), frames) << step;
    EXPECT_EQ(restored.Save(), undisturbed.Save()) << step;
    const std::vector<std::vector<std::byte>> other = StepOf(&fresh, step);
    for (size_t chunk = 0; chunk < chunks.size() && step > 1; ++chunk) {
      const bool remembers = chunk < 8;
      EXPECT_EQ(other[chunk] != frames[chunk], remembers) << step << ", chunk " << chunk;
    }
  }
}

TEST(SavedCompressor, ErrorsSayWhatWasSavedAndWhatToDo) {
  std::vector<ChunkConfig> chunks = ManyChunks();
  Compressor compressor(chunks, {});
  StepOf(&compressor, 1);
  const SavedCompressor saved = compressor.Save();
  chunks[3].spec = *ParseCodecSpec("int8");
  Compressor other(chunks, {});
  const SavedCompressor before = other.Save();
  const std::string message(other.Restore(saved).message());
  EXPECT_THAT(message, AllOf(HasSubstr("chunk 3 was saved"), HasSubstr("4192 elements of int4")));
  EXPECT_THAT(message, HasSubstr("is now 4192 elements of int8"));
  EXPECT_THAT(message, HasSubstr("continue with the job file"));
  chunks.pop_back();
  EXPECT_THAT(std::string(Compressor(chunks, {}).Restore(saved).message()),
              AllOf(HasSubstr("10 chunks in 9 groups"), HasSubstr("job has 9 in 8")));
  EXPECT_EQ(other.Save(), before);
}

TEST(SavedReceiver, SharedExponentsComeBack) {
  const ChunkConfig config{.count = kSavedStateCount, .spec = *ParseCodecSpec("intsum:4")};
  const std::unique_ptr<Aggregator> first = MakeAggregator(config, 1);
  EXPECT_TRUE(SaveFields(first->State()).empty()) << "nothing is known before the first step";
  std::vector<std::byte> frame, shared, restored;
  ASSERT_TRUE(
      EncodeFrame(*CodecFor("intsum:4"), {.gradient = HeavyTailed(kSavedStateCount, 1)}, &frame)
          .ok());
  std::vector<float> sum(kSavedStateCount);
  first->Add({{0, frame}}, absl::MakeSpan(sum));
  first->Close(1, absl::MakeSpan(sum));
  first->AppendShared(&shared);
  const std::unique_ptr<Aggregator> second = MakeAggregator(config, 1);
  ASSERT_TRUE(RestoreFields(SaveFields(first->State()), second->State()).ok());
  second->AppendShared(&restored);
  EXPECT_EQ(shared, restored);
  EXPECT_GE(first->state_bytes(), kSavedStateCount);
  // Any numbers may be restored, but the sender must still send only valid frames.
  ASSERT_TRUE(RestoreFields({{"exponents", {-5, 1e30f, 0.5f, 7, 400, 253}}}, second->State()).ok());
  restored.clear();
  second->AppendShared(&restored);
  EXPECT_TRUE(ValidateFrame(restored, kSavedStateCount).ok());
}

}  // namespace
}  // namespace sluice::compress
