// SPDX-License-Identifier: Apache-2.0
// Tests the client library through its public headers alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sluice/codec.h"
#include "sluice/session.h"
#include "sluice/status.h"

namespace sluice::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Client, ReadsAJob) {
  const auto job =
      ReadJob(R"({"name": "mine", "workers": 3, "compression": {"uplink": "int4"}})", "job");
  ASSERT_TRUE(job.ok()) << job.status().message;
  EXPECT_EQ(job->name, "mine");
  EXPECT_EQ(job->workers, 3u);
  EXPECT_EQ(job->uplink, "int4");
  EXPECT_FALSE(job->checkpoints);
  const auto wrong = ReadJob(R"({"nam": "mine"})", "settings");
  EXPECT_EQ(wrong.status().code, StatusCode::kInvalidArgument);
  EXPECT_THAT(wrong.status().message, HasSubstr("settings:1:2: unknown key 'nam'"));
}

TEST(Client, AJobThatStreamsFragmentsExchangesOneInEachStep) {
  const std::string text =
      "name: a\nmode: local_sgd\nlocal_steps: 4\nfragments: 2\nfragment_delay: 1\n"
      "merge_alpha: 0.5\nouter_optimizer: average\n"
      "compression: {uplink: none, downlink: none}\n";
  const auto job = ReadJob(text, "job");
  ASSERT_TRUE(job.ok()) << job.status().message;
  EXPECT_EQ(job->fragments, 2u);
  EXPECT_EQ(job->fragment_delay, 1u);
  EXPECT_EQ(job->merge_alpha, 0.5);
  auto session = Session::Create({.job = text});
  ASSERT_TRUE(session.ok()) << session.status().message;
  EXPECT_TRUE((*session)->PartsDue().empty()) << "the session has not joined";
  ASSERT_TRUE(
      (*session)->Join({{.name = "a", .shape = {600}}, {.name = "b", .shape = {500}}}, "").ok());
  // Each element goes down by 1 in each of the two steps.
  const std::vector<std::vector<float>> changes = {std::vector<float>(600, -1),
                                                   std::vector<float>(500, -1)};
  std::vector<std::vector<float>> published = {std::vector<float>(600), std::vector<float>(500)};
  ASSERT_TRUE(
      (*session)
          ->AgreeOnParameters({std::span<float>(published[0]), std::span<float>(published[1])})
          .ok());
  std::vector<size_t> exchanged(2);
  for (int step = 1; step <= 2; ++step) {
    std::set<uint32_t> due;
    for (const TensorPart& part : (*session)->PartsDue()) {
      exchanged[part.tensor] += part.count;
      due.insert(part.tensor);
    }
    for (const uint32_t tensor : due) {
      const std::vector<float>& change = changes[tensor];
      const Status submitted =
          (*session)->Submit(tensor, {.data = change.data(), .size = change.size()});
      ASSERT_TRUE(submitted.ok()) << submitted.message;
    }
    ASSERT_TRUE((*session)->WaitFor(1).ok());
    for (const uint32_t tensor : due) {
      ASSERT_TRUE((*session)->ApplyUpdate(tensor, std::span<float>(published[tensor])).ok());
    }
  }
  EXPECT_EQ(exchanged, (std::vector<size_t>{600, 500})) << "each element in one of two steps";
  for (const std::vector<float>& values : published) {
    EXPECT_EQ(values, std::vector<float>(values.size(), 1));
  }
}

TEST(Client, ASessionWithoutServersExchangesWithItself) {
  auto session =
      Session::Create({.job = "name: mine\ncompression: {uplink: none, downlink: none}\n"});
  ASSERT_TRUE(session.ok()) << session.status().message;
  const auto joined = (*session)->Join({{.name = "w", .shape = {4}}}, "");
  ASSERT_TRUE(joined.ok()) << joined.status().message;
  std::vector<float> gradient = {1, -2, 3, 4.5f};
  ASSERT_TRUE((*session)->Submit(0, {.data = gradient.data(), .size = 4, .scale = 2}).ok());
  const auto result = (*session)->WaitFor(1);
  ASSERT_TRUE(result.ok()) << result.status().message;
  ASSERT_TRUE(result->has_value());
  EXPECT_EQ((*result)->step, 1u);
  ASSERT_TRUE((*session)->Apply(0, std::span<float>(gradient)).ok());
  EXPECT_EQ(gradient, (std::vector<float>{2, -4, 6, 9}));
  EXPECT_EQ((*session)->figures().steps, 1u);
  EXPECT_TRUE((*session)->Leave().ok());
}

TEST(Client, MeansAreScaledAndRoundedToTheProgramsType) {
  auto session =
      Session::Create({.job = "name: mine\ncompression: {uplink: none, downlink: none}\n"});
  ASSERT_TRUE(session.ok()) << session.status().message;
  constexpr int64_t kSize = 8;
  const std::vector<Tensor> tensors = {{.name = "w", .shape = {kSize}},
                                       {.name = "b", .shape = {1}, .is_buffer = true}};
  ASSERT_TRUE((*session)->Join(tensors, "").ok());
  const std::vector<float> gradient = {1,          1 + 0x1p-8f, -1 - 3 * 0x1p-8f, 0x1p-24f,
                                       32759.996f, 32760,       -3e38f,           1.5e-8f};
  ASSERT_TRUE((*session)->Submit(0, {.data = gradient.data(), .size = kSize}).ok());
  ASSERT_TRUE((*session)->WaitFor(1).ok());

  std::vector<uint16_t> bits(kSize);
  MeanTarget target = {.data = bits.data(), .size = kSize, .type = ElementType::kBfloat16};
  ASSERT_TRUE((*session)->Apply(0, target).ok());
  // Ties go to the even neighbour.
  EXPECT_THAT(bits, ElementsAre(0x3F80, 0x3F80, 0xBF82, 0x3380, 0x4700, 0x4700, 0xFF62, 0x3281));
  target.scale = 2;
  ASSERT_TRUE((*session)->Apply(0, target).ok());
  EXPECT_THAT(bits, ElementsAre(0x4000, 0x4000, 0xC002, 0x3400, 0x4780, 0x4780, 0xFF80, 0x3301));
  target.type = ElementType::kFloat16;
  ASSERT_TRUE((*session)->Apply(0, target).ok());
  // 65519.992 is the largest number here that does not become infinite.
  EXPECT_THAT(bits, ElementsAre(0x4000, 0x4004, 0xC00C, 0x0002, 0x7BFF, 0x7C00, 0xFC00, 0x0001));
  std::vector<float> floats(kSize);
  target = {.data = floats.data(), .size = kSize, .scale = 0.5f};
  ASSERT_TRUE((*session)->Apply(0, target).ok());
  EXPECT_EQ(floats[4], 32759.996f / 2);
  EXPECT_EQ((*session)->Apply(1, target).code, StatusCode::kInvalidArgument);
  EXPECT_TRUE((*session)->Leave().ok());
}

TEST(Client, LocalStepsEndWithTheOuterOptimizer) {
  const std::string text =
      "name: mine\nmode: local_sgd\nlocal_steps: 7\nouter_lr: 0.5\nouter_momentum: 0.5\n"
      "compression: {uplink: none, downlink: none}\n";
  const auto job = ReadJob(text, "job");
  ASSERT_TRUE(job.ok()) << job.status().message;
  EXPECT_EQ(job->local_steps, 7u);
  EXPECT_EQ(job->outer_optimizer, "nesterov");
  EXPECT_EQ(job->outer_lr, 0.5);
  EXPECT_EQ(job->outer_momentum, 0.5);
  auto session = Session::Create({.job = text});
  ASSERT_TRUE(session.ok()) << session.status().message;
  const auto joined = (*session)->Join({{.name = "w", .shape = {4}}}, "");
  ASSERT_TRUE(joined.ok()) << joined.status().message;
  EXPECT_FALSE(joined->parameters_agree);
  std::vector<float> parameters(4, 10.0f);
  ASSERT_TRUE((*session)->AgreeOnParameters({std::span<float>(parameters)}).ok());
  const std::vector<float> change(4, 1.0f);
  // The momentum is 1 and then 1.5.
  for (const float expected : {10 - 0.5f * (1 + 0.5f), 9.25f - 0.5f * (1 + 0.75f)}) {
    ASSERT_TRUE((*session)->Submit(0, {.data = change.data(), .size = 4}).ok());
    ASSERT_TRUE((*session)->WaitFor(1).ok());
    ASSERT_TRUE((*session)->ApplyUpdate(0, std::span<float>(parameters)).ok());
    EXPECT_EQ(parameters, std::vector<float>(4, expected));
  }
  EXPECT_THAT((*session)->Apply(0, std::span<float>(parameters)).message,
              HasSubstr("use ApplyUpdate"));
}

// A session with one tensor of 8 elements, of which each step sends one.
class SavedCompressor : public ::testing::Test {
 protected:
  static std::unique_ptr<Session> Begin(int64_t elements = 8) {
    auto session = Session::Create({.job = "name: mine\ncompression: {uplink: \"topk:12.5%\", "
                                           "downlink: none, min_elements: 1}\n"});
    EXPECT_TRUE(session.ok()) << session.status().message;
    EXPECT_TRUE((*session)->Join({{.name = "w", .shape = {elements}}}, "").ok());
    return std::move(*session);
  }
  static std::vector<float> Step(Session* session) {
    std::vector<float> values = {8, 7, 6, 5, 4, 3, 2, 1};
    EXPECT_TRUE(session->Submit(0, {.data = values.data(), .size = values.size()}).ok());
    EXPECT_TRUE(session->WaitFor(1).ok());
    EXPECT_TRUE(session->Apply(0, std::span<float>(values)).ok());
    return values;
  }
};

TEST_F(SavedCompressor, ContinuesInANewSession) {
  const auto before = Begin();
  (void)Step(before.get());
  std::vector<float> residual(8);
  const auto rest = before->SaveCompressor({std::span<float>(residual)});
  ASSERT_TRUE(rest.ok()) << rest.status().message;
  EXPECT_EQ(residual, (std::vector<float>{0, 7, 6, 5, 4, 3, 2, 1}));
  const auto after = Begin();
  const Status restored = after->RestoreCompressor(*rest, {std::span<const float>(residual)});
  ASSERT_TRUE(restored.ok()) << restored.message;
  EXPECT_EQ(Step(after.get()), Step(before.get()));
}

TEST_F(SavedCompressor, RefusesAStateThatDoesNotFit) {
  const auto session = Begin();
  std::vector<float> residual(8);
  const auto rest = session->SaveCompressor({std::span<float>(residual)});
  ASSERT_TRUE(rest.ok()) << rest.status().message;
  const std::span<const float> whole(residual);
  const auto refused = [&](Session* by, const std::string& bytes, std::span<const float> values) {
    const Status status = by->RestoreCompressor(bytes, {values});
    EXPECT_FALSE(status.ok());
    return status;
  };
  std::string damaged = *rest;
  damaged[damaged.size() / 2] ^= 1;
  EXPECT_EQ(refused(session.get(), damaged, whole).code, StatusCode::kDataLoss);
  EXPECT_THAT(refused(session.get(), *rest, whole.first(7)).message,
              HasSubstr("the residual of tensor 0 has 7 elements"));
  EXPECT_EQ(refused(Begin(9).get(), *rest, whole).code, StatusCode::kInvalidArgument);
  EXPECT_FALSE(session->SaveCompressor({std::span<float>(residual).first(7)}).ok());
  EXPECT_TRUE(session->RestoreCompressor(*rest, {whole}).ok());
  (void)Step(session.get());
  EXPECT_EQ(refused(session.get(), *rest, whole).code, StatusCode::kFailedPrecondition);
  EXPECT_TRUE(session->Submit(0, {.data = residual.data(), .size = residual.size()}).ok());
  EXPECT_THAT(session->SaveCompressor({std::span<float>(residual)}).status().message,
              HasSubstr("step 2 is open"));
}

TEST(Client, RefusesANumberOfThreadsThatItCannotStart) {
  for (const uint32_t threads : {0u, 257u}) {
    const auto session = Session::Create({.job = "name: mine\n", .threads = threads});
    ASSERT_FALSE(session.ok());
    EXPECT_EQ(session.status().message,
              "threads is " + std::to_string(threads) + ": give 1 to 256");
  }
}

TEST(Client, ASessionWithoutItsServerSaysWhere) {
  auto session = Session::Create(
      {.job = "name: mine\n", .coordinator = "127.0.0.1:1", .join_timeout_seconds = 0.01});
  ASSERT_TRUE(session.ok()) << session.status().message;
  const auto joined = (*session)->Join({{.name = "w", .shape = {4}}}, "");
  EXPECT_EQ(joined.status().code, StatusCode::kUnavailable);
  EXPECT_THAT(joined.status().message, HasSubstr("127.0.0.1:1"));
}

TEST(Client, ACodecKeepsWhatItDrops) {
  auto codec = Codec::Create("topk:25%", {8}, 0, 0);
  ASSERT_TRUE(codec.ok()) << codec.status().message;
  const std::vector<float> gradient = {1, 2, 3, 4, 5, 6, 7, 8};
  const auto frames = (*codec)->Encode(gradient);
  ASSERT_TRUE(frames.ok()) << frames.status().message;
  EXPECT_EQ(*DecodedSize(*frames), 8u);
  std::vector<float> decoded(8, 0.0f);
  ASSERT_TRUE(DecodeAdd(*frames, decoded).ok());
  const std::vector<float> residual = (*codec)->Residual();
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(decoded[i] + residual[i], gradient[i]);
  EXPECT_FALSE((*codec)->Encode(std::span<const float>(gradient).first(7)).ok());
  EXPECT_EQ(DecodeAdd(*frames, std::span<float>(decoded).first(7)).code,
            StatusCode::kInvalidArgument);
}

TEST(Client, MomentumFollowsTheCodecs) {
  EXPECT_EQ(*MomentumWith("int8", "int8", 0.9), 0.9);
  EXPECT_EQ(*MomentumWith("topk:1%", "int8", 0.9), 0.5);
  EXPECT_EQ(*MomentumWith("int8", "ternary:0.5", 0.9), 0.5);
  EXPECT_FALSE(MomentumWith("int9", "int8", 0.9).ok());
}

}  // namespace
}  // namespace sluice::client
