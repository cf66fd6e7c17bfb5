// SPDX-License-Identifier: Apache-2.0
// SimCoordinator runs a simulated job's coordinator as its host does: effects take place in order,
// and all effects behind a write wait until it is durable. A write may take long, or fail and be
// repeated.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "protocol/snapshot.h"
#include "server/coordinator/coordinator.h"
#include "tests/sim/planted_bugs.h"
#include "tests/sim/sim_disk.h"
#include "tests/sim/sim_world.h"

namespace sluice {

// The parts of the job around the coordinator.
struct CoordinatorSurroundings {
  // Carries out an effect that is not a write.
  std::function<void(const server::CoordinatorEffect&)> deliver;
  // The coordinator has decided to roll back. `before` is the newest record before the decision.
  std::function<void(const protocol::RunRecord& before, const server::Coordinator::Effects&)>
      rolls_back;
  std::function<void()> rolled_back;  // The record of the new term is durable.
  std::function<void(const protocol::CheckpointManifest&)> completed;  // A manifest is durable.
  std::function<void()> carried_out;  // Some effects took place; the job may have failed.
  std::function<void(std::string)> violate;
};

class SimCoordinator {
 public:
  // All pointers outlive it. `process` is the coordinator's process.
  SimCoordinator(server::CoordinatorOptions options, SurvivalBug bug, SimWorld* world,
                 const SimProcess* process, SimDisk* disk, CoordinatorSurroundings around);

  // Makes the first decisions and ticks from then on.
  void Begin();
  // Call CarryOut with the effects of each call.
  server::Coordinator& core() { return *core_; }
  void CarryOut(const server::Coordinator::Effects& effects);
  // Requests `count` checkpoints. Each request must get one answer.
  void RequestCheckpoints(uint32_t count, server::CheckpointToken first);
  // Evicts the worker of the rank, which hears of it with its next heartbeat and joins again as
  // another process.
  void Evict(uint32_t rank, bool allow_rollback);
  // Returns what a worker hears: while a record is being written, the state before it.
  absl::StatusOr<protocol::JobState> Announced(absl::StatusOr<protocol::JobState> state,
                                               const protocol::Sender& sender);
  // Returns whether a record is not durable yet. Until then, the coordinator numbers no shards.
  bool persisting() const { return persisting_ > 0; }
  // Returns whether a decision to roll back would be lost with this process.
  bool HasUnwrittenRollback() const;
  size_t unanswered() const { return requests_.size(); }

 private:
  absl::Time Now() const { return absl::UnixEpoch() + absl::Microseconds(world_.now); }
  void Tick();
  void CarryOutWaiting();
  void Write(std::function<void()> what);
  void Persist(const protocol::RunRecord& record);
  void Store(const protocol::RunRecord& record);
  void WriteManifest(const protocol::CheckpointManifest& manifest);
  void CheckAnswer(const server::AnswerCheckpoint& answer);

  const SurvivalBug bug_;
  SimWorld& world_;
  const SimProcess* const process_;
  SimDisk& disk_;
  const CoordinatorSurroundings around_;
  std::unique_ptr<server::Coordinator> core_;
  std::deque<server::CoordinatorEffect> waiting_;
  bool writing_ = false;                              // The first write is not durable yet.
  size_t persisting_ = 0;                             // Records that are not durable yet.
  protocol::JobState announced_;                      // The state before them.
  std::optional<protocol::RunRecord> newest_record_;  // Durable or not.
  // Unanswered requests, with the number of complete checkpoints at the time of the request.
  std::map<server::CheckpointToken, uint64_t> requests_;
};

}  // namespace sluice
