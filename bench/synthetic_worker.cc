// SPDX-License-Identifier: Apache-2.0
// synthetic_worker: a worker of a real job without computation. It has fixed gradients over any
// number of parameters, plain descent in the worker or on the shards, and a state of any size. A
// step therefore consists only of Sluice's own work. bench/survival.py kills it, and
// bench/straggler.py slows it down.
//
// On stdout, with the monotonic clock in seconds:
//   joined STEP TIME      the step that it continues from
//   step STEP TIME        a step is applied
//   rollback TIME         the job rolled back; the worker joins again
//   parameters CRC        with the last step, before it leaves

#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "app/exit_codes.h"
#include "app/flags.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/process_usage.h"
#include "base/random.h"
#include "base/trace_file.h"
#include "job/file/job_file.h"
#include "net/grpc/transport.h"
#include "net/http/http_server.h"
#include "worker/http/current_client.h"
#include "worker/http/worker_pages.h"
#include "worker/rpc/remote_client.h"

namespace sluice::bench {
namespace {

constexpr uint32_t kTensorElements = 1 << 22;
constexpr float kRate = 0.01f;
// Limit for consecutive sessions that end in a rollback.
constexpr int kSessionsMax = 20;

struct Flags {
  job::LoadJobOptions job;
  std::string coordinator = "127.0.0.1:7070";
  uint32_t rank = 0;
  uint64_t parameters = 1'000'000;
  uint64_t steps = 100;
  uint32_t state_bytes = 4;  // Per parameter; at least the size of its value.
  double compute_ms = 0;
  double tested = -1;  // Reported test accuracy. Negative: no report.
  bool turns = false;
  std::string http_listen;
  uint64_t quality_interval = 0;
  size_t encode_threads = 1;
  std::string trace;
  net::TransportOptions transport;
};

double Now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

protocol::TensorTable TableOf(uint64_t parameters) {
  protocol::TensorTable table;
  for (uint64_t left = parameters; left > 0; left -= std::min<uint64_t>(left, kTensorElements)) {
    const auto count = static_cast<int64_t>(std::min<uint64_t>(left, kTensorElements));
    const bool matrix = count == kTensorElements;
    table.push_back(
        {.name = absl::StrCat("t", table.size()),
         .shape = matrix ? std::vector<int64_t>{2048, 2048} : std::vector<int64_t>{count},
         .strides = {},
         .dtype = protocol::DType::kFloat32});
  }
  return table;
}

// Returns a heavy-tailed gradient that differs between ranks.
std::vector<float> MakeGradient(uint64_t parameters, uint32_t rank) {
  std::vector<float> gradient(parameters);
  CounterRandom random(rank + 1, 5);
  const size_t drawn = std::min<size_t>(gradient.size(), 1 << 20);
  for (size_t i = 0; i < drawn; ++i) {
    const auto u = static_cast<float>(2 * random.Uniform() - 1);
    gradient[i] = 1e-3f * u / (1.05f - std::abs(u));
  }
  for (size_t i = drawn; i < gradient.size(); ++i) gradient[i] = gradient[i - drawn];
  return gradient;
}

class Trainer {
 public:
  Trainer(Flags flags, bool shards_update)
      : flags_(std::move(flags)),
        shards_update_(shards_update),
        table_(TableOf(flags_.parameters)),
        gradient_(MakeGradient(flags_.parameters, flags_.rank)),
        parameters_(flags_.parameters) {}

  // Runs one session and returns its final status.
  absl::Status Run(worker::JobClient* client) {
    absl::StatusOr<worker::JoinedJob> job = client->Join(table_, std::string(32, 'a'));
    if (!job.ok()) return job.status();
    worker::Session* const session = job->session;
    worker::JoinInfo* const joined = &job->info;
    std::fill(parameters_.begin(), parameters_.end(), 0.0f);
    if (joined->restored_step > 0) {
      if (joined->restored.size() < parameters_.size() * sizeof(float)) {
        return absl::DataLossError("the state is smaller than the parameters");
      }
      std::memcpy(parameters_.data(), joined->restored.data(), parameters_.size() * sizeof(float));
    }
    joined->restored = std::string();
    if (!joined->parameters_agree) {
      const absl::Span<float> all = absl::MakeSpan(parameters_);
      std::vector<absl::Span<float>> values;
      for (size_t tensor = 0; tensor < table_.size(); ++tensor) values.push_back(Of(tensor, all));
      const absl::Status agreed = session->AgreeOnParameters(values);
      if (!agreed.ok()) return agreed;
    }
    if (shards_update_) session->SetRate(kRate);
    std::printf("joined %lu %.6f\n", joined->first_step - 1, Now());
    std::fflush(stdout);
    for (uint64_t step = joined->first_step; step <= flags_.steps; ++step) {
      if (!MayGoOn()) break;
      const absl::Status done = Step(session);
      if (!done.ok()) return done;
      std::printf("step %lu %.6f\n", step, Now());
      std::fflush(stdout);
    }
    const absl::Span<const float> all = parameters_;
    std::printf("parameters %08x\n", Crc32c({reinterpret_cast<const std::byte*>(all.data()),
                                             all.size() * sizeof(float)}));
    std::fflush(stdout);
    return session->Leave();
  }

 private:
  // With --turns, each line on stdin is a number of steps to run.
  bool MayGoOn() {
    if (!flags_.turns) return true;
    while (turn_ == 0) {
      if (!(std::cin >> turn_)) return false;
    }
    --turn_;
    return true;
  }
  // Computes in slices, so that the computation pauses while the process is stopped.
  void Compute() const {
    for (double left = flags_.compute_ms; left > 0; left -= 1) {
      absl::SleepFor(absl::Milliseconds(std::min(left, 1.0)));
    }
  }
  absl::Status Step(worker::Session* session) {
    if (behind_ > 0) {
      --behind_;
      if (absl::Status skipped = session->Skip(); !skipped.ok()) return skipped;
      return Finish(session);
    }
    Compute();
    for (size_t tensor = table_.size(); tensor-- > 0;) {
      const auto values = Of(tensor, absl::MakeConstSpan(gradient_));
      const absl::Status given =
          session->Submit(static_cast<uint32_t>(tensor), {values.data(), values.size()});
      if (!given.ok()) return given;
    }
    return Finish(session);
  }
  absl::Status Finish(worker::Session* session) {
    const absl::StatusOr<worker::StepResult> result = session->Wait();
    if (!result.ok()) return result.status();
    behind_ = std::max(behind_, result->steps_behind);
    for (size_t tensor = 0; tensor < table_.size(); ++tensor) {
      const absl::Span<float> values = Of(tensor, absl::MakeSpan(parameters_));
      const auto index = static_cast<uint32_t>(tensor);
      const absl::Status applied = shards_update_ ? session->ApplyUpdate(index, values)
                                                  : session->ApplyScaled(index, -kRate, values);
      if (!applied.ok()) return applied;
    }
    if (flags_.tested >= 0) session->Tested(flags_.tested);
    session->Report({.step = result->step, .total_steps = flags_.steps});
    return result->checkpoint_due ? session->SaveCheckpoint(State(), {}) : absl::OkStatus();
  }
  // Returns one tensor's part of an array over all tensors. All tensors except the last have the
  // same size.
  template <typename T>
  absl::Span<T> Of(size_t tensor, absl::Span<T> all) const {
    return all.subspan(tensor * kTensorElements, kTensorElements);
  }
  std::string State() const {
    std::string state(parameters_.size() * std::max<size_t>(flags_.state_bytes, sizeof(float)),
                      'x');
    std::memcpy(state.data(), parameters_.data(), parameters_.size() * sizeof(float));
    return state;
  }

  const Flags flags_;
  const bool shards_update_;
  const protocol::TensorTable table_;
  const std::vector<float> gradient_;
  std::vector<float> parameters_;
  uint64_t turn_ = 0;
  uint64_t behind_ = 0;  // Steps to skip because they closed without this worker.
};

int Run(const Flags& flags) {
  const absl::StatusOr<job::JobSpec> job = job::LoadJob(flags.job);
  if (!job.ok()) {
    std::cerr << job.status().message() << "\n";
    return 2;
  }
  Trainer trainer(flags, job::ShardOptimizer(*job).has_value());
  const SteadyClock clock;
  absl::StatusOr<std::unique_ptr<TraceFile>> trace;
  if (!flags.trace.empty()) {
    trace = TraceFile::Create({.path = flags.trace,
                               .process = absl::StrCat("worker ", flags.rank),
                               .number = flags.rank,
                               .clock = &clock});
    if (!trace.ok()) {
      std::cerr << trace.status().message() << "\n";
      return 2;
    }
    (*trace)->NameThread("training");
  }
  worker::CurrentClient client;
  const std::function<worker::WorkerView()> view = [&] {
    return worker::WorkerView{.job_name = job->name,
                              .software_version = SLUICE_VERSION,
                              .rank = flags.rank,
                              .cpu_seconds = CpuSecondsOfThisProcess(),
                              .figures = client.figures()};
  };
  absl::StatusOr<std::unique_ptr<net::HttpServer>> metrics;
  if (!flags.http_listen.empty()) {
    metrics = net::HttpServer::Start(
        {.listen = flags.http_listen},
        [&view](const std::string& path) { return worker::WorkerPage(path, view); });
    if (!metrics.ok()) {
      std::cerr << metrics.status().message() << "\n";
      return 2;
    }
  }
  const absl::StatusOr<std::shared_ptr<const net::Transport>> transport =
      net::Transport::Open(flags.transport, Logger("worker"));
  if (!transport.ok()) {
    std::cerr << transport.status().message() << "\n";
    return 2;
  }
  absl::Status status;
  bool rejoining = false;
  for (int session_number = 0; session_number < kSessionsMax; ++session_number) {
    worker::RemoteSessionOptions options =
        worker::OptionsFromJob(*job, flags.coordinator, flags.rank);
    options.software_version = SLUICE_VERSION;
    options.transport = *transport;
    options.rejoining = rejoining;
    options.quality_interval = flags.quality_interval;
    options.encode_threads = flags.encode_threads;
    options.clock = &clock;
    if (trace.ok()) options.trace = trace->get();
    status = trainer.Run(client.Replace(worker::MakeRemoteClient(std::move(options))));
    if (!worker::IsRollback(status)) break;
    rejoining = true;
    std::printf("rollback %.6f\n", Now());
    std::fflush(stdout);
  }
  if (status.ok()) return 0;
  std::cerr << status.message() << "\n";
  return worker::IsRollback(status) ? app::kExitLostPeers : 1;
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  sluice::KeepFreedMemory();
  CLI::App app(
      "A worker of a real job without computation, for bench/survival.py and bench/straggler.py.");
  sluice::bench::Flags flags;
  sluice::app::AddJobFlags(&app, &flags.job);
  app.add_option("--coordinator", flags.coordinator, "Address of shard 0");
  app.add_option("--rank", flags.rank, "From 0");
  app.add_option("--parameters", flags.parameters, "Number of parameters")
      ->check(CLI::PositiveNumber);
  app.add_option("--steps", flags.steps, "Steps of the job");
  app.add_option("--state-bytes", flags.state_bytes, "Bytes of a checkpoint's state per parameter");
  app.add_option("--compute-ms", flags.compute_ms, "Sleep in each step, milliseconds");
  app.add_option("--tested", flags.tested,
                 "Report a test with this accuracy, 0 to 1, in each step");
  app.add_flag("--turns", flags.turns, "Read numbers of steps to run from stdin");
  app.add_option("--http-listen", flags.http_listen, "As in sluice-worker");
  app.add_option("--quality-interval", flags.quality_interval,
                 "As in sluice-worker; 0 disables it");
  app.add_option("--encode-threads", flags.encode_threads, "As in sluice-worker")
      ->check(CLI::Range(1, 256));
  app.add_option("--trace-file", flags.trace, "As in sluice-worker");
  CLI11_PARSE(app, argc, argv);
  if (const char* const proxy = std::getenv("grpc_proxy")) flags.transport.grpc_proxy = proxy;
  return sluice::bench::Run(flags);
}
