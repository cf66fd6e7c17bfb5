// ExchangeSession: the processes of one measured job, from their start to their end, with turns in
// between.
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
#include "cli/launch/launch_plan.h"
#include "cli/launch/process_set.h"

namespace sluice::bench {

// Use it on the main thread (child_process.h). Every call waits `timeout` at most. After an error,
// which says in a few lines what became of whom, nothing but the destructor may be called; it
// leaves no process. CANCELLED: a stop signal came, stop_signal() says which.
class ExchangeSession {
 public:
  // `signals` and `clock` are not owned.
  ExchangeSession(cli::LaunchPlan plan, absl::Duration timeout, app::StopSignals* signals,
                  const Clock* clock);
  ~ExchangeSession();
  ExchangeSession(const ExchangeSession&) = delete;
  ExchangeSession& operator=(const ExchangeSession&) = delete;

  // Until every worker has joined.
  absl::Status Start();
  // From here on turns say what the servers at these addresses, HOST:PORT, say of themselves; until
  // one does not answer, which usage_failure() tells then.
  void AskServers(const std::vector<std::string>& addresses,
                  std::shared_ptr<const net::Transport> transport);
  const absl::Status& usage_failure() const { return usage_failure_; }
  // One exchange of all workers, who begin it at the same moment.
  absl::StatusOr<Turn> TakeTurn(absl::Duration compute);
  // Workers leave and every process ends by itself.
  absl::Status Finish();

  // Of the largest server; none: none was started here, nor has any said it.
  std::optional<uint64_t> ServerPeakRssBytes() const;
  int stop_signal() const { return stop_signal_; }

 private:
  void OnLine(uint32_t rank, absl::string_view line);
  absl::Status Tell(const TurnOrder& order);
  absl::Status WaitUntil(absl::string_view what, absl::Duration limit,
                         const std::function<bool()>& done);
  absl::Status Died(const cli::ChildProcess& child, absl::string_view what) const;
  std::string Missing() const;
  bool AllAnswered() const;
  std::optional<double> ServerCpuSeconds() const;
  std::optional<ServersUsage> TakeUsage();
  void AddServers(const std::optional<ServersUsage>& before, Turn* turn);

  cli::LaunchPlan plan_;
  const absl::Duration timeout_;
  app::StopSignals* const signals_;
  const Clock* const clock_;
  cli::ProcessSet processes_;
  std::vector<std::optional<WorkerAnswer>> answers_;  // By rank, to what was asked last.
  absl::Status misunderstood_;
  std::unique_ptr<UsageClient> usage_;  // Null: nobody is asked.
  absl::Status usage_failure_;
  uint64_t usage_peak_rss_bytes_ = 0;  // As was said last; 0: nothing was.
  bool leaving_ = false;
  int stop_signal_ = 0;
};

}  // namespace sluice::bench
