// SPDX-License-Identifier: Apache-2.0
// SyncAnswers: the answers of a lockstep shard to its ranks. The shard decides what a request is,
// and SyncAnswers makes the answer to it, sends it and counts it. Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "protocol/exchange.h"
#include "server/shard/open_bundle.h"
#include "server/shard/rank_table.h"
#include "server/shard/request_fence.h"
#include "server/shard/shard.h"
#include "server/shard/shard_layout.h"

namespace sluice::server {

class SyncAnswers {
 public:
  using Effects = std::vector<ShardEffect>;
  // The facts about a closed bundle whose result the shard does not keep.
  struct Forgotten {
    uint64_t open_step = 0;
    uint64_t kept_from = 0;  // The first step whose results are all kept.
    bool is_member = true;   // The bundle's step waited for the sender.
  };

  // All arguments must outlive this object, which counts answers in `stats`.
  SyncAnswers(const ShardOptions* options, ShardStats* stats, RequestFence* fence, RankTable* ranks,
              const std::vector<BundleLayout>* bundles);

  // Answers a contribution that joined `open`, or leaves it unanswered until its result.
  void Admitted(StreamId stream, const protocol::ExchangeRequest& exchange, uint64_t bytes,
                OpenBundle* open, Effects* out);
  // Answers PENDING to a repeat of an admitted contribution.
  void Repeat(StreamId stream, const protocol::ExchangeRequest& exchange, Effects* out);
  // Answers NEED: the sender must resend from this step on, or from the open step if the shard
  // replays steps.
  void Ask(StreamId stream, const protocol::ExchangeRequest& exchange, uint64_t open_step,
           Effects* out);
  // Answers BUSY, because there is no memory. `waited` is the time for which the open step has
  // waited; the longer it is, the later the sender retries.
  void Busy(StreamId stream, const protocol::ExchangeRequest& exchange, absl::Duration waited,
            Effects* out);
  // Sends a bundle's result.
  void Result(StreamId stream, std::shared_ptr<const protocol::ExchangeReply> answer, Effects* out);
  // Sends a bundle's result with another open step than when the bundle closed.
  void ResultAt(StreamId stream, const protocol::ExchangeReply& result, uint64_t open_step,
                Effects* out);
  // Answers a request for a result that is no longer kept.
  void NoResult(StreamId stream, const protocol::ExchangeRequest& exchange, const Forgotten& facts,
                Effects* out);
  // Refuses a repeat whose checksum is `got`, not `had`. If the rank's predecessor sent the first
  // contribution, the rank cannot be repaired in place.
  void OtherBytes(StreamId stream, const protocol::ExchangeRequest& exchange, uint32_t had,
                  uint32_t got, Effects* out);
  // Gives up the repair of a rank, because the result was coded by another plan than the request.
  void OtherPlan(StreamId stream, const protocol::ExchangeRequest& exchange, uint64_t plan_id,
                 Effects* out);
  // Answers BUSY and reports that the job must roll back.
  void GiveUpReplay(StreamId stream, const protocol::ExchangeRequest& exchange, std::string why,
                    Effects* out);
  // Refuses work of a newcomer that no step waits for.
  void NotAwaited(StreamId stream, const protocol::ExchangeRequest& exchange, Effects* out);

 private:
  const ShardOptions& options_;
  ShardStats& stats_;
  RequestFence& fence_;
  RankTable& ranks_;
  const std::vector<BundleLayout>& bundles_;
};

}  // namespace sluice::server
