// ResultLog: the results that a shard still owes to somebody, or keeps for workers that will go
// through their steps again, by (bundle, step). Forgets what it is told to, and the oldest steps
// first when a limit is passed; of the two newest steps, and of what somebody still needs, nothing
// is forgotten for a limit, so that a retry is always answered.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "protocol/exchange.h"

namespace sluice::server {

struct ResultLogLimits {
  uint64_t bytes = uint64_t{256} << 20;  // As KeptBytes.
  uint64_t steps = 1024;
};

class ResultLog {
 public:
  // The first results will be of `first_step`, or of step 0 before it.
  ResultLog(uint32_t bundles, uint64_t first_step, const ResultLogLimits& limits);

  // Steps of one bundle come in order. From `needed_from` on nothing is forgotten for a limit.
  void Add(std::shared_ptr<const protocol::ExchangeAnswer> answer, uint64_t needed_from);
  // Null: not closed yet, or forgotten.
  std::shared_ptr<const protocol::ExchangeAnswer> Find(uint64_t step, uint32_t bundle) const;
  // Every rank has applied all results up to `step`.
  void ForgetUpTo(uint64_t step);
  std::vector<std::shared_ptr<const protocol::ExchangeAnswer>> After(
      uint64_t step, const std::vector<uint32_t>& bundles) const;

  // From this step on everything that was added is here. At least `first_step`.
  uint64_t complete_from() const { return complete_from_; }
  uint64_t bytes() const { return bytes_; }
  // At a limit: of what comes now, older results are let go, or kept beyond it for who needs them.
  bool full() const { return bytes_ >= limits_.bytes || size_ >= limits_.steps * results_.size(); }
  uint64_t size() const { return size_; }

 private:
  void DropOldest(std::deque<std::shared_ptr<const protocol::ExchangeAnswer>>* results);
  void KeepLimits(uint64_t newest_step, uint64_t needed_from);

  const ResultLogLimits limits_;
  uint64_t complete_from_;
  std::vector<std::deque<std::shared_ptr<const protocol::ExchangeAnswer>>> results_;  // By bundle.
  uint64_t bytes_ = 0;
  uint64_t size_ = 0;
};

// Bytes of the result frames.
uint64_t ResultBytes(const protocol::ExchangeAnswer& answer);
// What it takes in memory: the frames, and the record, which grows with the ranks.
uint64_t KeptBytes(const protocol::ExchangeAnswer& answer);

}  // namespace sluice::server
