// SPDX-License-Identifier: Apache-2.0
// ParameterAudit: compares the hashes of parameters that ranks report. All ranks must have equal
// parameters after the same step. Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/string_view.h"
#include "protocol/exchange.h"

namespace sluice::server {

class ParameterAudit {
 public:
  // Number of steps whose hashes are kept. If ranks report more steps, the oldest is forgotten.
  static constexpr size_t kStepsMax = 64;

  // Records the hash of a sender. If the hash differs from the step's first hash, records nothing
  // and returns the sender of the first hash. With `ranks`, forgets the step once that many ranks
  // have reported it.
  std::optional<protocol::Sender> Report(uint64_t step, const protocol::Sender& sender,
                                         absl::string_view sha256,
                                         std::optional<uint32_t> ranks = std::nullopt);
  // Forgets all steps up to `step` that `ranks` ranks have reported.
  void ForgetCompleteUpTo(uint64_t step, uint32_t ranks);
  void Clear() { hashes_.clear(); }

 private:
  struct Hash {
    protocol::Sender first;  // The sender that was first to report the step.
    std::string sha256;
    std::set<uint32_t> ranks;  // Ranks that reported this hash.
  };
  std::map<uint64_t, Hash> hashes_;  // By step.
};

}  // namespace sluice::server
