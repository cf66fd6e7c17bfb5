// SPDX-License-Identifier: Apache-2.0
// SimulationRun: one run of Simulate. Passes events and messages to shards and workers, and plays
// the coordinator's part when workers fail. Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "planning/simulation/byte_model.h"
#include "planning/simulation/coding.h"
#include "planning/simulation/control_loop.h"
#include "planning/simulation/network.h"
#include "planning/simulation/record.h"
#include "planning/simulation/shrunk_job.h"
#include "planning/simulation/simulated_shard.h"
#include "planning/simulation/simulated_worker.h"
#include "planning/simulation/simulation.h"
#include "planning/simulation/world.h"

namespace sluice::planning {

class SimulationRun {
 public:
  // The spec must outlive the run. `first` is the plan of the first step, or null.
  SimulationRun(const SimulationSpec& spec, const protocol::Layout& layout, ControlLoop control);

  absl::Status Run();
  SimulationReport Report() const;

 private:
  absl::Status Start();
  void Pass(const Event& event);
  void Deliver(Mail mail);
  void WorkerEvent(const Event& event);
  void MakePlan(uint64_t step);
  void WorkerDown(uint32_t worker);
  void LeaseEnds(uint32_t worker);
  void WorkerUp(uint32_t worker);
  void SetMembers();
  uint64_t FirstStepOfNewcomer() const;
  bool Finished() const;
  absl::Status Stalled() const;
  void AddLinks(SimulationReport* report) const;
  void AddShards(SimulationReport* report) const;

  const SimulationSpec& spec_;
  const uint32_t workers_;  // Ranks of the job.
  EventQueue queue_;
  Network network_;
  ByteModel bytes_;
  ControlLoop control_;
  Coding coding_;
  ShrunkJob job_;
  Record record_;
  World world_;
  MailRoom mail_;
  WorkerPlan plan_;
  std::vector<std::unique_ptr<SimulatedShard>> shards_;
  std::vector<std::unique_ptr<SimulatedWorker>> ranks_;
  std::vector<uint64_t> incarnations_;
  std::vector<bool> leased_;  // By rank: the coordinator still counts the worker as a member.
  std::vector<bool> down_;
  uint64_t last_incarnation_ = 0;
  uint32_t generation_ = 1;
  uint64_t outages_ = 0;
  bool finished_ = false;
};

}  // namespace sluice::planning
