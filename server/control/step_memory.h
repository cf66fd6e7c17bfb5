// StepMemory: what steps took beyond what StepModel reckoned, for each pick of codecs that was in
// use. So what no single link tells is counted: a switch that all share, a busy processor. Pure;
// for the policy `auto`.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "server/control/step_model.h"

namespace sluice::server {

class StepMemory {
 public:
  static constexpr uint64_t kSteps = 1000;  // What is older is forgotten.
  static constexpr size_t kPicksMax = 64;   // The one longest ago makes room.
  static constexpr size_t kStepsMin = 5;    // That tell something of a pick.
  static constexpr size_t kStepsMax = 32;

  struct Tried {
    ByteLimits bytes{};
    double beyond_s = 0;
    uint64_t step = 0;  // When it was in use last.
  };

  // It is in use from now on; `bytes` are its.
  void Begin(const CodecPick& pick, ByteLimits bytes);
  // A step of what is in use took so many seconds beyond what was reckoned.
  void Add(double beyond_s);
  // To be called in each step: what is in use is known to take the median of the steps that were
  // added, and half of what it took when it was in use before.
  void Settle(uint64_t step);
  // Known at once.
  void Put(double beyond_s, uint64_t step);
  void Forget() { tried_.clear(); }

  // Null: it is not known.
  const Tried* Find(const CodecPick& pick) const;
  const std::map<CodecPick, Tried>& tried() const { return tried_; }
  // Of the nearest pick that is known, by the most bytes of a rank and those of results.
  double Beyond(const ByteLimits& bytes) const;
  // Standard error of what was measured of what is in use.
  double noise_s() const { return noise_s_; }

 private:
  CodecPick now_;
  ByteLimits bytes_;  // Its.
  std::deque<double> beyonds_;
  std::optional<double> before_s_;  // Of what is in use, when it was in use before.
  std::map<CodecPick, Tried> tried_;
  double noise_s_ = 0;
};

}  // namespace sluice::server
