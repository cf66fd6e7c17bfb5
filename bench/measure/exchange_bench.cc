// SPDX-License-Identifier: Apache-2.0
#include "bench/measure/exchange_bench.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "app/stop_signals.h"
#include "base/clock.h"
#include "bench/measure/exchange_plan.h"
#include "bench/measure/exchange_report.h"
#include "bench/measure/exchange_session.h"
#include "cli/launch/free_port.h"
#include "cli/launch/quantity.h"
#include "cli/launch/status_client.h"

namespace sluice::bench {
namespace {

// Dense exchanges take long and vary little, so few of them suffice.
constexpr uint32_t kBaselineWarmup = 2;
constexpr uint32_t kBaselineRepeats = 6;
constexpr absl::Duration kStatusTimeout = absl::Seconds(5);

class ExchangeBench {
 public:
  explicit ExchangeBench(const ExchangeBenchOptions& options)
      : options_(options), console_(options.console) {}
  ~ExchangeBench();
  ExchangeBench(const ExchangeBench&) = delete;
  ExchangeBench& operator=(const ExchangeBench&) = delete;

  int Run();

 private:
  absl::Status Prepare();
  absl::Status MakeFolders();
  ExchangeJob JobOf(const ExchangeCodecs& codecs) const;
  absl::StatusOr<cli::CommandLines> PlanOf(const ExchangeCodecs& codecs);
  absl::StatusOr<ExchangeFigures> Measure(const ExchangeCodecs& codecs, uint32_t warmup,
                                          uint32_t repeats);
  absl::StatusOr<ExchangeFigures> MeasureBaseline(const std::string& spec);
  absl::Status RunTurns(ExchangeSession* session, uint32_t warmup, uint32_t repeats,
                        ExchangeSamples* samples);
  absl::Status MeasureAll();
  absl::Status CheckCoordinator() const;
  void FindServers(const std::string& coordinator, ExchangeSession* session);
  absl::Status WriteJson(absl::string_view text);
  int Fail(const absl::Status& status, int code);

  const ExchangeBenchOptions& options_;
  const SteadyClock clock_;
  cli::Console console_;
  std::optional<app::StopSignals> signals_;
  ExchangeCodecs codecs_;
  std::shared_ptr<const net::Transport> transport_;
  std::vector<std::string> server_addresses_;  // If empty, free ports on loopback.
  ExchangeReport report_;
  std::string folder_;  // A temporary folder.
  std::string log_folder_;
  int stop_signal_ = 0;
};

ExchangeBench::~ExchangeBench() {
  std::error_code ignored;  // Errors do not matter for a temporary folder.
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

int ExchangeBench::Fail(const absl::Status& status, int code) {
  console_.ClearBlock();
  console_.Error(status.message());
  return code;
}

int ExchangeBench::Run() {
  codecs_ = ChooseCodecs(options_.spec, options_.down_spec);
  if (options_.print_job) {
    const absl::StatusOr<std::string> text = ExchangeJobText(JobOf(codecs_));
    if (!text.ok()) return Fail(text.status(), 2);
    return std::fputs(text->c_str(), options_.console.out) < 0 ? 1 : 0;
  }
  absl::StatusOr<app::StopSignals> signals = app::StopSignals::Catch();
  if (!signals.ok()) return Fail(signals.status(), 1);
  signals_.emplace(*std::move(signals));
  if (absl::Status status = Prepare(); !status.ok()) {
    return Fail(status, absl::IsInvalidArgument(status) || absl::IsNotFound(status) ? 2 : 1);
  }
  absl::Status status = MeasureAll();
  console_.ClearBlock();
  if (stop_signal_ != 0) {
    (void)WriteJson(ExchangeFailureJson("stopped by a signal"));
    console_.Say("Stopped by a signal; all processes of the measurement have ended.");
    return 128 + stop_signal_;
  }
  if (status.ok()) {
    std::fputs(FormatExchangeReport(report_).c_str(), options_.console.out);
    status = WriteJson(ExchangeReportJson(report_));
  } else {
    (void)WriteJson(ExchangeFailureJson(status.message()));
  }
  return status.ok() ? 0 : Fail(status, 1);
}

absl::Status ExchangeBench::Prepare() {
  absl::StatusOr<std::shared_ptr<const net::Transport>> transport =
      net::Transport::Open(options_.security, Logger("bench"));
  if (!transport.ok()) return transport.status();
  transport_ = *std::move(transport);
  ExchangeFacts& facts = report_.facts;
  if (!options_.link_rate.empty()) {
    const absl::StatusOr<double> rate = cli::ParseBitRate(options_.link_rate);
    if (!rate.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--link-rate: ", rate.status().message()));
    }
    facts.link_bits_per_second = *rate;
  }
  if (!options_.server_hosts.empty()) {
    absl::StatusOr<std::vector<std::string>> addresses =
        AddressesOf(options_.server_hosts, options_.shards);
    if (!addresses.ok()) return addresses.status();
    server_addresses_ = *std::move(addresses);
  }
  const absl::StatusOr<protocol::TensorTable> table = ExchangeTable(options_.gradients);
  if (!table.ok()) return table.status();
  const absl::StatusOr<double> share = LargestShardShare(JobOf(codecs_), *table);
  if (!share.ok()) return share.status();
  const ExchangeGradients& gradients = options_.gradients;
  facts.model = gradients.table_path.empty() ? gradients.model : gradients.table_path;
  facts.elements = protocol::TotalElements(*table);
  facts.tensors = table->size();
  facts.workers = options_.workers;
  facts.shards = options_.shards;
  facts.warmup = options_.warmup;
  facts.compute_ms = options_.compute_ms;
  facts.seed = gradients.seed;
  facts.largest_shard_share = *share;
  const std::string server = absl::StrCat(options_.program_folder, "/sluice-server");
  if (options_.connect.empty() && ::access(server.c_str(), X_OK) != 0) {
    return absl::NotFoundError(
        absl::StrCat("there is no ", server,
                     ": it must be in the folder of this program; build it (scripts/build.sh)"));
  }
  if (!options_.report_path.empty() && !std::ofstream(options_.report_path, std::ios::app)) {
    return absl::InvalidArgumentError(absl::StrCat("--report: cannot write ", options_.report_path,
                                                   ": check that its folder exists"));
  }
  if (absl::Status status = CheckCoordinator(); !status.ok()) return status;
  return MakeFolders();
}

absl::StatusOr<v1::GetStatusReply> AskStatus(
    const std::string& coordinator, const std::shared_ptr<const net::Transport>& transport) {
  cli::StatusClient client(coordinator, transport);
  client.Ask(kStatusTimeout);
  absl::StatusOr<v1::GetStatusReply> status = absl::UnavailableError("no answer");
  client.WaitForStatus(kStatusTimeout, &status);
  return status;
}

absl::Status ExchangeBench::CheckCoordinator() const {
  if (options_.connect.empty()) return absl::OkStatus();
  const absl::StatusOr<v1::GetStatusReply> status = AskStatus(options_.connect, transport_);
  if (!status.ok()) {
    return absl::UnavailableError(absl::StrCat("--connect: no coordinator answers at ",
                                               options_.connect, " (", status.status().message(),
                                               "): is sluice-server running there?"));
  }
  return CheckRemoteJob(*status, JobOf(codecs_));
}

// The coordinator knows all servers once every worker has joined.
void ExchangeBench::FindServers(const std::string& coordinator, ExchangeSession* session) {
  const absl::StatusOr<v1::GetStatusReply> status = AskStatus(coordinator, transport_);
  if (!status.ok()) {
    console_.Warning(
        absl::StrCat("the report has no stages of servers: ", status.status().message()));
    return;
  }
  std::vector<std::string> addresses;
  for (const v1::ShardStatus& shard : status->shards()) addresses.push_back(shard.address());
  session->AskServers(addresses, transport_);
}

absl::Status ExchangeBench::MakeFolders() {
  std::string folder = options_.temporary_folder + "/sluice-exchange-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot make a temporary folder: ", folder));
  }
  folder_ = std::move(folder);
  log_folder_ = options_.log_folder.empty() ? folder_ : options_.log_folder;
  std::error_code error;
  std::filesystem::create_directories(log_folder_, error);
  if (!error) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--log-dir: cannot make ", log_folder_, ": ", error.message()));
}

ExchangeJob ExchangeBench::JobOf(const ExchangeCodecs& codecs) const {
  return {.gradients = options_.gradients,
          .codecs = codecs,
          .workers = options_.workers,
          .shards = options_.shards,
          .sets = options_.sets};
}

absl::StatusOr<cli::CommandLines> ExchangeBench::PlanOf(const ExchangeCodecs& codecs) {
  ExchangePlanOptions plan;
  const absl::StatusOr<std::string> text = ExchangeJobText(JobOf(codecs));
  if (!text.ok()) return text.status();
  plan.job_path = folder_ + "/job.yaml";
  std::ofstream file(plan.job_path, std::ios::trunc);
  file << *text;
  if (!file.flush()) {
    return absl::UnavailableError(absl::StrCat("cannot write the job file ", plan.job_path));
  }
  // Each port stays reserved until all ports are known, so no port is used twice.
  std::vector<cli::FreePort> ports;
  plan.server_addresses = server_addresses_;
  if (!options_.connect.empty()) {
    plan.coordinator = options_.connect;
  } else if (plan.server_addresses.empty()) {
    for (uint32_t shard = 0; shard < options_.shards; ++shard) {
      absl::StatusOr<cli::FreePort> port = cli::FreePort::Reserve();
      if (!port.ok()) return port.status();
      plan.server_addresses.push_back(absl::StrCat("127.0.0.1:", port->port()));
      ports.push_back(*std::move(port));
    }
  }
  if (plan.coordinator.empty()) plan.coordinator = plan.server_addresses[0];
  plan.program = options_.program;
  plan.program_folder = options_.program_folder;
  plan.gradients = options_.gradients;
  plan.security = options_.security;
  plan.workers = options_.workers;
  plan.wrap_worker = options_.wrap_worker;
  plan.wrap_server = options_.wrap_server;
  plan.environment = options_.environment;
  plan.log_folder = log_folder_;
  return MakeExchangePlan(plan);
}

absl::Status ExchangeBench::RunTurns(ExchangeSession* session, uint32_t warmup, uint32_t repeats,
                                     ExchangeSamples* samples) {
  const absl::Duration compute = absl::Milliseconds(options_.compute_ms);
  const uint32_t plain = warmup + repeats;
  // The kinds do not alternate: in a job, all exchanges follow the same computing, and the sizes of
  // sparse codecs depend on the exchange before.
  const uint32_t all = options_.compute_ms > 0 ? plain + repeats : plain;
  for (uint32_t turn = 0; turn < all; ++turn) {
    if (options_.console.terminal) {
      console_.DrawBlock({absl::StrCat(samples->codecs.uplink, " up, ", samples->codecs.downlink,
                                       " down: exchange ", turn + 1, " of ", all)});
    }
    absl::StatusOr<Turn> taken = session->RunTurn(turn < plain ? absl::ZeroDuration() : compute);
    if (!taken.ok()) return taken.status();
    if (turn < warmup) continue;
    (turn < plain ? samples->turns : samples->computed_turns).push_back(*std::move(taken));
  }
  return absl::OkStatus();
}

absl::StatusOr<ExchangeFigures> ExchangeBench::Measure(const ExchangeCodecs& codecs,
                                                       uint32_t warmup, uint32_t repeats) {
  absl::StatusOr<cli::CommandLines> plan = PlanOf(codecs);
  if (!plan.ok()) return plan.status();
  const std::string coordinator = plan->coordinator;
  ExchangeSession session(*std::move(plan), absl::Seconds(options_.timeout_seconds), &*signals_,
                          &clock_);
  ExchangeSamples samples;
  samples.codecs = codecs;
  absl::Status status = session.Start();
  if (absl::IsAborted(status) && !options_.connect.empty()) {
    status = absl::AbortedError(
        absl::StrCat(status.message(), "\n  The servers at ", options_.connect,
                     " must run the job file that the same command prints with --print-job."));
  }
  if (status.ok()) FindServers(coordinator, &session);
  if (status.ok()) status = RunTurns(&session, warmup, repeats, &samples);
  if (status.ok()) {
    if (!session.usage_failure().ok()) {
      console_.Warning(
          absl::StrCat("the report has no stages of servers: ", session.usage_failure().message()));
    }
    samples.server_peak_rss_bytes = session.ServerPeakRssBytes();
    status = session.Finish();
  }
  stop_signal_ = session.stop_signal();
  if (!status.ok()) return status;
  return Summarize(report_.facts, samples);
}

absl::StatusOr<ExchangeFigures> ExchangeBench::MeasureBaseline(const std::string& spec) {
  const ExchangeCodecs codecs{spec, spec};
  if (codecs == codecs_) return report_.figures;
  return Measure(codecs, std::min(options_.warmup, kBaselineWarmup),
                 std::min(options_.repeats, kBaselineRepeats));
}

absl::Status ExchangeBench::MeasureAll() {
  absl::StatusOr<ExchangeFigures> figures = Measure(codecs_, options_.warmup, options_.repeats);
  if (!figures.ok()) return figures.status();
  report_.figures = *std::move(figures);
  // A coordinator on another host runs one job, whose codecs cannot change.
  if (!options_.baselines || !options_.connect.empty()) return absl::OkStatus();
  absl::StatusOr<ExchangeFigures> none = MeasureBaseline("none");
  if (!none.ok()) return none.status();
  report_.none = *std::move(none);
  absl::StatusOr<ExchangeFigures> fp16 = MeasureBaseline("fp16");
  if (!fp16.ok()) return fp16.status();
  report_.fp16 = *std::move(fp16);
  return absl::OkStatus();
}

absl::Status ExchangeBench::WriteJson(absl::string_view text) {
  if (options_.report_path.empty()) return absl::OkStatus();
  std::ofstream file(options_.report_path, std::ios::trunc);
  file << text;
  if (file.flush()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("--report: cannot write ", options_.report_path));
}

}  // namespace

int RunExchangeBench(const ExchangeBenchOptions& options) { return ExchangeBench(options).Run(); }

}  // namespace sluice::bench
