// SPDX-License-Identifier: Apache-2.0
// Trains a job of one worker in this process.
#pragma once

#include "absl/status/statusor.h"
#include "job/job_spec.h"
#include "tests/worker/train/memory_job.h"
#include "worker/train/train.h"

namespace sluice::worker {

inline absl::StatusOr<TrainReport> TrainAlone(const job::JobSpec& spec,
                                              const TrainOptions& options = {}) {
  MemoryJob job(1);
  const auto session = job.MakeSession(0);
  return RunTraining(spec, 0, session.get(), options, Logger("worker-0"));
}

}  // namespace sluice::worker
