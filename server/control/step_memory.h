// SPDX-License-Identifier: Apache-2.0
// StepMemory: remembers by how much steps exceeded StepModel's prediction, for each pick of codecs
// that was in use. The excess includes effects that no single link shows, such as a shared switch
// or a busy processor. Pure; used by the policy `auto`.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "server/control/step_model.h"

namespace sluice::server {

class StepMemory {
 public:
  static constexpr uint64_t kSteps = 1000;  // Older entries are forgotten.
  // Maximum number of picks. When the memory is full, it evicts the least recently used pick.
  static constexpr size_t kPicksMax = 64;
  static constexpr size_t kStepsMin = 5;  // Measured steps before a pick counts as known.
  static constexpr size_t kStepsMax = 32;

  struct Tried {
    ByteLimits bytes{};
    double beyond_s = 0;
    uint64_t step = 0;  // The step in which the pick was last in use.
  };

  // Makes `pick` the pick in use; `bytes` are its bytes.
  void Begin(const CodecPick& pick, ByteLimits bytes);
  // Adds a step with the pick in use. The step took `beyond_s` seconds longer than predicted.
  void Add(double beyond_s);
  // Call this in every step. Records the median of the added steps for the pick in use. If the pick
  // has a value from an earlier use, records the mean of the two.
  void Settle(uint64_t step);
  // Immediately records a value for the pick in use.
  void Put(double beyond_s, uint64_t step);
  void Forget() { tried_.clear(); }

  // Returns null if the pick is not known.
  const Tried* Find(const CodecPick& pick) const;
  const std::map<CodecPick, Tried>& tried() const { return tried_; }
  // Returns the excess of the known pick that is nearest in two figures: the uplink bytes of the
  // largest rank and the bytes of the results.
  double Beyond(const ByteLimits& bytes) const;
  // Standard error of the measurements of the pick in use.
  double noise_s() const { return noise_s_; }

 private:
  CodecPick now_;
  ByteLimits bytes_;  // Bytes of the pick in use.
  std::deque<double> beyonds_;
  std::optional<double> before_s_;  // Value that the pick in use has from an earlier use.
  std::map<CodecPick, Tried> tried_;
  double noise_s_ = 0;
};

}  // namespace sluice::server
