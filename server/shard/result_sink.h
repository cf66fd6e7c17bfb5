// SPDX-License-Identifier: Apache-2.0
// ResultSink: takes the bundles that a lockstep shard closes. It publishes a bundle's result: it
// completes the record, counts the bundle's version and keeps the result for retries. On a relay's
// shard it first forwards the bundle's sum to the parent job, and publishes the parent's result
// later. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "protocol/exchange.h"
#include "server/shard/bundle_work.h"
#include "server/shard/plan_schedule.h"
#include "server/shard/result_log.h"
#include "server/shard/shard.h"

namespace sluice::server {

class ResultSink {
 public:
  // The facts about the shard that a result contains.
  struct Stamp {
    uint32_t generation = 0;
    uint64_t plan_id = 0;
    uint64_t checkpoint_step = 0;
    PlanSchedule::Plan plan{};
    // The first step whose results a rank may still ask for.
    uint64_t needed_from = 0;
    // As in ExchangeReply.
    std::vector<uint32_t> members{};
  };

  // `options` must outlive the sink.
  ResultSink(const ShardOptions* options, uint32_t bundles);

  // True if a bundle that is due must be forwarded and waits for the parent's result.
  bool forwards() const { return options_.forwards_sums; }
  void Forward(std::shared_ptr<const BundleSum> sum, std::vector<ShardEffect>* out) const;
  // Returns the reply for all ranks of the bundle. The results of one bundle must come in order of
  // steps.
  std::shared_ptr<const protocol::ExchangeReply> Publish(const BundleWork& work,
                                                         BundleResult result, Stamp stamp);

  // Fails with INVALID_ARGUMENT if the contribution is not based on the bundle's result before its
  // step. `is_next` says whether that is the newest one. Accepts senders that do not know their
  // version (0), and old steps whose results are no longer kept.
  absl::Status CheckBase(const protocol::ExchangeRequest& exchange, bool is_next) const;

  // The published results that ranks may ask for again.
  ResultLog& log() { return log_; }
  const ResultLog& log() const { return log_; }
  // Versions of the last publications, by bundle.
  const std::vector<uint64_t>& versions() const { return versions_; }
  void SetVersions(std::vector<uint64_t> versions) { versions_ = std::move(versions); }

 private:
  const ShardOptions& options_;
  ResultLog log_;
  std::vector<uint64_t> versions_;
};

}  // namespace sluice::server
