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
#include "server/control/slowest_stream.h"

namespace sluice::planning {

class ControlLoop {
 public:
  // Fails as PlanMaker::Create does.
  static absl::StatusOr<ControlLoop> Create(const job::JobSpec& job,
                                            const protocol::TensorTable& table,
                                            const protocol::Layout& layout);

  // The plan of the first step; null if the job makes no plans.
  server::PlanMaker::Plan First();
  // Records a message between a rank and a shard that has arrived.
  void Arrived(const Mail& mail, const World& world);
  // Records that a rank has finished a step. When all ranks have finished it, makes the next plan
  // and adds it to the coding. `server_s` is the work of the busiest shard in the step, and
  // `bytes_down` what each rank received.
  bool Finished(uint64_t step);
  void MakePlan(uint64_t step, double server_s, uint64_t bytes_down, const World& world,
                Coding* coding);
  const std::vector<PlanEvent>& plans() const { return events_; }

 private:
  // One direction of a stream, since the last plan was due.
  struct StreamUse {
    uint64_t bytes = 0;
    Nanos busy = 0;   // Without the latency.
    Nanos until = 0;  // When the last transfer ended.
  };
  struct Stream {
    StreamUse up{};
    StreamUse down{};
  };

  ControlLoop(std::unique_ptr<server::PlanMaker> maker, uint32_t ranks, bool measures,
              std::vector<uint64_t> elements);

  void ArrivedAtShard0(const Mail& mail, Nanos begins, const World& world);
  // Returns what each shard knows of its streams, and begins to count again.
  std::vector<server::ShardStreams> TakeStreams(const World& world);
  void Note(const server::PlanMaker::Plan& plan);

  std::unique_ptr<server::PlanMaker> maker_;  // Null if the job makes no plans.
  uint32_t ranks_;
  bool measures_;
  std::vector<uint64_t> elements_;            // By shard.
  std::vector<std::vector<Stream>> streams_;  // By shard and rank.
  uint64_t step_ = 0;
  uint32_t finished_ = 0;  // Ranks that have finished step_.
  std::vector<PlanEvent> events_;
};

}  // namespace sluice::planning
