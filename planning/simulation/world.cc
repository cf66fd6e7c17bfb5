// SPDX-License-Identifier: Apache-2.0
#include "planning/simulation/world.h"

#include <utility>

namespace sluice::planning {

void MailRoom::Send(const World& world, Mail mail) {
  if (free_.empty()) {
    free_.push_back(static_cast<uint32_t>(mails_.size()));
    mails_.emplace_back();
  }
  const uint32_t id = free_.back();
  free_.pop_back();
  const uint32_t shard = world.workers + mail.shard;
  const uint32_t from = mail.request != nullptr ? mail.worker : shard;
  const uint32_t to = mail.request != nullptr ? shard : mail.worker;
  const uint64_t bytes = mail.bytes;
  mails_[id] = std::move(mail);
  world.network->Send(from, to, bytes, id);
}

Mail MailRoom::Take(uint32_t id) {
  free_.push_back(id);
  return std::exchange(mails_[id], Mail());
}

}  // namespace sluice::planning
