// SPDX-License-Identifier: Apache-2.0
// EffectQueue: the coordinator's effects that its host has not carried out yet, in order. While an
// effect is being written to disk, all later effects wait, so nothing is announced before it is
// durable. Pure. The host's lock guards this object.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>

#include "server/coordinator/coordinator_effects.h"

namespace sluice::server {

class EffectQueue {
 public:
  // While more effects than this wait, the threads that deliver others must wait too. Each effect
  // comes from a call or a shard's report, and one of them may add several.
  static constexpr size_t kWaitingMax = 10000;

  void Add(CoordinatorEffects effects);
  bool full() const { return waiting_.size() > kWaitingMax; }
  // True if no effect waits and none is being written.
  bool idle() const { return waiting_.empty() && !writing_; }
  // True while the core's state depends on a record that is not on disk.
  bool AwaitsRecord() const { return records_ > 0; }

  // Removes and returns the next effect. Returns nullopt during a write. If the effect needs a disk
  // write, this call begins that write, and WriteEnded ends it.
  std::optional<CoordinatorEffect> Take();
  void WriteEnded();

  // Drops what no party may learn of, because the job or this process ends before it could be
  // recorded. Keeps notices, refusals of shards and the end of the job. There must be no write.
  void DropUnannounced();

 private:
  std::deque<CoordinatorEffect> waiting_;
  bool writing_ = false;
  bool writes_record_ = false;  // Valid while writing_.
  size_t records_ = 0;          // Records that wait or are being written.
};

}  // namespace sluice::server
