// What the tests of a pipeline alone need: what it sent, and the answers of a shard of a job with
// one worker.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "worker/core/pipeline.h"

namespace sluice::worker {

inline std::vector<std::shared_ptr<const protocol::Exchange>> SentBy(
    const Pipeline::Effects& effects) {
  std::vector<std::shared_ptr<const protocol::Exchange>> sends;
  for (const PipelineEffect& effect : effects) {
    if (const auto* send = std::get_if<SendExchange>(&effect)) sends.push_back(send->exchange);
  }
  return sends;
}

inline protocol::ExchangeAnswer ResultOf(const protocol::Exchange& exchange) {
  protocol::ExchangeAnswer answer;
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
