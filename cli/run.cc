// SPDX-License-Identifier: Apache-2.0
#include "cli/run.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "app/stop_signals.h"
#include "base/clock.h"
#include "base/text.h"
#include "cli/launch/command_lines.h"
#include "cli/launch/process_set.h"
#include "cli/launch/quantity.h"
#include "cli/launch/restart_policy.h"
#include "cli/launch/status_client.h"
#include "cli/pacing/link_pacer.h"
#include "cli/prepared_run.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/resume_check.h"
#include "cli/run_messages.h"

namespace sluice::cli {
namespace {

constexpr absl::Duration kAskEvery = absl::Milliseconds(500);
constexpr absl::Duration kAskTimeout = absl::Seconds(2);
constexpr absl::Duration kLineEvery = absl::Seconds(5);
// Timeout for shards to end after all workers have ended.
constexpr absl::Duration kShardsLinger = absl::Seconds(10);
// Timeout for the processes of a finished job to end after one of them was lost.
constexpr absl::Duration kFinishedLinger = absl::Seconds(5);
// Timeout for a last checkpoint when the run must stop.
constexpr absl::Duration kCheckpointWait = absl::Seconds(10);

class JobRun {
 public:
  explicit JobRun(const RunOptions& options)
      : options_(options),
        console_(options.console),
        processes_(&clock_),
        restarts_(options.restart_limits) {}

  int Run();

 private:
  absl::Status StartProcesses();
  void Watch();
  void OnEnded(const ChildProcess& child);
  bool IsSurvivable(const ChildProcess& child, absl::string_view death);
  std::string DescribeDeath(const ChildProcess& child) const;
  void OnStopSignal(int signal);
  void ReadCheckpoint();
  void ReadStatus();
  void EndLingering();
  void ShowProgress();
  void Fail(std::string text);
  absl::StatusOr<RunReport> Collect();
  RunFacts Facts() const;
  void SayHowToContinue();
  int Finish();
  void WriteJson(absl::string_view text);

  const RunOptions& options_;
  const SteadyClock clock_;
  Console console_;
  PreparedRun setup_;
  std::optional<app::StopSignals> signals_;
  std::unique_ptr<LinkPacer> pacer_;
  ProcessSet processes_;
  RestartPolicy restarts_;
  std::string last_death_;
  std::unique_ptr<StatusClient> client_;

  absl::Time started_ = clock_.Now();
  absl::Time ask_at_ = started_;
  absl::Time line_at_ = started_ + kLineEvery;
  absl::Time workers_ended_ = absl::InfiniteFuture();
  absl::Time finished_ = absl::InfiniteFuture();  // When a process of a finished job was lost.
  absl::Duration wall_ = absl::ZeroDuration();
  v1::GetStatusReply status_;  // The last status received.
  uint32_t repairs_ = 0;       // Sum over all coordinators that answered.
  std::string failure_;        // The first failure. Empty if there is none.
  int exit_code_ = 1;          // After a failure. A failed command's own, if it came first.
  int stop_signal_ = 0;
  bool awaiting_checkpoint_ = false;
};

int JobRun::Run() {
  absl::StatusOr<PreparedRun> setup = PrepareRun(options_, &console_);
  if (!setup.ok()) {
    console_.Error(setup.status().message());
    return setup.status().code() == absl::StatusCode::kInvalidArgument ? 2 : 1;
  }
  setup_ = *std::move(setup);
  absl::StatusOr<app::StopSignals> signals = app::StopSignals::Catch();
  if (!signals.ok()) {
    console_.Error(signals.status().message());
    return 1;
  }
  signals_.emplace(*std::move(signals));
  if (absl::Status status = StartProcesses(); !status.ok()) {
    Fail(std::string(status.message()));
  } else if (!options_.quiet) {
    console_.Say(StartText(options_, setup_));
  }
  Watch();
  return Finish();
}

absl::Status JobRun::StartProcesses() {
  if (setup_.bits_per_second.has_value()) {
    std::vector<uint16_t> listens_on = setup_.launch.shard_ports;
    const size_t relays = setup_.launch.relay_ports.size();
    listens_on.resize(listens_on.size() + (relays > 0 ? relays : setup_.spec.workers), 0);
    absl::StatusOr<std::unique_ptr<LinkPacer>> pacer =
        LinkPacer::Start(*setup_.bits_per_second, listens_on, &clock_);
    if (!pacer.ok()) return pacer.status();
    pacer_ = *std::move(pacer);
    for (size_t i = 0; i < listens_on.size(); ++i) {
      setup_.launch.proxy_ports.push_back(pacer_->proxy_port(i));
    }
  }
  CommandLines plan = MakeCommandLines(setup_.launch);
  if (setup_.has_command() && !options_.quiet) {
    plan.workers[0].on_line = [this](absl::string_view line) { console_.Say(line); };
  }
  for (FreePort& port : setup_.ports) {
    if (absl::Status status = port.Share(); !status.ok()) return status;
  }
  started_ = clock_.Now();
  for (const ChildOptions& shard : plan.shards) {
    if (absl::Status status = processes_.Start(Role::kServer, shard); !status.ok()) return status;
  }
  for (const ChildOptions& relay : plan.relays) {
    if (absl::Status status = processes_.Start(Role::kServer, relay); !status.ok()) return status;
  }
  for (const ChildOptions& worker : plan.workers) {
    if (absl::Status status = processes_.Start(Role::kWorker, worker); !status.ok()) return status;
  }
  client_ = std::make_unique<StatusClient>(plan.coordinator, setup_.transport);
  return absl::OkStatus();
}

void JobRun::Watch() {
  while (!processes_.AllEnded()) {
    for (const ChildProcess* child : processes_.Wait(kAskEvery, signals_->fd())) OnEnded(*child);
    if (absl::Status status = processes_.StartDue(); !status.ok()) {
      Fail(std::string(status.message()));
    }
    while (const std::optional<int> signal = signals_->Take()) OnStopSignal(*signal);
    EndLingering();
    if (client_ == nullptr || processes_.ending()) continue;
    ReadCheckpoint();
    ShowProgress();
  }
  // If all processes ended successfully while the run waited for a last checkpoint, the signal had
  // no effect.
  if (awaiting_checkpoint_ && !processes_.ending()) stop_signal_ = 0;
  wall_ = std::min(workers_ended_, clock_.Now()) - started_;
  console_.ClearBlock();
}

std::string JobRun::DescribeDeath(const ChildProcess& child) const {
  std::string text =
      absl::StrCat(child.name(), " (process ", child.pid(), ") ", DescribeEnd(*child.wait_status()),
                   " after ", FormatElapsed(clock_.Now() - started_));
  if (const uint64_t step = TotalsOf(status_).step; step > 0) {
    absl::StrAppend(&text, ", about step ", step);
  }
  absl::StrAppend(&text, ".");
  return text;
}

// Returns true if the run can continue after this death; in that case, also prepares to continue.
bool JobRun::IsSurvivable(const ChildProcess& child, absl::string_view death) {
  if (!setup_.spec.checkpoint.enabled()) return false;
  if (processes_.AllEndedWell(Role::kWorker) || HasFinished(setup_.spec)) {
    if (!options_.quiet) {
      console_.Warning(absl::StrCat(death, " The job had finished, so nothing is lost."));
    }
    processes_.ForgetStarts();
    finished_ = std::min(finished_, clock_.Now());
    return true;
  }
  if (!CallsForRestart(*child.wait_status())) return false;
  if (stop_signal_ != 0) {
    console_.Warning(absl::StrCat(death, " There will be no last checkpoint."));
    processes_.BeginEnd();
    return true;
  }
  const absl::Time now = clock_.Now();
  const std::optional<absl::Duration> delay = restarts_.OnDeath(child.name(), now);
  if (!delay.has_value()) return false;
  processes_.StartAgainAt(child, now + *delay);
  const uint32_t count = restarts_.restarts().at(child.name());
  last_death_ = absl::StrCat(child.name(), " ", DescribeEnd(*child.wait_status()), ", restarted ",
                             count, count == 1 ? " time" : " times");
  if (!options_.quiet) {
    console_.Warning(absl::StrCat(death, " Restarting it in ", absl::FormatDuration(*delay),
                                  ", restart ", count, ". Its log: ", child.log_path()));
  }
  return true;
}

void JobRun::OnEnded(const ChildProcess& child) {
  const int wait_status = *child.wait_status();
  // A shard may end normally before the last worker has written its report.
  if (processes_.ending() || ExitCode(wait_status) == 0) return;
  std::string text = DescribeDeath(child);
  if (IsSurvivable(child, text)) return;
  if (setup_.spec.checkpoint.enabled() && CallsForRestart(wait_status)) {
    const RestartLimits& limits = restarts_.limits();
    absl::StrAppend(&text, " It was restarted ", limits.restarts_max,
                    " times, most recently less than ", absl::FormatDuration(limits.forget_after),
                    " ago, which is the limit.");
  }
  const std::vector<std::string> lines = child.LastLines();
  absl::StrAppend(&text, lines.empty() ? "\n  It printed nothing." : "\n  Its last lines:");
  for (const std::string& line : lines) absl::StrAppend(&text, "\n    ", line);
  absl::StrAppend(&text, "\n  Its log: ", child.log_path(), "\n  ", Advice(wait_status));
  if (setup_.has_command() && processes_.IsWorker(child) && failure_.empty()) {
    exit_code_ = ExitCode(wait_status);
  }
  Fail(std::move(text));
}

void JobRun::Fail(std::string text) {
  console_.Error(text);
  if (failure_.empty()) failure_ = std::move(text);
  if (!processes_.AllEnded() && !processes_.ending()) {
    console_.Say("Ending the other processes of the run.");
  }
  processes_.BeginEnd();
}

void JobRun::OnStopSignal(int signal) {
  if (stop_signal_ != 0) {
    processes_.KillAll();
    return;
  }
  stop_signal_ = signal;
  if (setup_.spec.checkpoint.enabled() && client_ != nullptr && !processes_.ending()) {
    console_.Say(absl::StrCat("Stopping the run after a checkpoint; waiting at most ",
                              absl::FormatDuration(kCheckpointWait), ". Ctrl-C again kills it."));
    client_->AskCheckpoint(setup_.spec.name, kCheckpointWait);
    awaiting_checkpoint_ = true;
    return;
  }
  console_.Say(signal == SIGINT ? "Stopping the run; Ctrl-C again kills it."
                                : "Stopping the run because of a signal.");
  processes_.BeginEnd();
}

void JobRun::ReadCheckpoint() {
  absl::StatusOr<uint64_t> step = uint64_t{0};
  if (!awaiting_checkpoint_ || !client_->WaitForCheckpoint(absl::ZeroDuration(), &step)) return;
  // The job has just ended, so its processes are ending anyway.
  if (absl::IsFailedPrecondition(step.status())) return;
  awaiting_checkpoint_ = false;
  if (step.ok()) {
    console_.Say(absl::StrCat("The checkpoint after step ", *step, " is written."));
  } else {
    console_.Warning(step.status().message());
  }
  processes_.BeginEnd();
}

void JobRun::EndLingering() {
  // Kill the remaining processes, because an end by SIGTERM would count as a failure. Workers have
  // written their reports by now.
  if (clock_.Now() - finished_ > kFinishedLinger) processes_.KillAll();
  if (!processes_.AllEnded(Role::kWorker)) return;
  processes_.ForgetStarts();
  const absl::Time now = clock_.Now();
  workers_ended_ = std::min(workers_ended_, now);
  if (now - workers_ended_ <= kShardsLinger || processes_.ending()) return;
  if (restarts_.total() > 0) {
    // A shard may have been restarted too late to learn that the job has finished.
    processes_.BeginEnd();
  } else if (setup_.has_command() && TotalsOf(status_).joined == 0) {
    Fail(std::string(kNoWorkerJoined));
  } else {
    Fail("all workers ended well, but a shard did not end within 10 s after them.");
  }
}

void JobRun::ReadStatus() {
  absl::StatusOr<v1::GetStatusReply> answer = status_;
  if (!client_->WaitForStatus(absl::ZeroDuration(), &answer) || !answer.ok()) return;
  const bool rolled_back =
      !answer->last_rollback().empty() &&
      (answer->last_rollback() != status_.last_rollback() || answer->term() != status_.term());
  const bool repaired =
      !answer->last_repair().empty() && answer->last_repair() != status_.last_repair();
  // A restarted coordinator counts repairs from 0 again.
  const bool goes_on = answer->uptime_ms() >= status_.uptime_ms();
  const uint32_t counted = goes_on ? std::min(status_.repairs(), answer->repairs()) : 0;
  repairs_ += answer->repairs() - counted;
  status_ = *std::move(answer);
  if (rolled_back && !options_.quiet) console_.Say(EscapeControls(status_.last_rollback()));
  if (repaired && !options_.quiet) console_.Say(EscapeControls(status_.last_repair()));
}

void JobRun::ShowProgress() {
  ReadStatus();
  const absl::Time now = clock_.Now();
  if (now < ask_at_) return;
  ask_at_ = now + kAskEvery;
  client_->Ask(kAskTimeout);
  if (options_.quiet || status_.world_size() == 0) return;
  const ProgressFrame frame{now - started_, setup_.page_url, restarts_.total(), last_death_};
  if (options_.console.terminal) {
    const int width = TerminalWidth(options_.console.out);
    console_.DrawBlock(ProgressTable(status_, frame, std::max(width - 1, 20)));
  } else if (now >= line_at_) {
    line_at_ = now + kLineEvery;
    console_.Say(ProgressLine(status_, frame));
  }
}

RunFacts JobRun::Facts() const {
  RunFacts facts;
  facts.job_name = setup_.spec.name;
  facts.mode = std::string(NameOf(setup_.spec.exchange.mode));
  facts.ranks_agree = job::InLockstep(setup_.spec.exchange.mode);
  facts.workers = setup_.spec.workers;
  facts.shards = setup_.spec.shards;
  facts.seed = setup_.spec.seed;
  facts.dense = options_.dense;
  facts.output = setup_.spec.output;
  facts.link_rate = options_.link_rate;
  facts.wall_seconds = absl::ToDoubleSeconds(wall_);
  for (const std::unique_ptr<ChildProcess>& child : processes_.children()) {
    if (child->wait_status().has_value()) {
      facts.exit_codes[child->name()] = ExitCode(*child->wait_status());
    }
  }
  if (setup_.spec.checkpoint.enabled()) {
    facts.survival = SurvivalFacts{restarts_.restarts(),
                                   RollbacksSince(setup_.spec, setup_.start.term), repairs_};
  }
  return facts;
}

absl::StatusOr<RunReport> JobRun::Collect() {
  std::vector<WorkerReport> reports;
  for (uint32_t rank = 0; rank < setup_.spec.workers; ++rank) {
    const std::string path = ReportPath(setup_.launch, rank);
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    if (!file && setup_.has_command()) continue;  // Only Sluice's Python package writes reports.
    if (!file) {
      return absl::NotFoundError(
          absl::StrCat("worker ", rank, " ended well but left no report in ", path));
    }
    absl::StatusOr<WorkerReport> report = ParseWorkerReport(text.str());
    if (!report.ok()) {
      return absl::Status(report.status().code(),
                          absl::StrCat(path, ": ", report.status().message()));
    }
    reports.push_back(*std::move(report));
  }
  if (reports.empty()) {
    RunReport report;
    report.facts = Facts();
    return report;
  }
  return CombineReports(Facts(), reports);
}

void JobRun::WriteJson(absl::string_view text) {
  if (options_.report_path.empty()) return;
  std::ofstream file(options_.report_path, std::ios::trunc);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.flush()) {
    console_.Error(absl::StrCat("cannot write the report to ", options_.report_path));
    if (failure_.empty()) failure_ = "cannot write the report";
  }
}

void JobRun::SayHowToContinue() {
  if (!setup_.spec.checkpoint.enabled()) return;
  const absl::StatusOr<RunStart> next = FindRunStart(setup_.spec, /*resume=*/true);
  if (!next.ok()) return;  // The run never began or has just finished.
  console_.Say(absl::StrCat("Continue after step ", next->checkpoint_step, " with ",
                            ResumeCommand(options_)));
}

int JobRun::Finish() {
  client_.reset();
  pacer_.reset();
  if (failure_.empty() && stop_signal_ == 0) {
    if (const absl::StatusOr<RunReport> report = Collect(); report.ok()) {
      console_.Say(ReportSummary(*report));
      WriteJson(ReportJson(*report));
    } else {
      console_.Error(report.status().message());
      failure_ = std::string(report.status().message());
    }
  }
  if (stop_signal_ != 0 && failure_.empty())
    failure_ = absl::StrCat("stopped by signal ", stop_signal_);
  if (failure_.empty()) {
    if (!setup_.keep_logs) {
      std::error_code ignored;  // The folder is temporary, so it may remain.
      std::filesystem::remove_all(setup_.launch.log_folder, ignored);
    }
    return 0;
  }
  WriteJson(FailureJson(Facts(), failure_));
  console_.Say(absl::StrCat("All processes of the run have ended. Their logs are in ",
                            setup_.launch.log_folder, "."));
  SayHowToContinue();
  return stop_signal_ != 0 ? 128 + stop_signal_ : exit_code_;
}

}  // namespace

int RunJob(const RunOptions& options) { return JobRun(options).Run(); }

}  // namespace sluice::cli
