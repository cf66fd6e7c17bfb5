// SPDX-License-Identifier: Apache-2.0
// Prints the effects of a coordinator as lines of text for scenarios (scenario_run.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/coordinator/coordinator_effects.h"
#include "server/coordinator/job_status.h"

namespace sluice::server {

// Returns the error as "CODE message".
std::string TextOf(const absl::Status& error);

// The names of what the effects contain only as numbers: incarnations of workers, which are random,
// and the tokens of calls and streams. Calls are named before effects mention them.
class EffectNames {
 public:
  void NameCall(uint64_t token, std::string label) { calls_[token] = std::move(label); }
  const std::string& Call(uint64_t token) { return calls_[token]; }
  // Returns "w1" for the first holder of rank 1, "w1'" for the second, and so on. Returns "-" if no
  // worker holds the rank.
  std::string Holder(uint32_t rank, uint64_t incarnation);

 private:
  std::map<uint64_t, std::string> calls_;
  std::map<uint32_t, std::vector<uint64_t>> holders_;
};

// Returns the line for one effect.
std::string TextOf(const CoordinatorEffect& effect, EffectNames* names);

// Returns the answer to a heartbeat or a Leave of a worker in `term`.
std::string TextOf(const absl::StatusOr<protocol::JobState>& state, uint32_t term);

// Returns the parts of the status that are not at their initial values, one in each line.
std::vector<std::string> TextOf(const JobStatus& status);

}  // namespace sluice::server
