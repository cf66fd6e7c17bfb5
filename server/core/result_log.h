// ResultLog: the results that a shard still owes to somebody, by (bundle, step).
// Forgets a step once every rank acknowledged it, and the oldest steps first when a limit is
// passed; of the two newest steps nothing is forgotten for a limit, so that a retry is always
// answered.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "job/exchange.h"

namespace sluice {

struct ResultLogLimits {
  uint64_t bytes = uint64_t{256} << 20;
  uint64_t steps = 1024;
};

class ResultLog {
 public:
  ResultLog(uint32_t bundles, const ResultLogLimits& limits);

  // Steps of one bundle come in order.
  void Add(std::shared_ptr<const ExchangeAnswer> answer);
  // Null: not closed yet, or forgotten.
  std::shared_ptr<const ExchangeAnswer> Find(uint64_t step, uint32_t bundle) const;
  // Every rank has applied all results up to `step`.
  void ForgetUpTo(uint64_t step);
  std::vector<std::shared_ptr<const ExchangeAnswer>> After(
      uint64_t step, const std::vector<uint32_t>& bundles) const;

  // The oldest step that is still here for all its bundles; 0: nothing is.
  uint64_t oldest_step() const;
  uint64_t bytes() const { return bytes_; }
  uint64_t size() const { return size_; }

 private:
  void DropOldest(std::deque<std::shared_ptr<const ExchangeAnswer>>* results);
  void KeepLimits(uint64_t newest_step);

  const ResultLogLimits limits_;
  std::vector<std::deque<std::shared_ptr<const ExchangeAnswer>>> results_;  // By bundle.
  uint64_t bytes_ = 0;
  uint64_t size_ = 0;
};

// Bytes of the result frames.
uint64_t ResultBytes(const ExchangeAnswer& answer);

}  // namespace sluice
