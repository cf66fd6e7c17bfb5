// SPDX-License-Identifier: Apache-2.0
// ControlLoop: the real compression control of a simulated job. Shard 0 makes plans from the
// measurements of each step, as a real one does, and a plan takes effect kPlanDelay steps later.
// Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "job/job_spec.h"
#include "planning/simulation/coding.h"
#include "planning/simulation/simulation.h"
#include "planning/simulation/world.h"
#include "server/control/plan_maker.h"

namespace sluice::planning {

class ControlLoop {
 public:
  // Fails as PlanMaker::Create does.
  static absl::StatusOr<ControlLoop> Create(const job::JobSpec& job,
                                            const protocol::TensorTable& table,
                                            const protocol::Layout& layout);

  // The plan of the first step; null if the job makes no plans.
  server::PlanMaker::Plan First();
  // Records a message of a rank and shard 0 that has arrived.
  void Arrived(const Mail& mail, const World& world);
  // Records that a rank has finished a step. When all ranks have finished it, makes the next plan
  // and adds it to the coding. `server_s` is the work of the busiest shard in the step, and
  // `bytes_down` what each rank received.
  bool Finished(uint64_t step);
  void MakePlan(uint64_t step, double server_s, uint64_t bytes_down, const World& world,
                Coding* coding);
  const std::vector<PlanEvent>& plans() const { return events_; }

 private:
  ControlLoop(std::unique_ptr<server::PlanMaker> maker, uint32_t ranks, bool measures, double share)
      : maker_(std::move(maker)),
        ranks_(ranks),
        measures_(measures),
        share_(share),
        up_until_(ranks),
        down_until_(ranks) {}

  void Note(const server::PlanMaker::Plan& plan);

  std::unique_ptr<server::PlanMaker> maker_;  // Null if the job makes no plans.
  uint32_t ranks_;
  bool measures_;
  double share_;                 // Shard 0 has this share of all elements.
  std::vector<Nanos> up_until_;  // By rank: when the last transfer ended.
  std::vector<Nanos> down_until_;
  uint64_t step_ = 0;
  uint32_t finished_ = 0;  // Ranks that have finished step_.
  std::vector<PlanEvent> events_;
};

}  // namespace sluice::planning
