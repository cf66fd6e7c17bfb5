// SPDX-License-Identifier: Apache-2.0
// ExchangeSession: the processes of one measured job, from start to end, with turns in between.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "app/stop_signals.h"
#include "base/clock.h"
#include "bench/measure/exchange_protocol.h"
#include "bench/measure/exchange_report.h"
#include "bench/measure/usage_client.h"
#include "cli/launch/command_lines.h"
#include "cli/launch/process_set.h"

namespace sluice::bench {

// Use this class only on the main thread (child_process.h). Every call waits at most `timeout`. An
// error describes in a few lines what happened to each process. After an error, call only the
// destructor, which ends all processes. CANCELLED means that a stop signal arrived; stop_signal()
// returns the signal.
class ExchangeSession {
 public:
  // `signals` and `clock` are not owned.
  ExchangeSession(cli::CommandLines plan, absl::Duration timeout, app::StopSignals* signals,
                  const Clock* clock);
  ~ExchangeSession();
  ExchangeSession(const ExchangeSession&) = delete;
  ExchangeSession& operator=(const ExchangeSession&) = delete;

  // Waits until every worker has joined.
  absl::Status Start();
  // Later turns include the figures that the servers at these addresses (HOST:PORT) report. Once a
  // server fails to answer, turns no longer include them, and usage_failure() returns the error.
  void AskServers(const std::vector<std::string>& addresses,
                  const std::shared_ptr<const net::Transport>& transport);
  const absl::Status& usage_failure() const { return usage_failure_; }
  // Runs one exchange of all workers, which start at the same time.
  absl::StatusOr<Turn> RunTurn(absl::Duration compute);
  // Makes workers leave, and waits until every process has exited.
  absl::Status Finish();

  // Memory of the largest server. Absent if this program started no server and no server has
  // reported its memory.
  std::optional<uint64_t> ServerPeakRssBytes() const;
  int stop_signal() const { return stop_signal_; }

 private:
  void OnLine(uint32_t rank, absl::string_view line);
  absl::Status SendOrder(const TurnOrder& order);
  absl::Status WaitUntil(absl::string_view what, absl::Duration limit,
                         const std::function<bool()>& done);
  absl::Status Died(const cli::ChildProcess& child, absl::string_view what) const;
  std::string Missing() const;
  bool AllAnswered() const;
  std::optional<double> ServerCpuSeconds() const;
  std::optional<ServersUsage> ReadUsage();
  void AddServers(const std::optional<ServersUsage>& before, Turn* turn);

  cli::CommandLines plan_;
  const absl::Duration timeout_;
  app::StopSignals* const signals_;
  const Clock* const clock_;
  cli::ProcessSet processes_;
  std::vector<std::optional<WorkerAnswer>> answers_;  // By rank: the answer to the last order.
  absl::Status misunderstood_;
  std::unique_ptr<UsageClient> usage_;  // Null if servers are not asked.
  absl::Status usage_failure_;
  uint64_t usage_peak_rss_bytes_ = 0;  // The last reported value; 0 if there is none.
  bool leaving_ = false;
  int stop_signal_ = 0;
};

}  // namespace sluice::bench
