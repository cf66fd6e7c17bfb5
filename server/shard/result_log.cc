// SPDX-License-Identifier: Apache-2.0
#include "server/shard/result_log.h"

#include <algorithm>

namespace sluice::server {

uint64_t ResultBytes(const protocol::ExchangeReply& answer) {
  uint64_t bytes = 0;
  for (const std::string& result : answer.results) bytes += result.size();
  return bytes;
}

uint64_t KeptBytes(const protocol::ExchangeReply& answer) {
  return sizeof(answer) + answer.record.included.size() * sizeof(protocol::Included) +
         answer.results.size() * sizeof(std::string) + ResultBytes(answer);
}

ResultLog::ResultLog(uint32_t bundles, uint64_t first_step, const ResultLogLimits& limits)
    : limits_(limits), complete_from_(first_step), results_(bundles) {}

void ResultLog::Add(std::shared_ptr<const protocol::ExchangeReply> answer, uint64_t needed_from) {
  const uint64_t step = answer->step;
  bytes_ += KeptBytes(*answer);
  ++size_;
  results_[answer->bundle].push_back(std::move(answer));
  KeepLimits(step, needed_from);
}

std::shared_ptr<const protocol::ExchangeReply> ResultLog::Find(uint64_t step,
                                                               uint32_t bundle) const {
  const auto& results = results_[bundle];
  const auto at = std::lower_bound(results.begin(), results.end(), step,
                                   [](const std::shared_ptr<const protocol::ExchangeReply>& a,
                                      uint64_t b) { return a->step < b; });
  return at == results.end() || (*at)->step != step ? nullptr : *at;
}

void ResultLog::ForgetUpTo(uint64_t step) {
  complete_from_ = std::max(complete_from_, step + 1);
  for (auto& results : results_) {
    while (!results.empty() && results.front()->step <= step) DropOldest(&results);
  }
}

void ResultLog::DropOldest(std::deque<std::shared_ptr<const protocol::ExchangeReply>>* results) {
  bytes_ -= KeptBytes(*results->front());
  complete_from_ = std::max(complete_from_, results->front()->step + 1);
  --size_;
  results->pop_front();
}

void ResultLog::KeepLimits(uint64_t newest_step, uint64_t needed_from) {
  while (bytes_ > limits_.bytes || size_ > limits_.steps * results_.size()) {
    uint64_t oldest = newest_step;
    for (const auto& results : results_) {
      if (!results.empty()) oldest = std::min(oldest, results.front()->step);
    }
    if (oldest + 1 >= newest_step || oldest >= needed_from) return;
    for (auto& results : results_) {
      if (!results.empty() && results.front()->step == oldest) DropOldest(&results);
    }
  }
}

}  // namespace sluice::server
