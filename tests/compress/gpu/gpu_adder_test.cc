// SPDX-License-Identifier: Apache-2.0
// Tests that a device and the processor compute the same sums, bit for bit.
#include <gtest/gtest.h>

#include <memory>

#include "compress/compressor.h"
#include "compress/gpu/gpu_encoder.h"
#include "tests/compress/gpu/breaking_device.h"
#include "tests/compress/gpu/device_under_test.h"
#include "tests/compress/gpu/kernels/encoded.h"

namespace sluice::compress::gpu {
namespace {

class GpuAdder : public testing::Test {
 protected:
  void SetUp() override {
    if (MakeDeviceUnderTest() == nullptr) GTEST_SKIP() << "this machine has no such device";
    memory_ = MakeDeviceUnderTest();
    device_ = MakeEncodingDevice(MakeDeviceUnderTest());
  }

  // Returns frames for a chunk of `count` elements. The codec's frames can be decoded alone.
  static std::vector<std::vector<std::byte>> Frames(const CodecEntry& codec, size_t count,
                                                    const std::string& spec) {
    std::vector<std::vector<std::byte>> frames;
    const uint32_t rows = count % 50 == 0 ? 50 : count % 15 == 0 ? 15 : 0;
    Compressor compressor({{.count = count, .spec = *ParseCodecSpec(spec), .rows = rows}}, {});
    for (uint64_t step = 1; step <= 2; ++step) {
      std::vector<std::byte> frame;
      EXPECT_TRUE(compressor.Encode(0, step, HeavyTailed(count, step), &frame).ok()) << codec.name;
      if (DecodeAlone(frame)) frames.push_back(frame);
      compressor.EndStep(step);
    }
    return frames;
  }

  // Adds frames to copies of `sums` on the device, and compares the result with the processor's.
  void ExpectSame(std::vector<std::vector<float>> sums,
                  const std::vector<std::vector<std::byte>>& frames,
                  const std::vector<bool>& from_zero, const std::string& what) {
    std::vector<DeviceSum> there;
    for (size_t i = 0; i < sums.size(); ++i) {
      const size_t bytes = sums[i].size() * sizeof(float);
      auto* const copy = static_cast<float*>(memory_->Allocate(bytes));
      memory_->CopyIn(copy, sums[i].data(), bytes);
      memory_->Wait();
      there.push_back({copy, sums[i].size(), from_zero[i], frames[i]});
      if (from_zero[i]) std::fill(sums[i].begin(), sums[i].end(), 0.0f);
      if (!frames[i].empty()) AddValidFrames(frames[i], absl::MakeSpan(sums[i]));
    }
    const absl::Status added = device_->Add(there, nullptr);
    ASSERT_TRUE(added.ok()) << added;
    for (size_t i = 0; i < sums.size(); ++i) {
      std::vector<float> got(sums[i].size());
      memory_->CopyOut(got.data(), there[i].sum, got.size() * sizeof(float));
      memory_->Wait();
      memory_->Free(there[i].sum);
      ASSERT_EQ(std::memcmp(got.data(), sums[i].data(), got.size() * sizeof(float)), 0)
          << what << ", sum " << i << " of " << got.size() << " elements";
    }
  }

  std::unique_ptr<Device> memory_;
  std::unique_ptr<EncodingDevice> device_;
};

TEST_F(GpuAdder, FramesOfAllCodecsTogether) {
  std::vector<std::vector<float>> sums;
  std::vector<std::vector<std::byte>> frames;
  std::vector<bool> from_zero;
  std::vector<std::string> specs;
  for (const CodecEntry& codec : Codecs()) specs.emplace_back(codec.example);
  for (const char* const more :
       {"fp8:e5m2", "int8:minmax", "int4:minmax", "qsgd:3", "qsgd:5", "intsum:4", "powersgd:1",
        "powersgd:9", "topk:5%+int8", "threshold:0.1,index=packed+sign"}) {
    specs.emplace_back(more);
  }
  for (const std::string& spec : specs) {
    for (const size_t count : {1u, 255u, 4097u, 20000u}) {
      for (std::vector<std::byte>& frame :
           Frames(FindCodec(ParseCodecSpec(spec)->codec), count, spec)) {
        // The sums include zeros of both signs.
        sums.push_back(MadeUp(sums.size() % 8 == 4 ? 5 : sums.size() % 8, count, sums.size()));
        frames.push_back(std::move(frame));
        from_zero.push_back(sums.size() % 3 == 0);
      }
    }
  }
  ASSERT_GT(sums.size(), 150u);
  ExpectSame(sums, frames, from_zero, "all codecs");
}

TEST_F(GpuAdder, FramesThatFollowEachOtherAndNone) {
  const CodecEntry& topk = FindCodec(CodecId::kTopK);
  std::vector<std::vector<std::byte>> both(1);
  for (const auto& frame : Frames(topk, 5000, "topk:1%")) {
    both[0].insert(both[0].end(), frame.begin(), frame.end());
  }
  for (const auto& frame : Frames(topk, 5000, "int8")) {
    both[0].insert(both[0].end(), frame.begin(), frame.end());
  }
  for (const bool zero : {false, true}) {
    ExpectSame({MadeUp(0, 5000, 1)}, both, {zero}, "four frames");
    ExpectSame({MadeUp(1, 5000, 1)}, {{}}, {zero}, "none");
  }
}

TEST_F(GpuAdder, AsMuchAsTakesSeveralTurns) {
  const size_t count = 1 << 19;
  const std::vector<std::vector<std::byte>> frame =
      Frames(FindCodec(CodecId::kNone), count, "none");
  const std::vector<std::vector<float>> sums(40, MadeUp(0, count, 1));
  ExpectSame(sums, std::vector<std::vector<std::byte>>(40, frame[0]), std::vector<bool>(40),
             "80 MB");
}

TEST_F(GpuAdder, FailuresAreSaid) {
  DeviceCalls calls;
  const auto broken =
      MakeEncodingDevice(std::make_unique<BreakingDevice>(MakeDeviceUnderTest(), 0, &calls));
  EXPECT_EQ(broken->Add({}, nullptr).code(), absl::StatusCode::kInternal);
  if (!HasLimitedMemory()) return;
  const auto small = MakeEncodingDevice(MakeDeviceUnderTest(1000));
  const auto frame = Frames(FindCodec(CodecId::kNone), 5000, "none");
  std::vector<float> sum(5000);
  EXPECT_EQ(small->Add({{sum.data(), 5000, false, frame[0]}}, nullptr).code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace sluice::compress::gpu
