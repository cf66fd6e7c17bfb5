// SPDX-License-Identifier: Apache-2.0
// Helpers for tests of a single pipeline. They return the requests that the pipeline sent, and a
// shard's answers in a job with one worker.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "worker/core/pipeline.h"

namespace sluice::worker {

inline std::vector<std::shared_ptr<const protocol::ExchangeRequest>> SentBy(
    const Pipeline::Effects& effects) {
  std::vector<std::shared_ptr<const protocol::ExchangeRequest>> sends;
  for (const PipelineEffect& effect : effects) {
    if (const auto* send = std::get_if<SendExchange>(&effect)) sends.push_back(send->exchange);
  }
  return sends;
}

inline protocol::ExchangeReply ResultOf(const protocol::ExchangeRequest& exchange) {
  protocol::ExchangeReply answer;
  answer.outcome = protocol::Outcome::kResult;
  answer.step = exchange.step;
  answer.bundle = exchange.bundle;
  answer.results = exchange.frames;
  answer.record.step = exchange.step;
  answer.record.bundle = exchange.bundle;
  answer.record.included = {{.rank = 0,
                             .origin_step = exchange.step,
                             .checksum = protocol::BundleChecksum(exchange.frames),
                             .skipped = exchange.skip}};
  answer.record.n = exchange.skip ? 0 : 1;
  answer.record.result_checksum = protocol::BundleChecksum(exchange.frames);
  return answer;
}

}  // namespace sluice::worker
