// SPDX-License-Identifier: Apache-2.0
// HostTerm: the run and the term that a server process works for. It decides which coordinator may
// start a term here, and what a worker's request gets while the process has no core. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "protocol/exchange.h"
#include "protocol/shard_control.h"

namespace sluice::server {

class HostTerm {
 public:
  // Returns OK if the coordinator that sent `start` leads the newest term of this process's run.
  // Fails with FAILED_PRECONDITION for another run, an earlier term, or an earlier coordinator.
  absl::Status MayStart(const protocol::StartShard& start) const;
  // Moves to the term of `start`, which MayStart must allow.
  void MoveTo(const protocol::StartShard& start);
  // Binds this process to a run. Call this once a core of that run exists.
  void BindTo(uint64_t job_uid) { job_uid_ = job_uid; }
  // Moves to `term` before its Start. Requests of earlier terms get `reason`. `term` must not be
  // below the current term.
  void Suspend(uint32_t term, absl::string_view reason);
  // The job has ended here. All later requests without a core get `reason`.
  void End(absl::string_view reason) { ended_ = std::string(reason); }
  // This process must not answer any more, because another process serves the shard.
  void Withdraw(absl::string_view reason);

  // Returns the answer to a request that arrives while there is no core.
  protocol::ExchangeReply AnswerWithoutCore(const protocol::ExchangeRequest& exchange) const;
  // Returns UNAVAILABLE with the reason if this process has withdrawn.
  absl::Status Withdrawn() const;

  uint64_t job_uid() const { return job_uid_; }
  uint32_t term() const { return term_; }
  bool ended() const { return !ended_.empty(); }
  const std::string& end_reason() const { return ended_; }

 private:
  uint64_t job_uid_ = 0;  // The current run; 0 if there is none yet.
  uint32_t term_ = 0;     // The highest term received.
  // The highest incarnation received of a coordinator that began or took over the term.
  uint64_t coordinator_incarnation_ = 0;
  std::string suspended_;  // The reason for the suspension.
  std::string ended_;      // The reason for the end; empty before it.
  bool withdrawn_ = false;
};

}  // namespace sluice::server
