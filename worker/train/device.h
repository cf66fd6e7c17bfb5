// SPDX-License-Identifier: Apache-2.0
// Device: selects a worker's devices from the job's request and the available hardware.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice::job {
struct JobSpec;
}  // namespace sluice::job

namespace sluice::worker {

struct FoundDevices {
  bool cuda = false;  // LibTorch is built with CUDA.
  int gpus = 0;       // GPUs that LibTorch sees.
};
FoundDevices FindDevices();

struct ChosenDevice {
  std::vector<int> gpus;    // Empty for the CPU. The first runs the model, the others run copies.
  std::string description;  // Device and reason, for the log.
};

// Implements `device` and `gpus_per_worker` of a job. "cpu" selects the CPU. "cuda:N" selects GPU N
// and those after it. "cuda" selects GPUs by rank, so that workers with consecutive ranks on one
// machine share none if there are enough. "auto" does the same, or selects the CPU if there is no
// GPU. Fails with FAILED_PRECONDITION, and lists the found GPUs, if the requested ones do not
// exist.
absl::StatusOr<ChosenDevice> ChooseDevice(const job::JobSpec& spec, uint32_t rank,
                                          const FoundDevices& found);

}  // namespace sluice::worker
