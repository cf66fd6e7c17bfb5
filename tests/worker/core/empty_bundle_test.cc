// SPDX-License-Identifier: Apache-2.0
// Tests a pipeline in a job with fewer chunks than shards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "tests/worker/core/pipeline_fixture.h"

namespace sluice::worker {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

// Three tensors on four shards.
TEST_F(PipelineTest, AnEmptyBundleIsSkippedInEveryStep) {
  constexpr uint32_t kIdle = 3;
  shards_ = 4;
  Make("none", /*window_bytes=*/1 << 20, /*world_size=*/1, /*parameters_agree=*/false);
  const auto sent_to_idle = [this] {
    std::vector<std::shared_ptr<const protocol::ExchangeRequest>> sends;
    for (const PipelineEffect& effect : effects_) {
      const auto* send = std::get_if<SendExchange>(&effect);
      if (send != nullptr && send->shard == kIdle) sends.push_back(send->exchange);
    }
    return sends;
  };
  const auto finish = [this] {
    const Pipeline::Effects sends = std::exchange(effects_, {});
    for (const PipelineEffect& effect : sends) {
      const auto* send = std::get_if<SendExchange>(&effect);
      if (send == nullptr) continue;
      pipeline_->Answer(send->shard, ResultOf(*send->exchange), &effects_);
    }
    EXPECT_EQ(Count<StepDone>(), 1);
    effects_.clear();
  };
  for (const uint64_t step : {0, 1}) {
    pipeline_->StartStep();
    ASSERT_EQ(pipeline_->step(), step);
    for (const uint32_t tensor : {2, 1}) Ready(tensor);
    EXPECT_THAT(sent_to_idle(), IsEmpty()) << "the step can still fail";
    Ready(0);
    ASSERT_THAT(sent_to_idle(), SizeIs(1));
    EXPECT_TRUE(sent_to_idle()[0]->skip);
    finish();
  }
  pipeline_->StartStep();
  ASSERT_TRUE(pipeline_->SkipStep(&effects_).ok());
  ASSERT_THAT(sent_to_idle(), SizeIs(1));
  finish();
}

}  // namespace
}  // namespace sluice::worker
