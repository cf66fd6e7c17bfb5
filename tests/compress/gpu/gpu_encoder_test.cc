// SPDX-License-Identifier: Apache-2.0
// Tests that a sender with gradients on a device produces the same frames and the same state as a
// sender on a processor, step by step. The device is a GPU or a simulation.
#include "compress/gpu/gpu_encoder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "compress/codec_table.h"
#include "compress/codecs/half.h"
#include "compress/compressor.h"
#include "tests/compress/gpu/breaking_device.h"
#include "tests/compress/gpu/device_under_test.h"
#include "tests/compress/gpu/kernels/encoded.h"

namespace sluice::compress::gpu {
namespace {

// Gradients of one type, and their values as a processor reads them.
struct Gradient {
  ElementType type = ElementType::kFloat32;
  float scale = 1;
  std::vector<float> floats;
  std::vector<uint16_t> halves;
  std::vector<float> wide;

  Gradient(ElementType of, float times, std::vector<float> values)
      : type(of), scale(times), floats(std::move(values)) {
    for (const float x : floats) {
      const uint16_t half = type == ElementType::kBfloat16 ? ToBfloat(x) : ToHalf(x);
      halves.push_back(half);
      const float exact = type == ElementType::kFloat32    ? x
                          : type == ElementType::kBfloat16 ? FromBfloat(half)
                                                           : WidenHalf(half);
      wide.push_back(exact * scale);
    }
  }
  DeviceGradient On(DeviceCopies* device) const {
    const void* const data =
        type == ElementType::kFloat32 ? device->Add(floats) : device->Add(halves);
    return {data, type, scale, nullptr};
  }
};

class GpuEncoder : public testing::Test {
 protected:
  void SetUp() override {
    if (MakeDeviceUnderTest() == nullptr) GTEST_SKIP() << "this machine has no such device";
  }
};

class TwoSenders {
 public:
  explicit TwoSenders(const std::vector<std::string>& specs)
      : device_(MakeEncodingDevice(MakeDeviceUnderTest())) {
    constexpr uint32_t kSizes[] = {4096, 1, 5000, 257, 70001, 1024, 12289, 255};
    for (size_t i = 0; i < specs.size() * std::size(kSizes); ++i) {
      ChunkConfig chunk;
      chunk.count = kSizes[i % std::size(kSizes)];
      chunk.spec = *ParseCodecSpec(specs[i / std::size(kSizes)]);
      chunk.id = static_cast<uint32_t>(i + 5);
      chunk.tensor = static_cast<uint32_t>(i / 3);
      for (const uint32_t rows : {64u, 50u}) {
        if (chunk.count % rows == 0) chunk.rows = rows;
      }
      chunks_.push_back(chunk);
    }
    plain_ = std::make_unique<Compressor>(chunks_, Compressor::Options{.seed = 3, .sender = 1});
    there_ = std::make_unique<Compressor>(
        chunks_, Compressor::Options{.seed = 3, .sender = 1, .device = device_.get()});
  }

  // Encodes a step in two bundles. `bad` is the chunk whose gradient is not finite, or SIZE_MAX if
  // all are finite.
  void Step(uint64_t step, ElementType type = ElementType::kFloat32, float scale = 1,
            size_t bad = SIZE_MAX) {
    for (const size_t odd : {0u, 1u}) {
      std::vector<uint32_t> ids;
      std::vector<Gradient> gradients;
      for (size_t i = odd; i < chunks_.size(); i += 2) {
        ids.push_back(static_cast<uint32_t>(i));
        std::vector<float> values = HeavyTailed(chunks_[i].count, 100 * step + i);
        if (i == bad) values[values.size() / 2] = INFINITY;
        gradients.emplace_back(type, scale, std::move(values));
      }
      copies_.Clear();
      std::vector<DeviceGradient> on_device;
      std::vector<absl::Span<const float>> wide;
      for (const Gradient& gradient : gradients) {
        on_device.push_back(gradient.On(&copies_));
        wide.emplace_back(gradient.wide);
      }
      const auto gradient_of = [&](size_t i) { return wide[i]; };
      std::vector<std::vector<std::byte>> expected, frames;
      const absl::Status want = plain_->EncodeEach(ids, step, gradient_of, &expected);
      const absl::Status got = there_->EncodeEach(ids, step, gradient_of, &frames, on_device);
      ASSERT_EQ(got.code(), want.code()) << got << " instead of " << want;
      ASSERT_EQ(there_->refused(), plain_->refused());
      if (!want.ok()) continue;
      for (size_t i = 0; i < ids.size(); ++i) {
        ASSERT_EQ(frames[i], expected[i])
            << "step " << step << ", chunk " << ids[i] << ", " << chunks_[ids[i]].count
            << " elements of " << ToString(chunks_[ids[i]].spec);
        // Each sender observes its frames as if it were the only sender.
        if (!plain_->observes(ids[i])) continue;
        plain_->Observe(ids[i], frames[i]);
        there_->Observe(ids[i], frames[i]);
      }
      last_ids_ = ids;
      last_ = std::move(frames);
    }
    plain_->EndStep(step);
    there_->EndStep(step);
  }

  void ExpectSameMemory() {
    const absl::Status fetched = there_->FetchResiduals();
    ASSERT_TRUE(fetched.ok()) << fetched;
    EXPECT_TRUE(there_->Save() == plain_->Save());
  }
  void ReturnLast() {
    for (size_t i = 0; i < last_ids_.size(); i += 3) {
      ASSERT_TRUE(plain_->ReturnFrame(last_ids_[i], last_[i]).ok());
      ASSERT_TRUE(there_->ReturnFrame(last_ids_[i], last_[i]).ok());
    }
  }
  EncodingDevice* device() { return device_.get(); }
  const std::vector<ChunkConfig>& chunks() const { return chunks_; }
  Compressor& plain() { return *plain_; }
  Compressor& there() { return *there_; }

 private:
  DeviceCopies copies_;
  std::unique_ptr<EncodingDevice> device_;
  std::vector<ChunkConfig> chunks_;
  std::unique_ptr<Compressor> plain_, there_;
  std::vector<uint32_t> last_ids_;
  std::vector<std::vector<std::byte>> last_;
};

const std::vector<std::string>& KernelSpecs() {
  static const auto* const specs = new std::vector<std::string>{"none",
                                                                "fp16",
                                                                "fp16:sr",
                                                                "bf16",
                                                                "bf16:sr",
                                                                "fp8",
                                                                "fp8:sr",
                                                                "fp8:e5m2",
                                                                "fp8:e5m2,sr",
                                                                "int8",
                                                                "int8:sr",
                                                                "int4",
                                                                "int4:sr",
                                                                "int2",
                                                                "int2:sr",
                                                                "int8:minmax",
                                                                "int4:minmax,sr",
                                                                "qsgd:2",
                                                                "qsgd:3",
                                                                "qsgd:4",
                                                                "qsgd:5",
                                                                "qsgd:8",
                                                                "natural",
                                                                "intsum:8",
                                                                "intsum:4",
                                                                "intsum:2",
                                                                "sign",
                                                                "onebit",
                                                                "signsgd",
                                                                "ternary:0.5",
                                                                "ternary:0.9,index=rice",
                                                                "topk:1%",
                                                                "topk:5%+int4",
                                                                "topk:2%+int8",
                                                                "topk:1%+sign",
                                                                "topk:1%,index=bitmap",
                                                                "topk:3%,scope=tensor",
                                                                "eden:1",
                                                                "eden:2",
                                                                "eden:4",
                                                                "blocktopk:256",
                                                                "blocktopk:16+int8",
                                                                "randomk:5%",
                                                                "randomk:30%,unbiased",
                                                                "powersgd:1",
                                                                "powersgd:4",
                                                                "powersgd:7",
                                                                "threshold:0.05",
                                                                "threshold:0.1+int4"};
  return *specs;
}

TEST_F(GpuEncoder, AllThatHasKernelsIsTheProcessors) {
  for (const std::string& spec : KernelSpecs()) {
    TwoSenders senders({spec});
    ASSERT_TRUE(senders.device()->MakeEncoder(1)->Encodes(*ParseCodecSpec(spec))) << spec;
    for (uint64_t step = 1; step <= 4; ++step) ASSERT_NO_FATAL_FAILURE(senders.Step(step)) << spec;
    ASSERT_NO_FATAL_FAILURE(senders.ExpectSameMemory()) << spec;
    ASSERT_NO_FATAL_FAILURE(senders.Step(5)) << spec;
  }
}

TEST_F(GpuEncoder, WithoutFeedbackToo) {
  for (const std::string& spec : KernelSpecs()) {
    TwoSenders senders({spec + "/noef"});
    for (uint64_t step = 1; step <= 3; ++step) ASSERT_NO_FATAL_FAILURE(senders.Step(step)) << spec;
  }
}

TEST_F(GpuEncoder, GradientsOfAllTypesScaled) {
  for (const ElementType type : {ElementType::kBfloat16, ElementType::kFloat16}) {
    TwoSenders senders({"int8", "topk:1%+int4", "ternary:0.5", "sign", "fp8", "intsum:8", "eden:2",
                        "blocktopk:64", "randomk:5%", "powersgd:2"});
    for (uint64_t step = 1; step <= 3; ++step) {
      ASSERT_NO_FATAL_FAILURE(senders.Step(step, type, step == 2 ? 1.0f : 0.37f));
    }
    senders.ExpectSameMemory();
  }
}

TEST_F(GpuEncoder, CodecsOfBothKindsTogether) {
  TwoSenders senders({"topk:1%", "eden:2", "topk_exact:1%", "none", "topk:1%/dgc:0.9", "int4",
                      "topk:5%/ef21", "terngrad", "powersgd:2", "int8/noef", "topk:1%+2bit",
                      "topk:1%/ef:0.9"});
  for (uint64_t step = 1; step <= 4; ++step) ASSERT_NO_FATAL_FAILURE(senders.Step(step));
  senders.ExpectSameMemory();
}

TEST_F(GpuEncoder, WhatIsNotFiniteChangesNothingAndTheRestStaysOwed) {
  TwoSenders senders({"topk:1%", "int8", "topk:5%+int4/noef", "terngrad", "powersgd:2"});
  ASSERT_NO_FATAL_FAILURE(senders.Step(1));
  for (size_t bad = 0; bad < senders.chunks().size(); bad += 5) {
    ASSERT_NO_FATAL_FAILURE(senders.Step(2 + bad, ElementType::kFloat32, 1, bad));
    senders.ExpectSameMemory();
    ASSERT_NO_FATAL_FAILURE(senders.Step(3 + bad));
  }
  // The same must hold if the refusal happens in the first step.
  TwoSenders others({"topk:1%"});
  ASSERT_NO_FATAL_FAILURE(others.Step(1, ElementType::kFloat32, 1, 2));
  ASSERT_NO_FATAL_FAILURE(others.Step(2));
  others.ExpectSameMemory();
}

TEST_F(GpuEncoder, RefusedFramesAreTakenBack) {
  TwoSenders senders({"topk:1%", "int4", "sign"});
  for (uint64_t step = 1; step <= 6; ++step) {
    ASSERT_NO_FATAL_FAILURE(senders.Step(step));
    if (step % 2 == 0) senders.ReturnLast();
  }
  senders.ExpectSameMemory();
}

TEST_F(GpuEncoder, GoesOnFromACheckpointOfEitherKind) {
  TwoSenders senders({"topk:1%", "int4", "intsum:4", "topk_exact:1%", "powersgd:2"});
  for (uint64_t step = 1; step <= 3; ++step) ASSERT_NO_FATAL_FAILURE(senders.Step(step));
  ASSERT_TRUE(senders.there().FetchResiduals().ok());
  const SavedCompressor of_device = senders.there().Save(), of_plain = senders.plain().Save();
  ASSERT_NO_FATAL_FAILURE(senders.Step(4));
  ASSERT_TRUE(senders.plain().Restore(of_device).ok());
  ASSERT_TRUE(senders.there().Restore(of_plain).ok());
  for (uint64_t step = 4; step <= 6; ++step) ASSERT_NO_FATAL_FAILURE(senders.Step(step));
  senders.ExpectSameMemory();
}

TEST_F(GpuEncoder, IsRecodedBetweenSteps) {
  TwoSenders senders({"topk:1%", "int4"});
  const char* const kSpecs[] = {"int8",   "topk_exact:1%", "topk:2%",
                                "eden:2", "none",          "ternary:0.5"};
  uint64_t step = 1;
  for (const char* const spec : kSpecs) {
    ASSERT_NO_FATAL_FAILURE(senders.Step(step++));
    std::vector<CodecSpec> specs(senders.chunks().size(), *ParseCodecSpec(spec));
    specs[0] = *ParseCodecSpec("topk:1%");
    for (size_t i = 0; i < specs.size(); ++i) {
      specs[i].compensator = senders.chunks()[i].spec.compensator;
    }
    ASSERT_TRUE(senders.plain().Recode(specs).ok());
    ASSERT_TRUE(senders.there().Recode(specs).ok());
    ASSERT_NO_FATAL_FAILURE(senders.Step(step++));
    senders.ExpectSameMemory();
  }
}

TEST_F(GpuEncoder, WhatAPlanToNoneFlushesStaysOwedWhereItsBundleIsRefused) {
  TwoSenders senders({"topk:1%"});
  for (uint64_t step = 1; step <= 3; ++step) ASSERT_NO_FATAL_FAILURE(senders.Step(step));
  const std::vector<CodecSpec> none(senders.chunks().size(), *ParseCodecSpec("none"));
  ASSERT_TRUE(senders.plain().Recode(none).ok());
  ASSERT_TRUE(senders.there().Recode(none).ok());
  ASSERT_NO_FATAL_FAILURE(senders.Step(4, ElementType::kFloat32, 1, 2));
  for (const size_t even : {0u, 4u, 6u}) {
    EXPECT_FALSE(senders.plain().residual(even).empty()) << "chunk " << even;
  }
  senders.ExpectSameMemory();
  // The next step must send the residual, which is zero afterwards.
  ASSERT_NO_FATAL_FAILURE(senders.Step(5));
  senders.ExpectSameMemory();
  EXPECT_EQ(senders.there().ResidualEnergy(), 0);
}

TEST_F(GpuEncoder, ADeviceWithoutMemoryIsReported) {
  if (!HasLimitedMemory()) GTEST_SKIP() << "the device's memory cannot be limited";
  const auto small = MakeEncodingDevice(MakeDeviceUnderTest(100000));
  const std::vector<float> values = HeavyTailed(20000, 1);
  for (const char* const spec : {"int8", "topk:1%/noef"}) {
    Compressor compressor({{.count = 20000, .spec = *ParseCodecSpec(spec)}},
                          {.device = small.get()});
    std::vector<std::vector<std::byte>> frames;
    const DeviceGradient gradient{values.data(), ElementType::kFloat32, 1, nullptr};
    const absl::Status status = compressor.EncodeEach(
        {0}, 1, [&](size_t) { return absl::MakeConstSpan(values); }, &frames, {gradient});
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << spec << ": " << status;
  }
}

TEST_F(GpuEncoder, ABrokenDeviceIsAnErrorWhereverItBreaks) {
  const std::vector<float> values = HeavyTailed(5000, 1);
  DeviceCopies copies;
  const void* const data = copies.Add(values);
  for (int waits = 0; waits < 5; ++waits) {
    DeviceCalls calls;
    const auto device =
        MakeEncodingDevice(std::make_unique<BreakingDevice>(MakeDeviceUnderTest(), waits, &calls));
    Compressor compressor({{.count = 5000, .spec = *ParseCodecSpec("topk:1%")}},
                          {.device = device.get()});
    const DeviceGradient gradient{data, ElementType::kFloat32, 1, nullptr};
    absl::Status status;
    for (uint64_t step = 1; step <= 3 && status.ok(); ++step) {
      std::vector<std::vector<std::byte>> frames;
      status = compressor.EncodeEach({0}, step, [&](size_t) { return absl::MakeConstSpan(values); },
                                     &frames, {gradient});
      compressor.EndStep(step);
      if (status.ok()) status = compressor.FetchResiduals();
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << waits << ": " << status;
    EXPECT_NE(status.message().find("it fell off the bus"), absl::string_view::npos);
  }
}

TEST_F(GpuEncoder, AllChunksOfACodecAreOneWorkAndWaitForTheirGradients) {
  DeviceCalls calls;
  const auto device =
      MakeEncodingDevice(std::make_unique<BreakingDevice>(MakeDeviceUnderTest(), 1000, &calls));
  std::vector<ChunkConfig> chunks(40);
  std::vector<uint32_t> ids;
  std::vector<DeviceGradient> gradients;
  const std::vector<float> values = HeavyTailed(3000, 1);
  DeviceCopies copies;
  const void* const data = copies.Add(values);
  int events[2];
  for (uint32_t i = 0; i < chunks.size(); ++i) {
    chunks[i].count = 3000;
    chunks[i].id = i;
    chunks[i].spec = *ParseCodecSpec(i % 2 == 0 ? "topk:1%" : "int8");
    ids.push_back(i);
    gradients.push_back({data, ElementType::kFloat32, 1, &events[i / 20]});
  }
  Compressor compressor(chunks, {.device = device.get()});
  for (uint64_t step = 1; step <= 2; ++step) {
    calls = {};
    std::vector<std::vector<std::byte>> frames;
    ASSERT_TRUE(
        compressor
            .EncodeEach(
                ids, step, [&](size_t) { return absl::MakeConstSpan(values); }, &frames, gradients)
            .ok());
    compressor.EndStep(step);
    EXPECT_EQ(calls.works, 2);
    EXPECT_EQ(calls.events, (std::vector<void*>{&events[0], &events[1]}));
  }
  EXPECT_EQ(calls.waits, 2) << "each step after the first waits twice";
}

TEST_F(GpuEncoder, SharedExponentsSaveAPass) {
  DeviceCalls calls;
  const auto device =
      MakeEncodingDevice(std::make_unique<BreakingDevice>(MakeDeviceUnderTest(), 1000, &calls));
  const std::vector<float> values = HeavyTailed(3000, 1);
  DeviceCopies copies;
  const DeviceGradient gradient{copies.Add(values), ElementType::kFloat32, 1, nullptr};
  Compressor compressor({{.count = 3000, .spec = *ParseCodecSpec("intsum:8")}},
                        {.device = device.get()});
  for (uint64_t step = 1; step <= 3; ++step) {
    calls = {};
    std::vector<std::vector<std::byte>> frames;
    ASSERT_TRUE(compressor
                    .EncodeEach({0}, step, [&](size_t) { return absl::MakeConstSpan(values); },
                                &frames, {gradient})
                    .ok());
    EXPECT_EQ(calls.works, 1);
    EXPECT_EQ(calls.maxima, step == 1 ? 1 : 0);
    compressor.Observe(0, frames[0]);
    compressor.EndStep(step);
  }
}

}  // namespace
}  // namespace sluice::compress::gpu
