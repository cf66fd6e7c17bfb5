// SPDX-License-Identifier: Apache-2.0
// SimulatedShard: a real shard core on one simulated processor. It handles one request at a time;
// the others wait in order of arrival, as they wait for the lock of a real shard. Answers leave
// when the work on the request is done. Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "planning/simulation/world.h"
#include "server/shard/shard.h"

namespace sluice::planning {

class SimulatedShard {
 public:
  // The world and the mail room must outlive the shard.
  SimulatedShard(uint32_t shard, const World* world, MailRoom* mail);

  absl::Status Start();
  // Takes a request that has arrived.
  void Receive(Mail mail);
  // Handles kShardFree, kShardSends and kShardTick.
  void Handle(const Event& event);
  void SetMembership(uint32_t generation, const std::vector<uint64_t>& incarnations);

  const server::Shard& core() const { return *core_; }
  Nanos busy() const { return busy_; }
  // The processor's time for the work since the last call.
  Nanos TakeWork() { return std::exchange(work_, 0); }

 private:
  void Work();
  void Carry(const std::vector<server::ShardEffect>& effects, Nanos cost);
  // Returns the processor's time for the bundles that the effects close.
  Nanos ClosingTime(const std::vector<server::ShardEffect>& effects);
  void Reply(const server::SendReply& reply, Nanos* at);
  void Size(const std::shared_ptr<const protocol::ExchangeReply>& answer);
  void ScheduleTick();
  // True if a shard adds such frames to its sum as they arrive, and not when the bundle closes.
  bool AddsAtOnce(uint64_t step, uint32_t bundle) const;

  const uint32_t shard_;
  const World& world_;
  MailRoom* const mail_;
  std::unique_ptr<server::Shard> core_;
  std::vector<uint64_t> elements_;  // By bundle, of the full job.
  std::vector<uint64_t> closed_;    // By bundle: the last step whose close was charged.
  // The last answer that was sized, and its bytes: all ranks get the same result.
  std::shared_ptr<const protocol::ExchangeReply> sized_;
  uint64_t sized_frame_bytes_ = 0;
  uint64_t sized_bytes_ = 0;
  std::deque<Mail> inbox_;
  std::deque<Mail> outbox_;
  bool works_ = false;
  Nanos free_at_ = 0;
  Nanos tick_at_ = -1;  // When the last kShardTick event came; -1 if there was none.
  Nanos busy_ = 0;
  Nanos work_ = 0;
};

}  // namespace sluice::planning
