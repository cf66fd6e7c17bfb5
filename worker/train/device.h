// Device: what a worker computes on, of what a job asks for and what is there.
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
  bool cuda = false;  // LibTorch is built for it.
  int gpus = 0;       // That it sees.
};
FoundDevices FindDevices();

struct ChosenDevice {
  std::vector<int> gpus;    // None: the CPU. The first has the model, the others copies of it.
  std::string description;  // For the log: what is computed on, and why.
};

// For `device` and `gpus_per_worker` as a job has them. cpu; cuda:N, GPU N and those after it;
// cuda, GPUs by the rank, so that workers of a machine with ranks one after the other share none as
// long as there are enough; auto, the same, or the CPU where there is none. FAILED_PRECONDITION,
// saying what was found: there are no such GPUs.
absl::StatusOr<ChosenDevice> ChooseDevice(const job::JobSpec& spec, uint32_t rank,
                                          const FoundDevices& found);

}  // namespace sluice::worker
