// SPDX-License-Identifier: Apache-2.0
// A job that trains in milliseconds. Tests change individual settings.
#pragma once

#include "job/job_spec.h"

namespace sluice::worker {

// The job has one worker, with 16 steps per epoch and 32 in all.
inline job::JobSpec SmallJob() {
  job::JobSpec spec;
  spec.name = "small";
  spec.model.name = "mlp";
  spec.model.hidden = {32};
  spec.data.format = job::DataFormat::kSynthetic;
  spec.data.limit = 512;
  spec.data.test_limit = 128;
  spec.training.batch_size_per_worker = 32;
  spec.training.epochs = 2;
  spec.optimizer.lr = 0.05;
  spec.optimizer.momentum = 0.5;
  spec.seed = 11;
  return spec;
}

}  // namespace sluice::worker
