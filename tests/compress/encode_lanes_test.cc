// SPDX-License-Identifier: Apache-2.0
// Tests that frames and states do not depend on the number of threads that encode.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "base/parallel.h"
#include "compress/compressor.h"
#include "tests/compress/test_data.h"

namespace sluice::compress {
namespace {

// Several chunks of each of some tensors, some of them small.
std::vector<ChunkConfig> ChunksOf(const CodecSpec& spec) {
  std::vector<ChunkConfig> chunks;
  for (const size_t count : {4096, 4096, 700, 4096, 1, 1300, 64, 2048, 300}) {
    const auto id = static_cast<uint32_t>(chunks.size());
    chunks.push_back({.count = count, .spec = spec, .id = id, .tensor = id / 3});
  }
  return chunks;
}

class Encoder {
 public:
  Encoder(const CodecSpec& spec, size_t lanes)
      : chunks_(ChunksOf(spec)), parallel_(lanes), compressor_(chunks_, {.seed = 7, .sender = 2}) {}

  // Encodes a step. The gradient of chunk `broken` is not finite.
  absl::Status Step(uint64_t step, size_t broken, std::vector<std::vector<std::byte>>* frames) {
    std::vector<uint32_t> ids;
    std::vector<std::vector<float>> gradients;
    for (size_t i = 0; i < chunks_.size(); ++i) {
      ids.push_back(static_cast<uint32_t>(i));
      gradients.push_back(HeavyTailed(chunks_[i].count, 100 * step + i));
    }
    if (broken < chunks_.size()) gradients[broken][0] = std::numeric_limits<float>::infinity();
    std::vector<int> calls(parallel_.lanes());
    absl::Status status = compressor_.EncodeInLanes(
        &parallel_, ids, step,
        [&](size_t i, size_t lane) {
          ++calls[lane];
          return absl::MakeConstSpan(gradients[i]);
        },
        frames);
    EXPECT_EQ(std::accumulate(calls.begin(), calls.end(), size_t{0}), chunks_.size());
    compressor_.EndStep(step);
    return status;
  }
  SavedCompressor Save() const { return compressor_.Save(); }
  size_t refused() const { return compressor_.refused(); }

 private:
  const std::vector<ChunkConfig> chunks_;
  Parallel parallel_;
  Compressor compressor_;
};

class EncodeLanesTest : public testing::TestWithParam<std::string> {};

TEST_P(EncodeLanesTest, EveryNumberOfThreadsGivesTheSameFramesAndState) {
  const CodecSpec spec = *ParseCodecSpec(GetParam());
  for (const size_t lanes : {2, 5}) {
    Encoder expected(spec, 1);
    Encoder several(spec, lanes);
    for (uint64_t step = 1; step <= 6; ++step) {
      const size_t broken = step == 4 ? 5 : 99;
      std::vector<std::vector<std::byte>> want, got;
      const absl::Status of_one = expected.Step(step, broken, &want);
      EXPECT_EQ(several.Step(step, broken, &got), of_one);
      EXPECT_EQ(several.refused(), expected.refused());
      if (of_one.ok()) {
        EXPECT_EQ(got, want) << lanes << " lanes, step " << step;
      }
      EXPECT_EQ(several.Save(), expected.Save()) << lanes << " lanes, step " << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, EncodeLanesTest, testing::ValuesIn(TestedSpecs()));

}  // namespace
}  // namespace sluice::compress
