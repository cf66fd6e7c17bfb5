// SPDX-License-Identifier: Apache-2.0
// `sluice follow`: keeps a model file up to date with a running job.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "app/log_flags.h"
#include "compress/element_type.h"
#include "net/grpc/transport_options.h"

namespace sluice::cli {

struct FollowCommand {
  std::string address;
  std::string output;   // Folder for model.safetensors.
  std::string patches;  // Folder for patches. Empty: none are written.
  std::string exec;     // Shell command to run after each version. Empty: none.
  compress::ElementType type = compress::ElementType::kBfloat16;
  uint64_t anchor_every = 100;
  bool once = false;  // Ends after the first version.
  absl::Duration patience = absl::Seconds(60);
  net::TransportOptions security{};
  app::LogFlags log{};
};

// Runs until the job ends, a signal arrives or a server does not answer for `patience`. Returns the
// exit code.
int Follow(const FollowCommand& command);

}  // namespace sluice::cli
