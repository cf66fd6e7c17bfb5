// Device: what a worker computes on, of what a job asks for and what is there.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice {

struct FoundDevices {
  bool cuda = false;  // LibTorch is built for it.
  int gpus = 0;       // That it sees.
};
FoundDevices FindDevices();

// For the log: what is computed on and why, for `device` as a job names it (auto, cpu, cuda,
// cuda:N). So far that is the CPU; UNIMPLEMENTED, saying what was found, for any other.
absl::StatusOr<std::string> ChooseDevice(absl::string_view device, const FoundDevices& found);

}  // namespace sluice
