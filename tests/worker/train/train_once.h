// SPDX-License-Identifier: Apache-2.0
// Runs a job of one worker and returns its results.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <string>
#include <vector>

#include "job/job_spec.h"
#include "tests/worker/train/memory_job.h"
#include "worker/train/train.h"

namespace sluice::worker {

struct Ran {
  TrainReport report;
  uint64_t skips = 0;
  std::map<uint64_t, std::string> saved;
  std::vector<char> parameters;  // The file, if the job has an output.

  at::Tensor Parameter(const std::string& name) const {
    return torch::pickle_load(parameters).toGenericDict().at(name).toTensor();
  }
};

// Saves a checkpoint after each step. Continues from `state` if `step` is above 0.
inline Ran TrainOnce(const job::JobSpec& spec, uint64_t step = 0, const std::string& state = "") {
  MemoryJob job(1);
  const auto session = job.MakeSession(0);
  session->CheckpointEvery(1);
  if (step > 0) session->RestoreAfter(step, state);
  const auto report = RunTraining(spec, 0, session.get(), {}, Logger("worker-0"));
  EXPECT_TRUE(report.ok()) << report.status();
  if (!report.ok()) return {};
  Ran ran{*report, session->skips(), session->saved(), {}};
  if (!session->saved_files().empty()) {
    const std::string& bytes = session->saved_files()[0].bytes;
    ran.parameters.assign(bytes.begin(), bytes.end());
  }
  return ran;
}

}  // namespace sluice::worker
