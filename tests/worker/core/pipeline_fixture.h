// SPDX-License-Identifier: Apache-2.0
// PipelineTest: a pipeline and its encoder, with three small tensors. The test plays the only
// shard.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compress/frame.h"
#include "tests/worker/core/one_worker.h"
#include "worker/core/pipeline.h"

namespace sluice::worker {

inline constexpr size_t kSize = 64;  // Elements of each tensor; each is one bundle.

// Tensors a, b and c are on one shard: bundle 0 is c, bundle 1 is b, and bundle 2 is a.
class PipelineTest : public testing::Test {
 protected:
  void Make(absl::string_view uplink, uint64_t window_bytes = 1 << 20, uint32_t world_size = 1,
            bool parameters_agree = true, uint64_t first_step = 1, bool quorum = false) {
    protocol::CompressionSpec compression;
    compression.uplink = *compress::ParseCodecSpec(uplink);
    compression.min_elements = 0;
    compression.layout = {.chunk_elements = kSize, .bundle_elements = kSize};
    PipelineOptions options;
    for (const char* name : {"a", "b", "c"}) {
      options.table.push_back({.name = name, .shape = {kSize}, .strides = {}});
    }
    options.layout = *protocol::BuildLayout(options.table, shards_, compression.layout);
    options.sender = {.job_uid = 7, .rank = 0, .incarnation = 3};
    options.world_size = world_size;
    options.window_bytes = window_bytes;
    options.parameters_agree = parameters_agree;
    options.first_step = first_step;
    options.exchange.quorum = quorum;
    encoder_.emplace(options.table, options.layout, compression, options.sender.rank);
    pipeline_.emplace(std::move(options));
    for (uint32_t tensor = 0; tensor < 3; ++tensor) {
      gradients_[tensor].resize(kSize);
      for (size_t i = 0; i < kSize; ++i) {
        gradients_[tensor][i] = static_cast<float>(i) - 10.5f * static_cast<float>(tensor);
      }
    }
  }

  void Ready(uint32_t tensor) {
    ASSERT_TRUE(pipeline_->TensorReady(tensor, gradients_[tensor]).ok());
    while (std::optional<EncodeTask> task = pipeline_->NextEncoding()) {
      pipeline_->Encoded(encoder_->Encode(*task), &effects_);
    }
  }
  void StartWhole() {
    pipeline_->StartStep();
    for (const uint32_t tensor : {2, 1, 0}) Ready(tensor);
  }

  // Returns the requests sent since the last call.
  std::vector<std::shared_ptr<const protocol::ExchangeRequest>> TakeSends() {
    std::vector<std::shared_ptr<const protocol::ExchangeRequest>> sends = SentBy(effects_);
    effects_.clear();
    return sends;
  }
  std::vector<uint32_t> TakeSentBundles() {
    std::vector<uint32_t> bundles;
    for (const auto& exchange : TakeSends()) bundles.push_back(exchange->bundle);
    return bundles;
  }
  template <typename Effect>
  int Count() const {
    int count = 0;
    for (const PipelineEffect& effect : effects_) count += std::holds_alternative<Effect>(effect);
    return count;
  }

  void Answer(protocol::Outcome outcome, uint64_t step, uint32_t bundle, std::string message = "") {
    protocol::ExchangeReply answer;
    answer.outcome = outcome;
    answer.step = step;
    answer.bundle = bundle;
    answer.retry_after_ms = 30;
    answer.message = std::move(message);
    pipeline_->Answer(0, answer, &effects_);
  }
  void AnswerAll(const std::vector<std::shared_ptr<const protocol::ExchangeRequest>>& sends) {
    for (const auto& exchange : sends) pipeline_->Answer(0, ResultOf(*exchange), &effects_);
  }
  void FinishStep() {
    StartWhole();
    AnswerAll(TakeSends());
    ASSERT_FALSE(pipeline_->step_open());
    effects_.clear();
  }

  uint32_t shards_ = 1;  // Set before Make. With more, effects tell the shard of each request.
  std::vector<float> gradients_[3];
  std::optional<BundleEncoder> encoder_;
  std::optional<Pipeline> pipeline_;
  Pipeline::Effects effects_;
};

}  // namespace sluice::worker
