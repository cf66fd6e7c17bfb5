// SPDX-License-Identifier: Apache-2.0
// RecoveryOutlook: states which losses a job could repair at this moment, and explains why it could
// not repair the others. Pure.
#pragma once

#include <optional>
#include <string>

#include "server/coordinator/job_run.h"
#include "server/coordinator/recovery_policy.h"

namespace sluice::server {

class RecoveryOutlook {
 public:
  // The run must outlive it and must not change.
  explicit RecoveryOutlook(const JobRun& run);

  // True if a newcomer can replay the steps after the newest checkpoint.
  bool AllowsReexecution() const { return !policy_.ToReexecution().has_value(); }
  // Returns why these losses cannot be repaired. Empty if they can.
  std::string WhyNoRepair(bool shard_lost, bool worker_lost) const;
  // Returns a clause that states the obstacle.
  std::string Explain(const RepairObstacle& obstacle) const;
  // Returns the consequence of a loss.
  RecoveryClass Class() const { return policy_.Class(); }
  // Returns why a loss causes a rollback. Empty if it does not.
  std::string WhyRollback() const;

 private:
  const JobRun& run_;
  const RecoveryPolicy policy_;
};

}  // namespace sluice::server
