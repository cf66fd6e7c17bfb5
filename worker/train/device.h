// Device: what a worker computes on, of what a job asks for and what is there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice {

struct FoundDevices {
  bool cuda = false;  // LibTorch is built for it.
  int gpus = 0;       // That it sees.
};
FoundDevices FindDevices();

struct ChosenDevice {
  std::optional<int> gpu;   // None: the CPU.
  std::string description;  // For the log: what is computed on, and why.
};

// For `device` as a job names it: cpu; cuda:N, GPU N; cuda, a GPU, by the rank where there are
// several; auto, the same, or the CPU where there is none. FAILED_PRECONDITION, saying what was
// found: there is no such GPU.
absl::StatusOr<ChosenDevice> ChooseDevice(absl::string_view device, uint32_t rank,
                                          const FoundDevices& found);

}  // namespace sluice
