// SPDX-License-Identifier: Apache-2.0
// SessionTimes: measures the work and the waits of a session: for its figures, for its trace and
// for the controller's report on the link. The caller passes in all times. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "base/trace_file.h"
#include "protocol/link_meter.h"
#include "worker/core/send_lead.h"
#include "worker/core/session.h"
#include "worker/core/step_clock.h"

namespace sluice::worker {

class SessionTimes {
 public:
  // `trace` may be null, and must outlive this.
  explicit SessionTimes(TraceFile* trace) : trace_(trace) {}

  // Records the first call of a step.
  void StepBegan(absl::Time now);
  // Records the encoding of a bundle of the open step.
  void Encoded(absl::Time began, absl::Time ended);
  // Records that the exchange of the open step began, unless it did before.
  void ExchangeBegan(absl::Time now);
  void ExchangeEnded(uint64_t step, absl::Time now);
  // Records that the training thread applied results.
  void Applied(absl::Time began, absl::Time ended);
  // Records a wait in the open step for the results of some tensors. `encoding`: bundles of this
  // worker are not encoded yet.
  void WaitedForTensors(absl::Time began, absl::Time ended, bool encoding);
  // Records the wait that ended the step. Returns the report on the step; none for step 0, of which
  // only the trace is kept.
  std::optional<protocol::LinkReport> Waited(uint64_t step, absl::Time began, absl::Time ended);
  // Writes the last consecutive decoding to the trace.
  void EndDecoding();

  // Does not count bytes.
  const TrafficCounters& counters() const { return counters_; }
  const StepSeconds& seconds() const { return clock_.seconds(); }
  const DurationHistogram& exchanges() const { return exchanges_; }
  const SendLead& lead() const { return lead_; }

 private:
  TraceFile* const trace_;
  TrafficCounters counters_;
  StepClock clock_;  // For steps with an exchange, not step 0.
  DurationHistogram exchanges_;
  SendLead lead_;
  std::optional<absl::Time> exchange_began_;  // In the open step.
  absl::Time step_began_;                     // When the last step ended.
  absl::Time decoding_began_;                 // Start of consecutive decoding.
  absl::Time decoding_ended_;                 // End of consecutive decoding.
};

}  // namespace sluice::worker
