// SPDX-License-Identifier: Apache-2.0
#include "worker/core/result_applier.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "compress/codec_table.h"
#include "compress/frame.h"

namespace sluice::worker {
namespace {

constexpr size_t kParts = 11;
constexpr size_t kCount = 500;

std::vector<std::vector<std::byte>> FramesOf(absl::string_view spec) {
  const std::unique_ptr<compress::Codec> codec =
      compress::MakeCodec(*compress::ParseCodecSpec(spec));
  std::vector<std::vector<std::byte>> frames(kParts);
  CounterRandom random(1, 2);
  for (std::vector<std::byte>& frame : frames) {
    std::vector<float> values(kCount);
    for (float& value : values) value = static_cast<float>(random.Uniform()) - 0.5f;
    const absl::Status encoded = compress::EncodeFrame(*codec, {.gradient = values}, &frame);
    Check(encoded.ok(), encoded.message());
  }
  return frames;
}

std::vector<ResultPart> PartsOf(const std::vector<std::vector<std::byte>>& frames) {
  std::vector<ResultPart> parts;
  for (size_t i = 0; i < frames.size(); ++i) {
    parts.push_back(
        {.offset = i * kCount, .count = kCount, .from_zero = i % 2 == 0, .frames = frames[i]});
  }
  return parts;
}

TEST(ResultApplier, ThreadsDoNotChangeAValue) {
  for (const char* const spec : {"none", "topk:10%+int4", "int8"}) {
    SCOPED_TRACE(spec);
    const std::vector<std::vector<std::byte>> frames = FramesOf(spec);
    const std::vector<ResultPart> parts = PartsOf(frames);
    const std::vector<float> before(kParts * kCount, 0.25f);
    std::vector<float> added = before, written = before;
    AddParts(parts, -0.3f, absl::MakeSpan(added));
    WriteParts(parts, absl::MakeSpan(written));
    ASSERT_NE(added, before);
    for (const size_t threads : {size_t{1}, size_t{2}, size_t{5}}) {
      ResultApplier applier(threads, nullptr);
      std::vector<float> values = before;
      applier.Add(parts, -0.3f, absl::MakeSpan(values));
      EXPECT_EQ(values, added) << threads << " threads";
      values = before;
      applier.Write(parts, absl::MakeSpan(values));
      EXPECT_EQ(values, written) << threads << " threads";
      applier.Add({}, 1, absl::MakeSpan(values));
      EXPECT_EQ(values, written);
    }
  }
}

TEST(ResultApplier, CallsAtTheSameTimeTakeTurns) {
  const std::vector<std::vector<std::byte>> frames = FramesOf("int8");
  const std::vector<ResultPart> parts = PartsOf(frames);
  std::vector<float> expected(kParts * kCount);
  AddParts(parts, 2, absl::MakeSpan(expected));
  ResultApplier applier(3, nullptr);
  std::vector<std::vector<float>> values(4, std::vector<float>(kParts * kCount));
  std::vector<std::thread> callers;
  for (std::vector<float>& own : values) {
    callers.emplace_back([&] { applier.Add(parts, 2, absl::MakeSpan(own)); });
  }
  for (std::thread& caller : callers) caller.join();
  for (const std::vector<float>& own : values) EXPECT_EQ(own, expected);
}

}  // namespace
}  // namespace sluice::worker
