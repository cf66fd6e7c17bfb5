// SPDX-License-Identifier: Apache-2.0
// WeightsSource: gives the parameters of a shard to the hub that serves followers. The host's lock
// guards calls of Begin and Offer; Describe is thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/log.h"
#include "base/mutex.h"
#include "compress/element_type.h"
#include "follow/rpc/weights_hub.h"
#include "follow/weights_version.h"
#include "job/job_spec.h"
#include "protocol/shard_control.h"
#include "protocol/weights.h"
#include "server/shard/shard.h"

namespace sluice::server {

class WeightsSource {
 public:
  // `hub` must outlive this object.
  WeightsSource(const job::JobSpec& job, uint32_t shard, follow::WeightsHub* hub);

  // The shard has started a term. Logs a warning if followers cannot read the model; the job runs
  // without followers then.
  void Begin(const protocol::StartShard& start, const Shard& shard, const Logger& logger);
  // The next two functions offer the parameters that workers have. They do nothing in the middle of
  // a step, and copy through ShardOptions::run_copy.

  // A step may have closed. The hub decides whether it wants this version.
  void OfferAfterStep(const Shard& shard) { Offer(shard, /*now=*/false); }
  // A follower waits for a first version, or the job ends.
  void OfferNow(const Shard& shard) { Offer(shard, /*now=*/true); }

  // Returns the description of the job without the shards' addresses. Fails with UNAVAILABLE before
  // Begin.
  absl::StatusOr<protocol::WeightsDescription> Describe() const;

 private:
  void Offer(const Shard& shard, bool now);

  const std::string job_name_;
  const uint32_t shards_;
  const uint32_t shard_;
  follow::WeightsHub* const hub_;
  const protocol::CompressionSpec compression_;
  std::optional<follow::WeightsVersion> offered_;  // The last version that the hub was asked about.
  mutable Mutex mutex_;
  std::optional<protocol::WeightsDescription> description_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::server
