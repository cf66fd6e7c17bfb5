// SPDX-License-Identifier: Apache-2.0
// World: what the workers and shards of a simulated job share. Also carries their messages.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "planning/simulation/coding.h"
#include "planning/simulation/event_queue.h"
#include "planning/simulation/machine_costs.h"
#include "planning/simulation/network.h"
#include "planning/simulation/record.h"
#include "planning/simulation/shrunk_job.h"
#include "protocol/exchange.h"

namespace sluice::planning {

// A message on its way. One of `request` and `answer` is set.
struct Mail {
  uint32_t worker = 0;
  uint32_t shard = 0;
  uint32_t life = 0;  // Of the worker. Messages of earlier lives are lost.
  uint64_t frame_bytes = 0;
  uint64_t bytes = 0;
  Nanos sent = 0;
  std::shared_ptr<const protocol::ExchangeRequest> request{};
  std::shared_ptr<const protocol::ExchangeReply> answer{};
};

struct World {
  EventQueue* queue = nullptr;
  Network* network = nullptr;
  Record* record = nullptr;
  const ShrunkJob* job = nullptr;
  const Coding* coding = nullptr;
  MachineCosts costs{};
  uint32_t workers = 0;

  Nanos now() const { return queue->now(); }
  // The time that the cores see.
  absl::Time Clock(Nanos at) const { return absl::UnixEpoch() + absl::Nanoseconds(at); }
  // The time of the processor for a message of this size, at one end.
  Nanos MessageTime(uint64_t bytes) const {
    return static_cast<Nanos>(1e3 * costs.message_us + costs.byte_ns * static_cast<double>(bytes));
  }
};

// The messages on their way, by number.
class MailRoom {
 public:
  // Hands a message to the network.
  void Send(const World& world, Mail mail);
  Mail Take(uint32_t id);

 private:
  std::vector<Mail> mails_;
  std::vector<uint32_t> free_;
};

}  // namespace sluice::planning
