// SPDX-License-Identifier: Apache-2.0
// CheckpointNaming: the job checkpoints that a shard knows. Shard 0 names them; the other shards
// learn of them from the workers' requests. Every kind of shard uses one and decides when a named
// checkpoint may be announced. Pure. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "protocol/exchange.h"
#include "server/shard/shard.h"

namespace sluice::server {

class CheckpointNaming {
 public:
  // `options` must outlive this object.
  explicit CheckpointNaming(const ShardOptions* options) : options_(*options) {}

  // Returns the first step after which a checkpoint may be announced while `step` is the furthest
  // that a worker has begun.
  uint64_t EarliestAfter(uint64_t step) const;
  // Implements Shard::NameCheckpoint. `earliest` is the first step that is possible now.
  uint64_t Name(uint64_t minimum_step, uint64_t earliest);
  // Names the requested checkpoint once `earliest` has reached its step, and appends the effect.
  // The results that follow announce it. If `is_ready` is false, a new checkpoint has to wait.
  void Announce(uint64_t earliest, bool is_ready, std::vector<ShardEffect>* out);

  // Fails with INVALID_ARGUMENT if the request refers to a checkpoint that no shard can have named.
  absl::Status Check(const protocol::ExchangeRequest& exchange, uint64_t open_step) const;
  // Records a checkpoint that a checked request or the parent job refers to. On shard 0, appends
  // CheckpointNamed if the checkpoint is new.
  void Learn(uint64_t step, uint64_t open_step, std::vector<ShardEffect>* out);

  // Returns the checkpoint that a result of `step` refers to; 0 if there is none. The clock of a
  // restored rank may lag behind the checkpoint's step. Such a rank writes its part later than this
  // shard.
  uint64_t AnnouncedIn(uint64_t step) const;
  // Returns whether a checkpoint is due after the step.
  bool IsDue(uint64_t step) const;
  // Returns the earliest due checkpoint if its step is at most `closed_step`, and removes it.
  std::optional<uint64_t> TakeUpTo(uint64_t closed_step);
  // Implements Shard::CheckPartStep. Workers may be slower than this shard, so the two checkpoints
  // that it took last still count.
  absl::Status CheckPartStep(uint64_t step) const;
  // Returns the checkpoint that this process announced last; 0 if there is none.
  uint64_t last_named() const { return last_named_; }

 private:
  const ShardOptions& options_;
  uint64_t wanted_ = 0;  // Requested and not announced yet; 0 if none.
  uint64_t last_named_ = 0;
  // A checkpoint was requested while one was due of which the requester may not know.
  bool asked_again_ = false;
  // Steps after which a checkpoint is due, ascending. Usually one. There are more if a shard was
  // lost together with the workers that knew of a checkpoint, and another one was named since.
  std::vector<uint64_t> due_;
  std::array<uint64_t, 2> taken_{};  // The last steps that TakeUpTo returned, ascending.
};

}  // namespace sluice::server
