// SPDX-License-Identifier: Apache-2.0
// StepClock: tracks one worker's time, step by step. Pure: the caller passes in all times. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"

namespace sluice::worker {

// Sums over the finished steps except the first, whose beginning is unknown. All fields except
// encode_hidden_too add up to the duration of those steps.
struct StepSeconds {
  uint64_t steps = 0;
  double compute = 0;            // Time outside of waits and decoding.
  double decode = 0;             // Applying results to parameters.
  double encode = 0;             // Time in Wait until this worker's last bundle is encoded.
  double exchange = 0;           // Remaining time in Wait: link, shards and other workers.
  double encode_hidden_too = 0;  // All encoding, including the part that overlaps with backward.
};

class StepClock {
 public:
  // Records the encoding of a bundle of the open step.
  void Encoded(absl::Time begin, absl::Time end);
  void Decoded(absl::Duration took) { decoded_ += took; }
  // Records a wait in the open step for the results of some tensors. `encoding`: bundles of this
  // worker are not encoded yet.
  void WaitedForTensors(absl::Time begin, absl::Time end, bool encoding);
  // Records the Wait of the open step, which ends the step.
  void Waited(absl::Time begin, absl::Time end);

  const StepSeconds& seconds() const { return seconds_; }

 private:
  StepSeconds seconds_;
  std::optional<absl::Time> ended_;  // End of the previous step.
  // The fields below cover the time since the end of the previous step.
  absl::Time encoded_ = absl::InfinitePast();  // End of the last encoding.
  absl::Duration encoding_{};
  absl::Duration decoded_{};
  absl::Duration waited_encoding_{};  // Waits, as in StepSeconds::encode and exchange.
  absl::Duration waited_exchange_{};
};

}  // namespace sluice::worker
