#include "worker/local/local_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "compress/codec_spec.h"

namespace sluice::worker {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

protocol::TensorTable Tensors() {
  return {{.name = "w", .shape = {50, 60}, .strides = {}, .dtype = protocol::DType::kFloat32},
          {.name = "b", .shape = {5}, .strides = {}, .dtype = protocol::DType::kFloat32},
          {.name = "running_mean",
           .shape = {5},
           .strides = {},
           .dtype = protocol::DType::kFloat32,
           .role = protocol::TensorRole::kBuffer}};
}

std::unique_ptr<Session> Joined(absl::string_view uplink, absl::string_view downlink) {
  LocalSessionOptions options;
  options.compression.uplink = *compress::ParseCodecSpec(uplink);
  options.compression.downlink = *compress::ParseCodecSpec(downlink);
  options.compression.min_elements = 8;
  options.compression.layout = {.chunk_elements = 1000, .bundle_elements = 2000};
  options.buffer_sync_interval = 4;
  std::unique_ptr<Session> session = MakeLocalSession(options);
  const absl::StatusOr<JoinInfo> joined = session->Join(Tensors(), "");
  EXPECT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ(joined->world_size, 1u);
  return session;
}

std::vector<float> Wave(size_t size) {
  std::vector<float> values(size);
  for (size_t i = 0; i < size; ++i) values[i] = std::sin(static_cast<float>(i * i % 97) + 1);
  return values;
}

TEST(LocalSession, LosslessCodecsGiveTheGradientBack) {
  const std::unique_ptr<Session> session = Joined("none", "none");
  const std::vector<float> w = Wave(3000), b = Wave(5), buffer(5, 2.5f);
  for (uint64_t step = 1; step <= 5; ++step) {
    ASSERT_TRUE(session->Submit(1, b).ok());
    ASSERT_TRUE(session->Submit(0, w).ok());
    EXPECT_EQ(session->BuffersDue(), step == 4);
    if (step == 4) {
      ASSERT_TRUE(session->Submit(2, buffer).ok());
    }
    const absl::StatusOr<StepResult> result = session->Wait();
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->step, step);
    EXPECT_EQ(result->n_min, 1u);
    EXPECT_EQ(result->buffers_averaged, step == 4);
    EXPECT_THAT(result->without_mean, ElementsAre());
    std::vector<float> mean(3000, 9.0f);
    ASSERT_TRUE(session->Apply(0, absl::MakeSpan(mean)).ok());
    EXPECT_EQ(mean, w);
    std::vector<float> values(5, 1.0f);
    ASSERT_TRUE(session->ApplyScaled(1, -2, absl::MakeSpan(values)).ok());
    EXPECT_EQ(values[3], 1.0f - 2 * b[3]);
  }
  EXPECT_EQ(session->traffic().steps, 5u);
  EXPECT_EQ(session->figures()->dense_bytes, 5 * 4 * 3005u);
  EXPECT_TRUE(session->Leave().ok());
}

TEST(LocalSession, WhatBothCodecsLeaveOutComesLater) {
  const std::unique_ptr<Session> session = Joined("topk:10%", "topk:20%/ef");
  const std::vector<float> w = Wave(3000), b = Wave(5), buffer(5, 1.0f);
  std::vector<float> sum(3000, 0.0f);
  constexpr int kSteps = 200;
  for (int step = 1; step <= kSteps; ++step) {
    ASSERT_TRUE(session->Submit(0, w).ok());
    ASSERT_TRUE(session->Submit(1, b).ok());
    if (session->BuffersDue()) {
      ASSERT_TRUE(session->Submit(2, buffer).ok());
    }
    ASSERT_TRUE(session->Wait().ok());
    ASSERT_TRUE(session->ApplyScaled(0, 1.0f / kSteps, absl::MakeSpan(sum)).ok());
  }
  double lost = 0, all = 0;
  for (size_t i = 0; i < sum.size(); ++i) {
    lost += (sum[i] - w[i]) * (sum[i] - w[i]);
    all += w[i] * w[i];
  }
  EXPECT_LT(lost / all, 0.02);
  EXPECT_GT(session->traffic().bytes_up, 0u);
  EXPECT_LT(session->traffic().bytes_up, session->figures()->dense_bytes / 5);
}

TEST(LocalSession, WhatIsNotFiniteOrSkippedHasNoMean) {
  const std::unique_ptr<Session> session = Joined("none", "none");
  std::vector<float> w = Wave(3000);
  const std::vector<float> b = Wave(5);
  w[7] = std::numeric_limits<float>::infinity();
  ASSERT_TRUE(session->Submit(0, w).ok());
  ASSERT_TRUE(session->Submit(1, b).ok());
  absl::StatusOr<StepResult> result = session->Wait();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->first_skipped_tensor, "w");
  EXPECT_EQ(result->n_min, 0u);
  EXPECT_EQ(result->n_max, 1u);
  ASSERT_TRUE(session->Skip().ok());
  result = session->Wait();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->n_max, 0u);
  EXPECT_THAT(result->without_mean, ElementsAre(0, 1));
  std::vector<float> mean(5, 9.0f);
  ASSERT_TRUE(session->Apply(1, absl::MakeSpan(mean)).ok());
  EXPECT_THAT(mean, Each(0.0f));
}

TEST(LocalSession, SaysWhatIsWrong) {
  const std::unique_ptr<Session> fresh = MakeLocalSession({});
  EXPECT_THAT(std::string(fresh->Skip().message()), HasSubstr("call Join first"));
  const std::unique_ptr<Session> session = Joined("none", "none");
  const std::vector<float> b = Wave(5);
  EXPECT_THAT(std::string(session->Submit(0, b).message()), HasSubstr("has 5 elements, wanted"));
  EXPECT_THAT(std::string(session->Submit(2, b).message()), HasSubstr("ask BuffersDue first"));
  EXPECT_THAT(std::string(session->Submit(3, b).message()), HasSubstr("there is no tensor 3"));
  ASSERT_TRUE(session->Submit(1, b).ok());
  EXPECT_THAT(std::string(session->Submit(1, b).message()), HasSubstr("already in step 1"));
  EXPECT_THAT(std::string(session->Wait().status().message()), HasSubstr("before w was submitted"));
  session->Abandon("the data is gone");
  EXPECT_THAT(std::string(session->Wait().status().message()), HasSubstr("the data is gone"));
}

}  // namespace
}  // namespace sluice::worker
