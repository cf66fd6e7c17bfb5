// SPDX-License-Identifier: Apache-2.0
#include "worker/local/local_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "compress/codec_spec.h"
#include "compress/frame.h"

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

// Plain descent.
class Descent final : public ShardUpdates {
 public:
  void Set(size_t chunk, absl::Span<const float> values) override {
    parameters[chunk].assign(values.begin(), values.end());
    published[chunk] = parameters[chunk];
  }
  absl::Span<const float> Update(size_t chunk, double rate,
                                 absl::Span<const float> gradient) override {
    owed_.clear();
    for (size_t i = 0; i < gradient.size(); ++i) {
      parameters[chunk][i] -= static_cast<float>(rate) * gradient[i];
      owed_.push_back(parameters[chunk][i] - published[chunk][i]);
    }
    return owed_;
  }
  void Publish(size_t chunk, absl::Span<const std::byte> frames) override {
    compress::AddValidFrames(frames, absl::MakeSpan(published[chunk]));
  }

  std::map<size_t, std::vector<float>> parameters, published;

 private:
  std::vector<float> owed_;
};

// A client and the session that its Join returned.
struct Joined {
  Session* operator->() const { return session; }
  Session* get() const { return session; }

  std::unique_ptr<JobClient> client;
  Session* session = nullptr;
};

Joined Join(absl::string_view uplink, absl::string_view downlink, Descent** descent = nullptr) {
  LocalSessionOptions options;
  if (descent != nullptr) {
    options.make_updates = [descent](absl::Span<const uint32_t> counts) {
      EXPECT_THAT(counts, ElementsAre(1000, 1000, 1000, 5, 0));
      auto made = std::make_unique<Descent>();
      *descent = made.get();
      return made;
    };
  }
  options.exchange.compression.uplink = *compress::ParseCodecSpec(uplink);
  options.exchange.compression.downlink = *compress::ParseCodecSpec(downlink);
  options.exchange.compression.min_elements = 8;
  options.exchange.compression.layout = {.chunk_elements = 1000, .bundle_elements = 2000};
  options.exchange.buffer_sync_interval = 4;
  Joined made{.client = MakeLocalClient(options)};
  const absl::StatusOr<JoinedJob> joined = made.client->Join(Tensors(), "");
  EXPECT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ(joined->info.world_size, 1u);
  EXPECT_EQ(joined->info.parameters_agree, descent == nullptr);
  made.session = joined->session;
  return made;
}

std::vector<float> Wave(size_t size) {
  std::vector<float> values(size);
  for (size_t i = 0; i < size; ++i) values[i] = std::sin(static_cast<float>(i * i % 97) + 1);
  return values;
}

TEST(LocalSession, EachStepExchangesOneFragment) {
  LocalSessionOptions options;
  options.exchange.compression.uplink = *compress::ParseCodecSpec("none");
  options.exchange.compression.downlink = *compress::ParseCodecSpec("none");
  options.exchange.compression.layout.fragments = 2;
  const std::unique_ptr<JobClient> client = MakeLocalClient(options);
  const absl::StatusOr<JoinedJob> joined = client->Join(Tensors(), "");
  ASSERT_TRUE(joined.ok()) << joined.status();
  Session* const session = joined->session;
  const std::vector<float> w = Wave(3000), b = Wave(5);
  std::vector<int> seen(3000);
  for (int step = 1; step <= 2; ++step) {
    const std::vector<protocol::TensorPart> parts = session->PartsDue();
    if (parts.front().tensor == 0) {
      ASSERT_TRUE(session->Submit(0, w).ok());
    }
    if (parts.back().tensor == 1) {
      ASSERT_TRUE(session->Submit(1, b).ok());
    }
    ASSERT_TRUE(session->Wait().ok());
    std::vector<float> got(3000, -9);
    ASSERT_TRUE(session->Apply(0, absl::MakeSpan(got)).ok());
    std::vector<float> wanted(3000);
    for (const protocol::TensorPart& part : parts) {
      for (uint64_t i = part.offset; part.tensor == 0 && i < part.offset + part.count; ++i) {
        wanted[i] = w[i];
        ++seen[i];
      }
    }
    EXPECT_EQ(got, wanted) << "step " << step;
  }
  EXPECT_THAT(seen, Each(1));
}

TEST(LocalSession, LosslessCodecsGiveTheGradientBack) {
  const Joined session = Join("none", "none");
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

// Makes one exchange of gradients that are the same in each step.
void Exchange(Session* session, absl::Span<const float> w, absl::Span<const float> b) {
  ASSERT_TRUE(session->Submit(0, w).ok());
  ASSERT_TRUE(session->Submit(1, b).ok());
  const std::vector<float> buffer(5, 1.0f);
  if (session->BuffersDue()) {
    ASSERT_TRUE(session->Submit(2, buffer).ok());
  }
  ASSERT_TRUE(session->Wait().ok());
}

TEST(LocalSession, WhatBothCodecsLeaveOutComesLater) {
  const Joined session = Join("topk:10%", "topk:20%/ef");
  const std::vector<float> w = Wave(3000), b = Wave(5);
  std::vector<float> sum(3000, 0.0f);
  constexpr int kSteps = 200;
  for (int step = 1; step <= kSteps; ++step) {
    Exchange(session.get(), w, b);
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
  const Joined session = Join("none", "none");
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

TEST(LocalSession, PublishesUpdatesLikeAShard) {
  Descent* shard = nullptr;
  const Joined session = Join("topk:10%", "topk:20%/ef", &shard);
  session->SetRate(0.5f);
  const std::vector<float> w = Wave(3000), b = Wave(5);
  EXPECT_THAT(std::string(session->Submit(1, b).message()), HasSubstr("call AgreeOnParameters"));
  std::vector<float> own_w(3000, 2.0f), own_b(5, 3.0f), buffer(5, 1.0f);
  const std::vector<absl::Span<float>> parameters = {absl::MakeSpan(own_w), absl::MakeSpan(own_b),
                                                     absl::MakeSpan(buffer)};
  ASSERT_TRUE(session->AgreeOnParameters(parameters).ok());
  constexpr int kSteps = 200;
  for (int step = 1; step <= kSteps; ++step) {
    Exchange(session.get(), w, b);
    ASSERT_TRUE(session->ApplyUpdate(0, absl::MakeSpan(own_w)).ok());
    ASSERT_TRUE(session->ApplyUpdate(1, absl::MakeSpan(own_b)).ok());
    ASSERT_EQ(std::vector<float>(own_w.begin() + 1000, own_w.begin() + 2000), shard->published[1]);
    ASSERT_EQ(own_b, shard->published[3]);
  }
  double lost = 0, all = 0;
  for (size_t i = 0; i < own_w.size(); ++i) {
    const double moved = 2.0 - 0.5 * kSteps * w[i];
    lost += (own_w[i] - moved) * (own_w[i] - moved);
    all += moved * moved;
  }
  EXPECT_LT(lost / all, 0.02);
  EXPECT_THAT(std::string(session->Apply(0, absl::MakeSpan(own_w)).message()),
              HasSubstr("use ApplyUpdate"));
  const Joined means = Join("none", "none");
  ASSERT_TRUE(means->Submit(0, w).ok());
  ASSERT_TRUE(means->Submit(1, b).ok());
  ASSERT_TRUE(means->Wait().ok());
  EXPECT_THAT(std::string(means->ApplyUpdate(0, absl::MakeSpan(own_w)).message()),
              HasSubstr("a mean is not an update: use Apply"));
}

TEST(LocalSession, SaysWhatIsWrong) {
  const std::unique_ptr<JobClient> fresh = MakeLocalClient({});
  EXPECT_FALSE(fresh->figures().has_value());
  fresh->Abandon("the disk is full");
  EXPECT_THAT(std::string(fresh->Join(Tensors(), "").status().message()),
              HasSubstr("the disk is full"));
  const Joined session = Join("none", "none");
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
