// SPDX-License-Identifier: Apache-2.0
#include "worker/core/quality_meter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/random.h"
#include "compress/codec_table.h"
#include "compress/frame.h"
#include "protocol/exchange.h"
#include "worker/core/bundle_encoder.h"

namespace sluice::worker {
namespace {

std::vector<float> Gradient(size_t count, uint64_t step) {
  std::vector<float> gradient(count);
  CounterRandom random(step, 11);
  for (float& value : gradient) {
    const double u = 2 * random.Uniform() - 1;
    value = static_cast<float>(u / (1.1 - std::abs(u)));
  }
  return gradient;
}

std::vector<std::byte> FrameOf(const char* codec, absl::Span<const float> values) {
  std::vector<std::byte> frame;
  EXPECT_TRUE(compress::EncodeFrame(*compress::MakeCodec(*compress::ParseCodecSpec(codec)),
                                    {.gradient = values}, &frame)
                  .ok());
  return frame;
}

TEST(QualityMeter, NothingIsLostByACodecThatLosesNothing) {
  QualityMeter meter(1, 1);
  const std::vector<float> gradient = Gradient(1001, 1);
  meter.Measure(0, gradient, FrameOf("none", gradient), {});
  EXPECT_EQ(meter.quality().ResidualNormRatio(), 0);
  EXPECT_EQ(meter.quality().CapturedEnergy(), 1);
  EXPECT_NEAR(meter.quality().Cosine(), 1, 1e-12);
}

TEST(QualityMeter, TellsWhatFramesCarry) {
  QualityMeter meter(2, 1);
  const std::vector<float> gradient = {3, 4};
  const std::vector<float> sent = {3, 0};
  meter.Measure(0, gradient, FrameOf("none", sent), {});
  EXPECT_DOUBLE_EQ(meter.quality().CapturedEnergy(), 9.0 / 25);  // The second element is lost.
  EXPECT_DOUBLE_EQ(meter.quality().Cosine(), 0.6);
  EXPECT_EQ(meter.quality().ResidualNormRatio(), 0) << "no residual is kept";
  // The same frame is measured with feedback and an earlier residual of 3.
  const std::vector<float> owed = {0, 7};
  meter.Measure(0, gradient, FrameOf("none", sent), owed);
  EXPECT_DOUBLE_EQ(meter.quality().CapturedEnergy(), 9.0 / (9 + 49));
  EXPECT_DOUBLE_EQ(meter.quality().ResidualNormRatio(), 7.0 / 5);
  EXPECT_EQ(meter.quality().chunks, 1u);
  meter.Measure(1, gradient, FrameOf("none", gradient), {});
  EXPECT_EQ(meter.quality().chunks, 2u);
  EXPECT_DOUBLE_EQ(meter.quality().ResidualNormRatio(), 7 / std::sqrt(50));
}

TEST(QualityMeter, OfNothingThereAreFigures) {
  const std::vector<float> zeros(8);
  QualityMeter meter(1, 1);
  meter.Measure(0, zeros, FrameOf("none", zeros), {});
  EXPECT_EQ(meter.quality().ResidualNormRatio(), 0);
  EXPECT_EQ(meter.quality().CapturedEnergy(), 1);
  EXPECT_EQ(meter.quality().Cosine(), 0);
}

TEST(QualityMeter, EachChunkIsDueOnceInSoManySteps) {
  const QualityMeter meter(10, 4);
  for (uint32_t chunk = 0; chunk < 10; ++chunk) {
    for (uint64_t first = 1; first < 9; ++first) {
      int due = 0;
      for (uint64_t step = first; step < first + 4; ++step) due += meter.IsDue(chunk, step) ? 1 : 0;
      EXPECT_EQ(due, 1);
    }
  }
  EXPECT_FALSE(QualityMeter(10, 0).IsDue(0, 0));
}

// A tensor of four chunks in one bundle.
class EncoderQualityTest : public testing::Test {
 protected:
  static constexpr size_t kChunk = 256;
  static constexpr size_t kElements = 4 * kChunk;

  void Encodes(const char* codec) {
    compression_.uplink = *compress::ParseCodecSpec(codec);
    compression_.min_elements = 0;
    compression_.layout = {.chunk_elements = kChunk, .bundle_elements = kElements};
    layout_ = *protocol::BuildLayout(table_, 1, compression_.layout);
  }
  EncodedBundle Encode(uint64_t step, absl::Span<const float> gradient,
                       BundleEncoder* encoder) const {
    EncodeTask task;
    task.step = step;
    task.last_of_step = true;
    task.chunks = layout_.bundles[0][0].chunks;
    for (const uint32_t id : task.chunks) {
      const protocol::Chunk& chunk = layout_.chunks[id];
      task.gradients.push_back(GradientView(gradient).Part(chunk.offset, chunk.count));
    }
    return encoder->Encode(task);
  }

  const protocol::TensorTable table_ = {{.name = "w", .shape = {kElements}, .strides = {}}};
  protocol::CompressionSpec compression_;
  protocol::Layout layout_;
};

TEST_F(EncoderQualityTest, IsThatOfItsFramesAndMeasuringChangesNone) {
  Encodes("topk:10%+int4");
  BundleEncoder plain(table_, layout_, compression_, 0);
  BundleEncoder measured(table_, layout_, compression_, 0, {.quality_interval = 2});
  CodingQuality last;
  std::vector<float> owed(kElements);
  for (uint64_t step = 0; step <= 6; ++step) {
    const std::vector<float> gradient = Gradient(kElements, step);
    const EncodedBundle encoded = Encode(step, gradient, &measured);
    EXPECT_EQ(encoded.frames, Encode(step, gradient, &plain).frames);
    const CodingQuality quality = measured.quality();
    EXPECT_EQ(quality.chunks, step == 0 ? 0u : step == 1 ? 2u : 4u) << "step " << step;
    // The expected sums over this step's chunks come only from the sent frames and the residuals.
    CodingQuality due;
    for (size_t i = 0; i < 4; ++i) {
      const uint32_t chunk = layout_.bundles[0][0].chunks[i];
      std::vector<float> sent(kChunk);
      ASSERT_TRUE(
          compress::DecodeAddFrames(protocol::FrameBytes(encoded.frames[i]), absl::MakeSpan(sent))
              .ok());
      for (size_t j = 0; j < kChunk && step > 0; ++j) {
        const size_t at = layout_.chunks[chunk].offset + j;
        const double wanted = double{gradient[at]} + owed[at];
        owed[at] = static_cast<float>(wanted - sent[j]);
        if (chunk % 2 != step % 2) continue;
        due.gradient += double{gradient[at]} * gradient[at];
        due.owed += double{owed[at]} * owed[at];
        due.wanted += wanted * wanted;
      }
    }
    if (step > 1) {
      EXPECT_NEAR(quality.gradient, last.gradient + due.gradient, 1e-3 * quality.gradient);
      EXPECT_NEAR(quality.owed, last.owed + due.owed, 1e-3 * quality.owed);
      EXPECT_NEAR(quality.wanted, last.wanted + due.wanted, 1e-3 * quality.wanted);
    }
    last = due;
  }
  EXPECT_GT(measured.quality().CapturedEnergy(), 0.2);
  EXPECT_LT(measured.quality().CapturedEnergy(), 0.9);
  EXPECT_GT(measured.quality().Cosine(), 0.2);
  EXPECT_EQ(plain.quality().chunks, 0u);
}

TEST_F(EncoderQualityTest, OfFramesThatAreNoGradientsNothingIsSaid) {
  Encodes("topk:10%/ef21");
  BundleEncoder encoder(table_, layout_, compression_, 0, {.quality_interval = 1});
  const std::vector<float> gradient = Gradient(kElements, 1);
  ASSERT_FALSE(Encode(1, gradient, &encoder).skipped);
  EXPECT_EQ(encoder.quality().chunks, 0u);
}

}  // namespace
}  // namespace sluice::worker
