// SPDX-License-Identifier: Apache-2.0
#include "bench/measure/exchange_session.h"

#include <time.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/process_usage.h"

namespace sluice::bench {
namespace {

// Time for the order to reach every worker before the turn starts.
constexpr absl::Duration kLead = absl::Milliseconds(5);
// After a write to a process fails, its exit is noticed within this time.
constexpr absl::Duration kDeathShows = absl::Seconds(1);
// Time for a server to report its usage.
constexpr absl::Duration kUsageTimeout = absl::Seconds(5);

int64_t MonotonicNs() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

}  // namespace

ExchangeSession::ExchangeSession(cli::CommandLines plan, absl::Duration timeout,
                                 app::StopSignals* signals, const Clock* clock)
    : plan_(std::move(plan)),
      timeout_(timeout),
      signals_(signals),
      clock_(clock),
      processes_(clock),
      answers_(plan_.workers.size()) {}

ExchangeSession::~ExchangeSession() { processes_.KillAll(); }

absl::Status ExchangeSession::Start() {
  for (const cli::ChildOptions& shard : plan_.shards) {
    if (absl::Status status = processes_.Start(cli::Role::kServer, shard); !status.ok())
      return status;
  }
  for (uint32_t rank = 0; rank < plan_.workers.size(); ++rank) {
    cli::ChildOptions& worker = plan_.workers[rank];
    worker.on_line = [this, rank](absl::string_view line) { OnLine(rank, line); };
    if (absl::Status status = processes_.Start(cli::Role::kWorker, worker); !status.ok())
      return status;
  }
  return WaitUntil("before all workers had joined", timeout_, [this] { return AllAnswered(); });
}

absl::StatusOr<Turn> ExchangeSession::RunTurn(absl::Duration compute) {
  // Ask the servers outside of the interval for which their processor time is measured.
  const std::optional<ServersUsage> usage_before = ReadUsage();
  const std::optional<double> cpu_before = ServerCpuSeconds();
  const absl::Status told = SendOrder({.leave = false,
                                       .start_ns = MonotonicNs() + absl::ToInt64Nanoseconds(kLead),
                                       .compute_ns = absl::ToInt64Nanoseconds(compute)});
  if (!told.ok()) return told;
  const absl::Status answered =
      WaitUntil("during an exchange", timeout_, [this] { return AllAnswered(); });
  if (!answered.ok()) return answered;
  Turn turn;
  if (cpu_before.has_value()) turn.server_cpu_seconds = *ServerCpuSeconds() - *cpu_before;
  AddServers(usage_before, &turn);
  for (const std::optional<WorkerAnswer>& answer : answers_) {
    if (!answer->turn.has_value()) {
      return absl::InternalError("a worker joined again instead of exchanging");
    }
    turn.workers.push_back(*answer->turn);
  }
  return turn;
}

void ExchangeSession::AskServers(const std::vector<std::string>& addresses,
                                 const std::shared_ptr<const net::Transport>& transport) {
  usage_ = std::make_unique<UsageClient>(addresses, transport);
}

std::optional<ServersUsage> ExchangeSession::ReadUsage() {
  if (usage_ == nullptr) return std::nullopt;
  absl::StatusOr<ServersUsage> usage = usage_->Ask(kUsageTimeout);
  if (!usage.ok()) {
    usage_failure_ = usage.status();
    usage_.reset();
    return std::nullopt;
  }
  usage_peak_rss_bytes_ = usage->peak_rss_bytes;
  return *usage;
}

void ExchangeSession::AddServers(const std::optional<ServersUsage>& before, Turn* turn) {
  const std::optional<ServersUsage> after = ReadUsage();
  if (!before.has_value() || !after.has_value()) return;
  turn->server_stage_seconds.emplace();
  for (size_t stage = 0; stage < protocol::kStages; ++stage) {
    (*turn->server_stage_seconds)[stage] = after->stages[stage] - before->stages[stage];
  }
  if (!turn->server_cpu_seconds.has_value()) {
    turn->server_cpu_seconds = after->cpu_seconds - before->cpu_seconds;
  }
}

absl::Status ExchangeSession::Finish() {
  leaving_ = true;
  if (absl::Status status = SendOrder({.leave = true}); !status.ok()) return status;
  return WaitUntil("while all workers left", timeout_, [this] { return processes_.AllEnded(); });
}

absl::Status ExchangeSession::SendOrder(const TurnOrder& order) {
  std::fill(answers_.begin(), answers_.end(), std::nullopt);
  const std::string line = FormatOrder(order);
  for (const std::unique_ptr<cli::ChildProcess>& child : processes_.children()) {
    if (!processes_.IsWorker(*child)) continue;
    if (absl::Status status = child->Write(line); !status.ok()) {
      // The process is probably exiting; its exit status is more informative.
      const absl::Status seen =
          WaitUntil("between two exchanges", kDeathShows, [] { return false; });
      return absl::IsDeadlineExceeded(seen) ? status : seen;
    }
  }
  return absl::OkStatus();
}

void ExchangeSession::OnLine(uint32_t rank, absl::string_view line) {
  absl::StatusOr<std::optional<WorkerAnswer>> answer = ParseAnswer(line);
  if (!answer.ok()) {
    misunderstood_.Update(absl::InternalError(
        absl::StrCat(plan_.workers[rank].name, ": ", answer.status().message())));
  } else if (answer->has_value()) {
    answers_[rank] = **answer;
  }
}

absl::Status ExchangeSession::WaitUntil(absl::string_view what, absl::Duration limit,
                                        const std::function<bool()>& done) {
  const absl::Time deadline = clock_->Now() + limit;
  while (true) {
    // Poll at least once, so that an exit is noticed.
    const absl::Duration left = done() ? absl::ZeroDuration() : deadline - clock_->Now();
    for (const cli::ChildProcess* child : processes_.Wait(left, signals_->fd())) {
      if (!leaving_ || cli::ExitCode(*child->wait_status()) != 0) return Died(*child, what);
    }
    if (const std::optional<int> signal = signals_->Take()) {
      stop_signal_ = *signal;
      return absl::CancelledError("stopped by a signal");
    }
    if (!misunderstood_.ok()) return misunderstood_;
    if (done()) return absl::OkStatus();
    if (clock_->Now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("nothing came from ", Missing(), " for ",
                                                      absl::FormatDuration(limit), ", ", what,
                                                      "; if the links are slow, raise --timeout"));
    }
  }
}

absl::Status ExchangeSession::Died(const cli::ChildProcess& child, absl::string_view what) const {
  std::string text = absl::StrCat(child.name(), " (process ", child.pid(), ") ",
                                  cli::DescribeEnd(*child.wait_status()), " ", what);
  std::vector<std::string> lines = child.LastLines();
  const auto is_answer = [](const std::string& line) {
    const auto answer = ParseAnswer(line);
    return !answer.ok() || answer->has_value();
  };
  lines.erase(std::remove_if(lines.begin(), lines.end(), is_answer), lines.end());
  absl::StrAppend(&text, lines.empty() ? "; it printed nothing" : "; its last lines:");
  for (const std::string& line : lines) absl::StrAppend(&text, "\n    ", line);
  return absl::AbortedError(text);
}

std::string ExchangeSession::Missing() const {
  std::vector<std::string> names;
  for (uint32_t rank = 0; rank < answers_.size(); ++rank) {
    if (!answers_[rank].has_value()) names.push_back(plan_.workers[rank].name);
  }
  return names.empty() ? "the servers" : absl::StrJoin(names, ", ");
}

bool ExchangeSession::AllAnswered() const {
  return std::all_of(answers_.begin(), answers_.end(),
                     [](const auto& answer) { return answer.has_value(); });
}

std::optional<double> ExchangeSession::ServerCpuSeconds() const {
  if (plan_.shards.empty()) return std::nullopt;
  double seconds = 0;
  for (const std::unique_ptr<cli::ChildProcess>& child : processes_.children()) {
    if (!processes_.IsWorker(*child)) seconds += CpuSecondsOf(child->pid());
  }
  return seconds;
}

std::optional<uint64_t> ExchangeSession::ServerPeakRssBytes() const {
  if (plan_.shards.empty() && usage_peak_rss_bytes_ == 0) return std::nullopt;
  if (plan_.shards.empty()) return usage_peak_rss_bytes_;
  uint64_t most = 0;
  for (const std::unique_ptr<cli::ChildProcess>& child : processes_.children()) {
    if (!processes_.IsWorker(*child)) most = std::max(most, PeakRssOf(child->pid()));
  }
  return most;
}

}  // namespace sluice::bench
