// SPDX-License-Identifier: Apache-2.0
// ParentJob: the job above a rack. The rack's servers report to this interface from any thread and
// with their locks held, so an implementation must neither call back nor block.
#pragma once

#include <cstdint>
#include <memory>

#include "server/coordinator/coordinator.h"
#include "server/shard/shard.h"

namespace sluice::server {

class ParentJob {
 public:
  virtual ~ParentJob() = default;
  // Reports the sum of one bundle of `shard`. The bundle stays pending until Publish.
  virtual void Summed(uint32_t shard, std::shared_ptr<const BundleSum> sum) = 0;
  virtual void Asked(const AskParent& ask) = 0;
  virtual void Finished(const LeaveParent& leave) = 0;
};

}  // namespace sluice::server
