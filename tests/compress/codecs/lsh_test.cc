// SPDX-License-Identifier: Apache-2.0
// Compares lsh with a plain reference, and tests its memory when frames are lost.

#include "compress/codecs/lsh.h"

#include <cmath>

#include "base/crc32c.h"
#include "base/float_bits.h"
#include "compress/coding/payload.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/one_chunk.h"

namespace sluice::compress {
namespace {

using ::testing::HasSubstr;

CodecSpec Lsh(const char* text = "lsh") { return *ParseCodecSpec(text); }

double LshEnergy(absl::Span<const float> x) {
  double energy = 0;
  for (const float value : x) energy += double{value} * value;
  return energy;
}

// The contents of a frame, as docs/wire-format.md defines them.
struct Read {
  uint32_t from = 0;
  std::vector<bool> full;
  std::vector<float> levels;
  std::vector<std::vector<int>> codes;  // Codes of each block; empty if the block has a gain.
};

Read ReadFrame(absl::Span<const std::byte> frame, size_t count) {
  const absl::Span<const std::byte> payload = FramePayload(frame);
  const size_t blocks = (count + 255) / 256;
  const std::byte* at = payload.data() + 4 + (blocks + 7) / 8 + 2 * blocks;
  Read read;
  read.from = LoadAt<uint32_t>(payload.data(), 0);
  for (size_t block = 0; block < blocks; ++block) {
    const std::byte bits = payload[4 + block / 8];
    read.full.push_back(((bits >> (block % 8)) & std::byte{1}) != std::byte{0});
    read.levels.push_back(
        FromBfloat(LoadAt<uint16_t>(payload.data() + 4 + (blocks + 7) / 8, block)));
    std::vector<int>& codes = read.codes.emplace_back();
    if (!read.full.back()) continue;
    for (size_t i = block * 256; i < std::min(count, block * 256 + 256); ++i) {
      codes.push_back(static_cast<int8_t>(*at++));
    }
  }
  EXPECT_EQ(at, payload.data() + payload.size());
  return read;
}

// A receiver for one sender. It decodes one element at a time.
class Reference {
 public:
  explicit Reference(size_t count) : memory_(count) {}

  std::vector<float> Decode(const Read& read) {
    if (read.from == 0) std::fill(memory_.begin(), memory_.end(), 0.0f);
    std::vector<float> values(memory_.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t block = i / 256;
      if (read.full[block]) {
        memory_[i] = static_cast<float>(read.codes[block][i % 256]) * read.levels[block];
        values[i] = memory_[i];
      } else {
        values[i] = read.levels[block] * memory_[i];
      }
    }
    return values;
  }

 private:
  std::vector<float> memory_;
};

// Returns gradients whose direction turns slowly. Each block turns at a different rate.
std::vector<float> Turning(size_t count, uint64_t step) {
  const std::vector<float> a = Gaussian(count, 1), b = Gaussian(count, 2);
  std::vector<float> x(count);
  for (size_t i = 0; i < count; ++i) {
    const double angle = 0.02 * static_cast<double>(step) * static_cast<double>(i / 256 % 5);
    x[i] = static_cast<float>(std::cos(angle) * a[i] + std::sin(angle) * b[i]);
  }
  return x;
}

TEST(Lsh, ReceiverDecodesAsTheReference) {
  for (const size_t count : {0u, 1u, 255u, 256u, 257u, 2048u, 2100u}) {
    OneChunk chunk(Lsh(), count, 1);
    Reference reference(count);
    size_t gains = 0, full = 0;
    for (uint64_t step = 0; step < 60; ++step) {
      const std::vector<float> mean = chunk.Step({Turning(count, step)});
      if (count == 0) continue;
      const Read read = ReadFrame(chunk.frames()[0], count);
      EXPECT_EQ(mean, reference.Decode(read)) << count << " elements, step " << step;
      for (const bool is_full : read.full) ++(is_full ? full : gains);
    }
    if (count == 0) continue;
    EXPECT_GT(gains, 0u);
    EXPECT_GT(full, 0u);
  }
}

TEST(Lsh, GainIsTheBestOneInEightBits) {
  constexpr size_t kCount = 256;
  OneChunk chunk(Lsh("lsh/noef"), kCount, 1);
  const std::vector<float> a = Gaussian(kCount, 3), b = Gaussian(kCount, 4);
  const std::vector<float> memory = chunk.Step({a});
  std::vector<float> x(kCount);
  for (size_t i = 0; i < kCount; ++i) x[i] = 3.7f * a[i] + 0.5f * b[i];
  chunk.Step({x});
  const Read read = ReadFrame(chunk.frames()[0], kCount);
  ASSERT_FALSE(read.full[0]);
  double product = 0;
  for (size_t i = 0; i < kCount; ++i) product += double{x[i]} * memory[i];
  EXPECT_EQ(read.levels[0], FromBfloat(ToBfloat(static_cast<float>(product / LshEnergy(memory)))));
  EXPECT_EQ(chunk.frames()[0].size(), kFrameHeaderSize + 4 + 1 + 2);
}

// Blocks at a given angle to the remembered blocks are encoded. Well below the limit of 45 degrees,
// nearly all must be sent as gains; well above it, nearly none.
TEST(Lsh, HashTellsAngles) {
  constexpr size_t kCount = 256 * 200;
  const auto share = [&](double degrees, double size) {
    OneChunk chunk(Lsh("lsh/noef"), kCount, 1);
    const std::vector<float> a = Gaussian(kCount, 5), b = Gaussian(kCount, 6);
    chunk.Step({a});
    const double angle = degrees * M_PI / 180;
    std::vector<float> x(kCount);
    for (size_t i = 0; i < kCount; ++i) {
      x[i] = static_cast<float>(size * (std::cos(angle) * a[i] + std::sin(angle) * b[i]));
    }
    chunk.Step({x});
    const Read read = ReadFrame(chunk.frames()[0], kCount);
    return static_cast<double>(std::count(read.full.begin(), read.full.end(), false)) / 200;
  };
  for (const double size : {1e-3, 1.0, 100.0}) {
    EXPECT_EQ(share(0, size), 1) << size;
    EXPECT_GE(share(30, size), 0.98) << size;
    EXPECT_GT(share(45, size), 0.2) << size;
    EXPECT_LT(share(45, size), 0.8) << size;
    EXPECT_LE(share(60, size), 0.02) << size;
    EXPECT_EQ(share(180, size), 0) << size;
  }
  // The gain would exceed its limit, so all blocks must be sent in full.
  EXPECT_EQ(share(0, 1000), 0);
}

TEST(Lsh, NeverAddsEnergyWhateverItRemembers) {
  constexpr size_t kCount = 1500;
  OneChunk chunk(Lsh("lsh/noef"), kCount, 1);
  for (uint64_t step = 0; step < 200; ++step) {
    std::vector<float> x = Turning(kCount, 3 * step);
    const std::vector<float> noise = HeavyTailed(kCount, step, 1e-2f);
    for (size_t i = 0; i < kCount; ++i) x[i] += 0.3f * noise[i];
    const std::vector<float> decoded = chunk.Step({x});
    double wrong = 0;
    for (size_t i = 0; i < kCount; ++i) {
      wrong += (double{x[i]} - decoded[i]) * (double{x[i]} - decoded[i]);
    }
    // At the largest angle of 45 degrees, half of the energy is expected to remain.
    EXPECT_LE(wrong, 0.75 * LshEnergy(x)) << step;
  }
}

TEST(Lsh, BlocksOfNothingCostNothing) {
  constexpr size_t kCount = 2560;
  OneChunk chunk(Lsh(), kCount, 1);
  for (int step = 0; step < 2; ++step) {
    for (const float x : chunk.Step({std::vector<float>(kCount, 0.0f)})) EXPECT_EQ(x, 0);
    EXPECT_EQ(chunk.frames()[0].size(), kFrameHeaderSize + 4 + 2 + 20);
  }
}

// Values near the largest float must be sent but not remembered, because gains of them could
// overflow.
TEST(Lsh, LargestBlocksAreNotRemembered) {
  constexpr size_t kCount = 256;
  OneChunk chunk(Lsh("lsh/noef"), kCount, 1);
  for (int step = 0; step < 3; ++step) {
    chunk.Step({std::vector<float>(kCount, 1e38f)});
    EXPECT_TRUE(ReadFrame(chunk.frames()[0], kCount).full[0]);
  }
  chunk.Step({std::vector<float>(kCount, 1e30f)});
  chunk.Step({std::vector<float>(kCount, 1e30f)});
  EXPECT_FALSE(ReadFrame(chunk.frames()[0], kCount).full[0]);
}

// If a frame is refused permanently, its values must return to the residual, and sender and
// receiver must restart with empty memories.
TEST(Lsh, RefusedFramesAreOwedAndForgotten) {
  constexpr size_t kCount = 1000;
  OneChunk chunk(Lsh(), kCount, 1);
  std::vector<double> balance(kCount);
  for (uint64_t step = 0; step < 40; ++step) {
    const std::vector<float> x = Turning(kCount, step);
    const bool refused = step % 7 == 3;
    chunk.Encode(0, x);
    const std::vector<float> mean =
        chunk.Receive(refused ? std::vector<uint32_t>{0} : std::vector<uint32_t>{});
    for (size_t i = 0; i < kCount; ++i) balance[i] += double{x[i]} - mean[i];
    if (step % 7 == 4) {
      EXPECT_EQ(ReadFrame(chunk.frames()[0], kCount).from, 0u);
    }
  }
  const absl::Span<const float> owed = chunk.sender(0).residual(0);
  for (size_t i = 0; i < kCount; ++i) EXPECT_NEAR(owed[i], balance[i], 1e-6) << i;
}

class LostFrames : public ::testing::Test {
 protected:
  static constexpr size_t kCount = 1000;
  std::vector<std::byte> Next() {
    std::vector<std::byte> frame;
    const absl::Status status = sender_.Encode(0, step_, Turning(kCount, 30 * step_), &frame);
    Check(status.ok(), status.ToString());
    sender_.EndStep(step_++);
    return frame;
  }
  absl::Status Receive(absl::Span<const std::byte> frame) {
    const absl::Status valid = receiver_->Validate(1, frame);
    if (!valid.ok()) return valid;
    std::vector<float> sum(kCount);
    receiver_->Add({{1, frame}}, absl::MakeSpan(sum));
    receiver_->Close(1, absl::MakeSpan(sum));
    return valid;
  }

  const ChunkConfig config_{.count = kCount, .spec = Lsh()};
  Compressor sender_{absl::MakeConstSpan(&config_, 1), {.seed = 1, .sender = 1}};
  std::unique_ptr<Aggregator> receiver_ = MakeAggregator(config_, 2);
  uint64_t step_ = 0;
};

TEST_F(LostFrames, AreNoticed) {
  ASSERT_TRUE(Receive(Next()).ok());
  ASSERT_TRUE(Receive(Next()).ok());
  Next();
  const absl::Status lost = Receive(Next());
  EXPECT_EQ(lost.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(lost.message()), HasSubstr("a frame was lost"));
}

TEST_F(LostFrames, AReceiverThatForgotRefuses) {
  ASSERT_TRUE(Receive(Next()).ok());
  receiver_ = MakeAggregator(config_, 2);
  EXPECT_THAT(std::string(Receive(Next()).message()), HasSubstr("the receiver has none"));
}

TEST_F(LostFrames, ASenderThatForgotBeginsAnew) {
  ASSERT_TRUE(Receive(Next()).ok());
  ASSERT_TRUE(Receive(Next()).ok());
  sender_ = Compressor(absl::MakeConstSpan(&config_, 1), {.seed = 1, .sender = 1});
  ASSERT_TRUE(Receive(Next()).ok());
  ASSERT_TRUE(Receive(Next()).ok());
}

TEST_F(LostFrames, OtherSendersAndFormatsAreRefused) {
  const std::vector<std::byte> frame = Next();
  ASSERT_TRUE(Receive(frame).ok());
  EXPECT_FALSE(receiver_->Validate(2, frame).ok());
  const std::vector<std::byte> second = Next();
  ASSERT_TRUE(receiver_->Validate(1, second).ok());
  EXPECT_FALSE(receiver_->Validate(0, second).ok());  // The frame refers to the memory of sender 1.
  const absl::Status other = receiver_->Validate(1, LoneCodec("int8").Encoded(Turning(kCount, 0)));
  EXPECT_THAT(std::string(other.message()), HasSubstr("send lsh"));
}

// Adds the same frame twice after a single validation, which never happens in a job. The receiver
// must not access memory out of bounds, and all sums must be finite.
TEST_F(LostFrames, TwoThatGoOnFromTheSameDoNoHarm) {
  ASSERT_TRUE(Receive(Next()).ok());
  const std::vector<std::byte> a = Next();
  ASSERT_TRUE(receiver_->Validate(1, a).ok());
  std::vector<float> sum(kCount);
  receiver_->Add({{1, a}}, absl::MakeSpan(sum));
  receiver_->Add({{1, a}}, absl::MakeSpan(sum));
  for (const float x : sum) EXPECT_TRUE(std::isfinite(x));
}

TEST(Lsh, RestoredRunsGoOnAsTheyWere) {
  constexpr size_t kCount = 1000;
  OneChunk first(Lsh(), kCount, 2);
  for (uint64_t step = 0; step < 9; ++step) {
    first.Step({Turning(kCount, step), Turning(kCount, 2 * step)});
  }
  OneChunk second(Lsh(), kCount, 2);
  ASSERT_TRUE(second.GoOnFrom(first).ok());
  for (uint64_t step = 9; step < 20; ++step) {
    const OneChunk::Gradients gradients = {Turning(kCount, step), Turning(kCount, 2 * step)};
    EXPECT_EQ(first.Step(gradients), second.Step(gradients));
    EXPECT_EQ(first.frames(), second.frames());
  }
}

TEST(Lsh, MemoryIsStated) {
  const std::unique_ptr<Aggregator> receiver = MakeAggregator({.count = 1000, .spec = Lsh()}, 3);
  EXPECT_EQ(receiver->state_bytes(), 3 * (4 * 1000 + 8));
}

TEST(Lsh, MalformedPayloadsAreRefused) {
  constexpr size_t kCount = 600;
  OneChunk chunk(Lsh(), kCount, 1);
  chunk.Step({Turning(kCount, 0)});
  const std::vector<std::byte> full = chunk.frames()[0];
  chunk.Step({Turning(kCount, 0)});
  const std::vector<std::byte> gains = chunk.frames()[0];
  ASSERT_EQ(gains.size(), kFrameHeaderSize + 4 + 1 + 6);
  const auto refused = [&](const std::vector<std::byte>& frame, size_t at, uint8_t value) {
    std::vector<std::byte> payload(frame.begin() + kFrameHeaderSize, frame.end());
    EXPECT_TRUE(ValidateLsh(payload, kCount).ok());
    payload[at] = static_cast<std::byte>(value);
    return !ValidateLsh(payload, kCount).ok();
  };
  EXPECT_TRUE(refused(gains, 4, 1));     // The block is marked as full but has no codes.
  EXPECT_TRUE(refused(gains, 4, 0x80));  // The bitmap marks a block that does not exist.
  EXPECT_TRUE(refused(gains, 6, 0xBF));  // The gain is below 0.
  EXPECT_TRUE(refused(gains, 6, 0x44));  // The gain is above 128.
  EXPECT_TRUE(refused(gains, 6, 0x7F));
  EXPECT_TRUE(refused(full, 6, 0x7F));  // The scale is not finite.
  EXPECT_TRUE(refused(full, 6, 0x80));
  EXPECT_TRUE(refused(full, 20, 0x80));  // The code is -128.
  std::vector<std::byte> fresh(gains.begin() + kFrameHeaderSize, gains.end());
  std::fill(fresh.begin(), fresh.begin() + 4, std::byte{0});
  // The frame has gains that refer to an empty memory.
  EXPECT_FALSE(ValidateLsh(fresh, kCount).ok());
  for (size_t size = 0; size < gains.size() - kFrameHeaderSize; ++size) {
    EXPECT_FALSE(ValidateLsh(FramePayload(gains).first(size), kCount).ok());
  }
}

}  // namespace
}  // namespace sluice::compress
