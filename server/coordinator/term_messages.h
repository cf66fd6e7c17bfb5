// SPDX-License-Identifier: Apache-2.0
// TermMessages: describes a job's current term to workers, shards and later coordinators. Pure.
#pragma once

#include <cstdint>
#include <memory>

#include "protocol/compression_plan.h"
#include "protocol/membership.h"
#include "protocol/shard_control.h"
#include "protocol/snapshot.h"
#include "server/coordinator/checkpoint_driver.h"
#include "server/coordinator/coordinator_options.h"
#include "server/coordinator/member.h"
#include "server/coordinator/roster.h"
#include "server/coordinator/shard_fleet.h"
#include "server/coordinator/term.h"

namespace sluice::server {

class TermMessages {
 public:
  // `incarnation`: that of the coordinator. All other arguments must outlive it.
  TermMessages(const CoordinatorOptions& options, uint64_t incarnation, const Term& term,
               const Roster& roster, const ShardFleet& fleet, const CheckpointDriver& checkpoints)
      : options_(options),
        incarnation_(incarnation),
        term_(term),
        roster_(roster),
        fleet_(fleet),
        checkpoints_(checkpoints) {}

  // `from_newest`: the member begins with the newest checkpoint instead of that of the term.
  protocol::JoinGrant Grant(const Member& member, bool from_newest) const;
  protocol::StartShard Start(const ShardSeat& seat) const;
  protocol::SetMembers Members() const {
    return {.generation = term_.generation, .incarnations = roster_.Incarnations()};
  }
  protocol::RunRecord Record(bool finished) const;
  // Returns the manifest without its parts.
  protocol::CheckpointManifest ManifestHead(uint64_t step) const;

 private:
  std::shared_ptr<const protocol::CompressionPlan> PlanOfFirstStep() const;

  const CoordinatorOptions& options_;
  const uint64_t incarnation_;
  const Term& term_;
  const Roster& roster_;
  const ShardFleet& fleet_;
  const CheckpointDriver& checkpoints_;
};

}  // namespace sluice::server
