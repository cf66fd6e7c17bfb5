// SPDX-License-Identifier: Apache-2.0
#include "bench/measure/exchange_worker.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/heap.h"
#include "base/process_usage.h"
#include "bench/measure/exchange_protocol.h"
#include "bench/measure/gradients.h"
#include "job/file/job_file.h"
#include "worker/rpc/remote_client.h"

namespace sluice::bench {
namespace {

// Memory for gradients that are generated in advance. Several gradients make the steps differ.
constexpr uint64_t kGradientBytes = uint64_t{320} << 20;
constexpr uint64_t kGradientsMax = 3;
constexpr float kRate = 1e-3f;  // Learning rate of the descent that applies results.
// If the memory suffices for only one gradient, these factors make the steps differ.
constexpr std::array<float, 2> kFactors = {1.25f, 0.8f};
// Tensors whose gradients are ready within the same slice are submitted together.
constexpr int64_t kSliceNs = 1'000'000;

int64_t Nanoseconds(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

int64_t NowNs() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

void SleepUntil(int64_t ns) {
  const timespec until{.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

class ExchangeWorker {
 public:
  ExchangeWorker(const protocol::TensorTable& table, const ExchangeWorkerOptions& options)
      : table_(table), elements_(protocol::TotalElements(table)), parameters_(elements_) {
    uint64_t begin = 0;
    for (const protocol::TensorInfo& tensor : table_) {
      begins_.push_back(begin);
      begin += tensor.elements();
    }
    const SyntheticGradients source(table, {.seed = options.gradients.seed});
    const uint64_t fitting = kGradientBytes / (elements_ * sizeof(float));
    gradients_.resize(std::clamp<uint64_t>(fitting, 1, kGradientsMax));
    for (size_t step = 0; step < gradients_.size(); ++step) {
      gradients_[step].resize(elements_);
      source.FillAll(options.rank, step, absl::MakeSpan(gradients_[step]));
    }
  }

  absl::Status Run(worker::JobClient* client) {
    const absl::StatusOr<worker::JoinedJob> joined = client->Join(table_, std::string(32, 'a'));
    if (!joined.ok()) return joined.status();
    worker::Session* const session = joined->session;
    Say(FormatJoined());
    std::string line;
    while (std::getline(std::cin, line)) {
      const absl::StatusOr<TurnOrder> order = ParseOrder(line);
      if (!order.ok()) return order.status();
      if (order->leave) return session->Leave();
      absl::StatusOr<TurnReport> report = RunTurn(*order, session);
      if (!report.ok()) return report.status();
      PrepareNext();
      Say(FormatTurn(*report));
    }
    session->Abandon("the benchmark that started it has ended");
    return absl::CancelledError("the benchmark that started this worker has ended");
  }

 private:
  static void Say(const std::string& line) {
    std::fputs(line.c_str(), stdout);
    std::fflush(stdout);
  }

  absl::StatusOr<TurnReport> RunTurn(const TurnOrder& order, worker::Session* session) {
    SleepUntil(order.start_ns);
    TurnReport report;
    const worker::TrafficCounters before = session->traffic();
    const protocol::StageSeconds stages_before = session->stages();
    const double cpu_before = CpuSecondsOfThisProcess();
    report.started_ns = NowNs();
    if (absl::Status given = SubmitAll(order, session, &report); !given.ok()) return given;
    // This thread does nothing else between these readings that takes processor time.
    const int64_t unapplied_cpu = CpuNanosecondsOfThisThread();
    if (absl::Status applied = ApplyAll(session, &report); !applied.ok()) return applied;
    const int64_t apply_cpu = CpuNanosecondsOfThisThread() - unapplied_cpu;
    report.applied_ns = NowNs();
    report.cpu_ns = Nanoseconds(CpuSecondsOfThisProcess() - cpu_before);
    const worker::TrafficCounters after = session->traffic();
    report.bytes_up = after.bytes_up - before.bytes_up;
    report.bytes_down = after.bytes_down - before.bytes_down;
    report.encode_ns = Nanoseconds(after.encode_seconds - before.encode_seconds);
    const protocol::StageSeconds stages = session->stages();
    for (size_t stage = 0; stage < protocol::kStages; ++stage) {
      report.stage_cpu_ns[stage] = Nanoseconds(stages[stage] - stages_before[stage]);
    }
    report.stage_cpu_ns[static_cast<size_t>(protocol::Stage::kApply)] += apply_cpu;
    report.peak_rss_bytes = PeakRssOfThisProcess();
    return report;
  }

  // Submits the last tensor first, as a backward pass does. Submits each tensor when its share of
  // the compute time has passed.
  absl::Status SubmitAll(const TurnOrder& order, worker::Session* session, TurnReport* report) {
    report->ready_ns = report->started_ns;
    for (size_t tensor = table_.size(); tensor-- > 0;) {
      const uint64_t begin = begins_[tensor];
      const uint64_t count = table_[tensor].elements();
      if (order.compute_ns > 0) {
        const double share =
            static_cast<double>(elements_ - begin) / static_cast<double>(elements_);
        const auto due = static_cast<int64_t>(share * static_cast<double>(order.compute_ns));
        const int64_t slice_end = (due + kSliceNs - 1) / kSliceNs * kSliceNs;
        SleepUntil(report->started_ns + std::min(slice_end, order.compute_ns));
        report->ready_ns = NowNs();
      }
      const absl::Status given =
          session->Submit(static_cast<uint32_t>(tensor), {gradients_[next_].data() + begin, count});
      if (!given.ok()) return given;
    }
    report->submitted_ns = NowNs();
    return absl::OkStatus();
  }

  // Applies each mean as soon as it has arrived, and ends the step.
  absl::Status ApplyAll(worker::Session* session, TurnReport* report) {
    while (true) {
      const absl::StatusOr<std::vector<worker::ReadyTensor>> ready =
          session->WaitForTensors(absl::InfiniteDuration());
      if (!ready.ok()) return ready.status();
      if (ready->empty()) break;
      const int64_t began_ns = NowNs();
      for (const worker::ReadyTensor& mean : *ready) {
        const absl::Status applied = session->ApplyScaled(
            mean.tensor, -kRate,
            absl::MakeSpan(parameters_)
                .subspan(begins_[mean.tensor], table_[mean.tensor].elements()));
        if (!applied.ok()) return applied;
      }
      report->apply_ns += NowNs() - began_ns;
    }
    return session->Wait().status();
  }

  void PrepareNext() {
    ++turns_;
    next_ = turns_ % gradients_.size();
    if (gradients_.size() > 1) return;
    for (float& value : gradients_[0]) value *= kFactors[turns_ % kFactors.size()];
  }

  const protocol::TensorTable table_;
  const uint64_t elements_;
  std::vector<uint64_t> begins_;  // By tensor: its first element.
  std::vector<std::vector<float>> gradients_;
  std::vector<float> parameters_;
  size_t next_ = 0;
  uint64_t turns_ = 0;
};

}  // namespace

int RunExchangeWorker(const ExchangeWorkerOptions& options) {
  KeepFreedMemory();
  const absl::StatusOr<job::JobSpec> job = job::LoadJob({.path = options.job_path, .set = {}});
  const absl::StatusOr<protocol::TensorTable> table = ExchangeTable(options.gradients);
  if (!job.ok() || !table.ok()) {
    std::cerr << (job.ok() ? table.status() : job.status()).message() << "\n";
    return 2;
  }
  worker::RemoteSessionOptions session =
      worker::OptionsFromJob(*job, options.coordinator, options.rank);
  absl::StatusOr<std::shared_ptr<const net::Transport>> transport =
      net::Transport::Open(options.security, session.logger);
  if (!transport.ok()) {
    std::cerr << transport.status().message() << "\n";
    return 2;
  }
  session.transport = *std::move(transport);
  session.software_version = SLUICE_VERSION;
  ExchangeWorker worker(*table, options);
  const absl::Status status = worker.Run(worker::MakeRemoteClient(std::move(session)).get());
  if (status.ok()) return 0;
  std::cerr << status.message() << "\n";
  return 1;
}

}  // namespace sluice::bench
