// SPDX-License-Identifier: Apache-2.0
// Tests a pipeline in a job whose workers do not wait for each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compress/codec_table.h"
#include "compress/frame.h"
#include "tests/worker/core/one_worker.h"
#include "tests/worker/core/read_results.h"
#include "worker/core/bundle_encoder.h"

namespace sluice::worker {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

std::string FrameOf(const std::vector<float>& values) {
  std::vector<std::byte> frame;
  const std::unique_ptr<compress::Codec> codec =
      compress::MakeCodec({.codec = compress::CodecId::kNone});
  EXPECT_TRUE(compress::EncodeFrame(*codec, {.gradient = values, .residual = {}}, &frame).ok());
  return {reinterpret_cast<const char*>(frame.data()), frame.size()};
}

// The job has a tensor of two elements and a buffer of one element, each in its own bundle. After
// step 0, the version is 1 and the tensor's values are 10, 10.
class AsyncPipelineTest : public testing::Test {
 protected:
  AsyncPipelineTest() : pipeline_(Options()), encoder_(table_, layout_, {}, 0) {
    pipeline_.StartStep();
    EXPECT_TRUE(pipeline_.BuffersDue(true)) << "step 0 exchanges the buffers too";
    Submit(0, {10, 10});
    Submit(1, {3});
    for (const auto& exchange : TakeSends()) {
      protocol::ExchangeReply answer = ResultOf(*exchange);
      answer.exact = true;
      answer.version = 1;
      Answer(std::move(answer));
    }
    EXPECT_FALSE(pipeline_.step_open());
    EXPECT_TRUE(ReadMean(pipeline_, 0, absl::MakeSpan(parameters_)).ok());
  }

  PipelineOptions Options() {
    PipelineOptions options;
    options.table = table_;
    options.layout = layout_;
    options.parameters_agree = false;
    options.exchange.mode = job::Mode::kAsync;
    options.world_size = 4;
    return options;
  }
  void Submit(uint32_t tensor, std::vector<float> values) {
    values_[tensor] = std::move(values);
    ASSERT_TRUE(pipeline_.TensorReady(tensor, values_[tensor]).ok());
    while (std::optional<EncodeTask> task = pipeline_.NextEncoding()) {
      EXPECT_TRUE(task->published.empty());
      pipeline_.Encoded(encoder_.Encode(*task), &effects_);
    }
  }
  std::vector<std::shared_ptr<const protocol::ExchangeRequest>> TakeSends() {
    std::vector<std::shared_ptr<const protocol::ExchangeRequest>> sends = SentBy(effects_);
    effects_.clear();
    return sends;
  }
  void Answer(protocol::ExchangeReply answer) {
    answer.record.result_checksum = protocol::BundleChecksum(answer.results);
    pipeline_.Answer(0, std::move(answer), &effects_);
  }
  // Runs a step. `change` edits the result, which is initially empty.
  template <typename Change>
  void Step(const Change& change) {
    pipeline_.StartStep();
    Submit(0, {1, 2});
    for (const auto& exchange : TakeSends()) {
      protocol::ExchangeReply answer = ResultOf(*exchange);
      answer.results.clear();
      answer.base_version = answer.version = exchange->base_version;
      if (exchange->bundle == 0) change(&answer);
      Answer(std::move(answer));
    }
  }
  std::vector<float> Applied() {
    EXPECT_TRUE(ReadResult(pipeline_, 0, ResultUse::kUpdate, absl::MakeSpan(parameters_)).ok());
    return parameters_;
  }

  const protocol::TensorTable table_ = {
      {.name = "w", .shape = {2}, .strides = {}},
      {.name = "mean", .shape = {1}, .strides = {}, .role = protocol::TensorRole::kBuffer}};
  const protocol::Layout layout_ = *protocol::BuildLayout(table_, 1, {});
  Pipeline pipeline_;
  BundleEncoder encoder_;
  Pipeline::Effects effects_;
  std::vector<float> values_[2];
  std::vector<float> parameters_ = {0, 0};
};

TEST_F(AsyncPipelineTest, TakesAResultThatBringsNothing) {
  Step([](protocol::ExchangeReply*) {});
  ASSERT_TRUE(pipeline_.status().ok()) << pipeline_.status();
  EXPECT_FALSE(pipeline_.step_open());
  EXPECT_THAT(Applied(), ElementsAre(10, 10));
}

// A plan without lockstep may start at any step and have any number. The worker uses it from the
// next step on.
TEST_F(AsyncPipelineTest, APlanHoldsFromTheStepAfterItsResult) {
  PipelineOptions options = Options();
  options.table = {{.name = "a", .shape = {2}, .strides = {}},
                   {.name = "b", .shape = {2}, .strides = {}}};
  options.layout = *protocol::BuildLayout(options.table, 2, {});
  options.exchange.compression.uplink = *compress::ParseCodecSpec("topk:10%");
  options.exchange.compression.min_elements = 0;
  options.exchange.control.policy = job::PolicyKind::kSchedule;
  options.parameters_agree = true;
  Pipeline pipeline(options);
  BundleEncoder encoder(options.table, options.layout, options.exchange.compression, 0);
  const auto plan = [](uint64_t id) {
    protocol::CompressionPlan made;
    made.id = id;
    made.effective_step = 40;
    made.entries = {{.codec = *compress::ParseCodecSpec("topk:20%"), .tensors = {0}}};
    return made;
  };
  EXPECT_THAT(pipeline.SetPlans({}).message(), HasSubstr("no compression plan"));
  ASSERT_TRUE(pipeline.SetPlans({{plan(3)}}).ok());
  // Runs a step with an announced plan. Returns the plan ids in the request to each shard.
  const auto step = [&](std::shared_ptr<const protocol::CompressionPlan> told) {
    std::map<uint32_t, std::pair<uint64_t, uint64_t>> said;
    pipeline.StartStep();
    Pipeline::Effects effects;
    const std::vector<float> gradient = {1, 2};
    for (uint32_t tensor : {0, 1}) EXPECT_TRUE(pipeline.TensorReady(tensor, gradient).ok());
    while (std::optional<EncodeTask> task = pipeline.NextEncoding()) {
      pipeline.Encoded(encoder.Encode(*task), &effects);
    }
    for (const PipelineEffect& effect : effects) {
      const auto* send = std::get_if<SendExchange>(&effect);
      if (send == nullptr) continue;
      const protocol::ExchangeRequest& exchange = *send->exchange;
      said[send->shard] = {exchange.plan_id, exchange.plan == nullptr ? 0 : exchange.plan->id};
      protocol::ExchangeReply answer = ResultOf(exchange);
      answer.results.clear();
      answer.base_version = answer.version = exchange.base_version;
      answer.record.result_checksum = protocol::BundleChecksum(answer.results);
      if (send->shard == 0) answer.plan = told;
      Pipeline::Effects more;
      pipeline.Answer(send->shard, std::move(answer), &more);
    }
    EXPECT_TRUE(pipeline.status().ok()) << pipeline.status();
    EXPECT_FALSE(pipeline.step_open());
    return said;
  };
  using Said = std::map<uint32_t, std::pair<uint64_t, uint64_t>>;
  EXPECT_EQ(step(nullptr), (Said{{0, {3, 0}}, {1, {3, 3}}}));
  EXPECT_EQ(step(std::make_shared<protocol::CompressionPlan>(plan(4))),
            (Said{{0, {3, 0}}, {1, {3, 0}}}));
  EXPECT_EQ(step(std::make_shared<protocol::CompressionPlan>(plan(2))),
            (Said{{0, {4, 0}}, {1, {4, 4}}}));
  EXPECT_EQ(step(nullptr), (Said{{0, {2, 0}}, {1, {2, 2}}})) << "shard 0's plan takes precedence";
  EXPECT_EQ(step(nullptr), (Said{{0, {2, 0}}, {1, {2, 0}}}));
}

TEST_F(AsyncPipelineTest, AddsSeveralPublicationsInOrder) {
  Step([](protocol::ExchangeReply* answer) {
    answer->version = 4;
    answer->results = {FrameOf({1e8f, 1}) + FrameOf({-1e8f, 2}) + FrameOf({1, 3})};
  });
  ASSERT_TRUE(pipeline_.status().ok()) << pipeline_.status();
  // (10 + 1e8) - 1e8 is 8 in fp32.
  EXPECT_THAT(Applied(), ElementsAre(9, 16));
  pipeline_.StartStep();
  Submit(0, {1, 1});
  const auto sends = TakeSends();
  ASSERT_THAT(sends, SizeIs(2));
  EXPECT_EQ(sends[0]->base_version, 4u);
}

TEST_F(AsyncPipelineTest, TakesParametersInPlaceOfItsOwn) {
  Step([](protocol::ExchangeReply* answer) {
    answer->version = 9;
    answer->base_version = 0;
    answer->exact = true;
    answer->results = {FrameOf({5, 6})};
  });
  ASSERT_TRUE(pipeline_.status().ok()) << pipeline_.status();
  EXPECT_THAT(Applied(), ElementsAre(5, 6));
}

TEST_F(AsyncPipelineTest, NeverHasBuffersDue) {
  for (int step = 1; step < 3; ++step) {
    Step([](protocol::ExchangeReply*) {});
    EXPECT_FALSE(pipeline_.BuffersDue(false));
  }
  EXPECT_TRUE(pipeline_.TakePublished().empty()) << "codecs observe nothing in mode async";
}

TEST_F(AsyncPipelineTest, RefusesWhatDoesNotLeadOnFromItsVersion) {
  Step([](protocol::ExchangeReply* answer) {
    answer->base_version = 2;
    answer->version = 3;
    answer->results = {FrameOf({1, 1})};
  });
  EXPECT_TRUE(absl::IsDataLoss(pipeline_.status()));
  EXPECT_THAT(pipeline_.status().message(),
              AllOf(HasSubstr("from version 2 to 3"), HasSubstr("this worker is at 1")));
}

TEST_F(AsyncPipelineTest, RefusesANewVersionWithoutAnything) {
  Step([](protocol::ExchangeReply* answer) { answer->version = 3; });
  EXPECT_TRUE(absl::IsDataLoss(pipeline_.status()));
}

TEST_F(AsyncPipelineTest, RefusesParametersOfAnOlderVersion) {
  Step([](protocol::ExchangeReply* answer) {
    answer->exact = true;
    answer->version = 0;
    answer->results = {FrameOf({1, 1})};
  });
  EXPECT_TRUE(absl::IsDataLoss(pipeline_.status()));
}

TEST_F(AsyncPipelineTest, RefusesTheWrongNumberOfFrames) {
  Step([](protocol::ExchangeReply* answer) {
    answer->version = 2;
    answer->results = {FrameOf({1, 1}), FrameOf({1, 1})};
  });
  EXPECT_THAT(pipeline_.status().message(), HasSubstr("has 2 frames, wanted 1 or none"));
}

}  // namespace
}  // namespace sluice::worker
