// SPDX-License-Identifier: Apache-2.0
// SurvivalJob runs one simulated job without relays, with its faults. A job that is resumed with
// another number of workers is a sequence of SurvivalRuns that share one disk and one time.
#pragma once

#include <memory>
#include <vector>

#include "tests/sim/planned_reference.h"
#include "tests/sim/reference.h"
#include "tests/sim/sim_world.h"
#include "tests/sim/survival.h"
#include "tests/sim/survival_run.h"

namespace sluice {

class SurvivalJob {
 public:
  // `world` outlives it.
  SurvivalJob(const SurvivalOptions& options, SimWorld* world);

  // Runs the job to its end or first violation.
  SurvivalReport Run();

 private:
  // Returns whether the course depends on the faults, so that PlannedReference follows it.
  bool IsFollowed() const;
  void Begin();
  void ScheduleFaults();
  // Schedules the faults from `index` on, which have not struck yet.
  void ScheduleFrom(size_t index);
  void Strike(size_t index);
  void Resume(size_t index);

  SurvivalOptions options_;  // With the present number of workers.
  SimWorld& world_;
  const protocol::TensorTable table_;
  const protocol::Layout layout_;
  const Reference reference_;
  PlannedReference planned_;
  std::vector<Micros> faults_at_;  // By fault.
  std::unique_ptr<SurvivalRun> run_;
};

// Runs a SurvivalJob.
SurvivalReport RunJob(const SurvivalOptions& options, SimWorld* world);

}  // namespace sluice
