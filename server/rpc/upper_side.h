// UpperSide: what is above the servers of a rack, told of what they have for it. Called from any
// thread and with locks of theirs held: it must not call back, and not wait.
#pragma once

#include <cstdint>
#include <memory>

#include "server/coordinator/coordinator.h"
#include "server/shard/shard.h"

namespace sluice::server {

class UpperSide {
 public:
  virtual ~UpperSide() = default;
  // A bundle of `shard` that waits for its Publish.
  virtual void Summed(uint32_t shard, std::shared_ptr<const BundleSum> sum) = 0;
  virtual void Asked(const AskAbove& ask) = 0;
  virtual void Finished(const LeaveAbove& leave) = 0;
};

}  // namespace sluice::server
