// SPDX-License-Identifier: Apache-2.0
// ResultLog: keeps results by (bundle, step). Ranks may still need these results, or restarted
// workers may replay them. The caller decides which steps to forget. Beyond a limit, the log evicts
// the oldest steps. It never evicts the two newest steps or the steps that a rank still needs, so
// every retry gets its answer.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "protocol/exchange.h"

namespace sluice::server {

struct ResultLogLimits {
  uint64_t bytes = uint64_t{256} << 20;  // As counted by KeptBytes().
  uint64_t steps = 1024;
};

class ResultLog {
 public:
  // `first_step` is the step of the first results. Results of step 0 may precede it.
  ResultLog(uint32_t bundles, uint64_t first_step, const ResultLogLimits& limits);

  // Adds a result. The results of one bundle must be added in order of steps. Results of
  // `needed_from` and later steps are never evicted.
  void Add(std::shared_ptr<const protocol::ExchangeReply> answer, uint64_t needed_from);
  // Returns null if the bundle is not closed yet or its result was forgotten.
  std::shared_ptr<const protocol::ExchangeReply> Find(uint64_t step, uint32_t bundle) const;
  // Forgets the results of all steps up to `step`, which every rank has applied.
  void ForgetUpTo(uint64_t step);

  // The log still has all results that were added for this step and later ones. Never below
  // `first_step`.
  uint64_t complete_from() const { return complete_from_; }
  uint64_t bytes() const { return bytes_; }
  // True if a limit is reached. Each new result then either evicts older ones, or exceeds the limit
  // because ranks still need the older ones.
  bool full() const { return bytes_ >= limits_.bytes || size_ >= limits_.steps * results_.size(); }
  uint64_t size() const { return size_; }

 private:
  void DropOldest(std::deque<std::shared_ptr<const protocol::ExchangeReply>>* results);
  void KeepLimits(uint64_t newest_step, uint64_t needed_from);

  const ResultLogLimits limits_;
  uint64_t complete_from_;
  std::vector<std::deque<std::shared_ptr<const protocol::ExchangeReply>>> results_;  // By bundle.
  uint64_t bytes_ = 0;
  uint64_t size_ = 0;
};

// Returns the number of bytes of the result's frames.
uint64_t ResultBytes(const protocol::ExchangeReply& answer);
// Returns the bytes of memory for a result: its frames and its record, which grows with the number
// of ranks.
uint64_t KeptBytes(const protocol::ExchangeReply& answer);

}  // namespace sluice::server
