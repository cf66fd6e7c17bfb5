// StepClock: where one worker's time goes, step by step. Pure; time comes in. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"

namespace sluice::worker {

// Sums over the steps that a worker has finished but its first, whose beginning nobody sees. All
// but encode_hidden_too add up to the time that those steps took.
struct StepSeconds {
  uint64_t steps = 0;
  double compute = 0;   // Whatever the program did between steps' Waits but decoding.
  double decode = 0;    // Results into parameters.
  double encode = 0;    // In Wait, until its own last bundle was encoded.
  double exchange = 0;  // In Wait, from then on: its own link, the shards, and other workers.
  double encode_hidden_too = 0;  // All encoding, beside backward or not.
};

class StepClock {
 public:
  // A bundle of the step that is open.
  void Encoded(absl::Time begin, absl::Time end);
  void Decoded(absl::Duration took) { decoded_ += took; }
  // The Wait of the step that was open, which ends it.
  void Waited(absl::Time begin, absl::Time end);

  const StepSeconds& seconds() const { return seconds_; }

 private:
  StepSeconds seconds_;
  std::optional<absl::Time> ended_;  // The step before.
  // Since then.
  absl::Time encoded_ = absl::InfinitePast();  // The last bundle.
  absl::Duration encoding_{};
  absl::Duration decoded_{};
};

}  // namespace sluice::worker
