// SPDX-License-Identifier: Apache-2.0
// ExchangeReport: summarizes the turns of `sluice bench exchange` as spreads, rates and floors, and
// formats them as a table and as JSON. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "bench/measure/exchange_job.h"
#include "bench/measure/exchange_protocol.h"
#include "protocol/stage_times.h"

namespace sluice::bench {

struct Spread {
  double min = 0;
  double median = 0;
  double p95 = 0;  // The 95th percentile: the smallest value that 95 % of the values do not exceed.
};

// Returns zeros if there are no values.
Spread SpreadOf(std::vector<double> values);

// One exchange of all workers.
struct Turn {
  std::vector<TurnReport> workers;  // By rank.
  // Processor time that all servers used until every worker had answered, in total and by stage.
  // Stages come from the servers' reports, and so does the total if this program did not start the
  // servers. Absent without a report.
  std::optional<double> server_cpu_seconds;
  std::optional<protocol::StageSeconds> server_stage_seconds{};
};

// Measurements with one pair of codecs.
struct ExchangeSamples {
  ExchangeCodecs codecs;
  std::vector<Turn> turns;           // With all gradients ready at once.
  std::vector<Turn> computed_turns;  // With gradients that become ready over the compute time.
  std::optional<uint64_t> server_peak_rss_bytes;  // The largest server's memory.
};

struct ExchangeFacts {
  std::string model;
  uint64_t elements = 0;
  size_t tensors = 0;
  uint32_t workers = 0;
  uint32_t shards = 0;
  uint32_t warmup = 0;
  double compute_ms = 0;  // 0 if not requested.
  uint64_t seed = 0;
  double largest_shard_share = 0;
  std::optional<double> link_bits_per_second;
};

// The bytes of one exchange on the busiest link.
struct BusiestLink {
  absl::string_view link;  // "a worker's link up", "the fullest shard's link in", ...
  double bytes = 0;
};

struct ExchangeFigures {
  ExchangeCodecs codecs;
  size_t turns = 0;
  // Time from the first worker's start until the last worker has applied its result.
  Spread exchange_ms;
  // Median time from the last gradient to the applied result. Without compute time, equal to
  // exchange_ms.
  double exposed_ms = 0;
  double bytes_up = 0;  // Per worker and exchange; also for stages and worker_cpu_seconds.
  double bytes_down = 0;
  BusiestLink busiest;
  double goodput_bits_per_second = 0;      // The busiest link's rate over the median exchange.
  std::optional<double> goodput_fraction;  // Share of the links' rate.
  std::optional<double> floor_ms;          // Time for the busiest link's bytes at its rate.
  // Submit, wait and apply follow each other; encoding overlaps with them.
  double submit_ms = 0;
  double wait_ms = 0;
  double apply_ms = 0;
  double encode_ms = 0;
  double worker_cpu_seconds = 0;
  // The stages of worker_cpu_seconds.
  protocol::StageSeconds worker_stage_seconds{};
  // Processor time of one server for one exchange, and its stages.
  std::optional<double> server_cpu_seconds;
  std::optional<protocol::StageSeconds> server_stage_seconds;
  // Processor time of all workers (or all servers) per gigabyte that the workers (or servers)
  // moved.
  std::optional<double> worker_cpu_seconds_per_gb;
  std::optional<double> server_cpu_seconds_per_gb;
  // Largest resident memory of a worker, including its gradients.
  uint64_t worker_peak_rss_bytes = 0;
  std::optional<uint64_t> server_peak_rss_bytes;
};

// `samples` must have at least one turn, and each turn must have as many workers as `facts`.
ExchangeFigures Summarize(const ExchangeFacts& facts, const ExchangeSamples& samples);

struct ExchangeReport {
  ExchangeFacts facts;
  ExchangeFigures figures;
  // The same run with other codecs. Absent if not requested.
  std::optional<ExchangeFigures> none;
  std::optional<ExchangeFigures> fp16;
};

std::string FormatExchangeReport(const ExchangeReport& report);

// "ok": true, and the keys listed in bench/README.md. Later versions keep these keys and may add
// others.
std::string ExchangeReportJson(const ExchangeReport& report);

// The report of a failed measurement: "ok": false, and the reason.
std::string ExchangeFailureJson(absl::string_view failure);

}  // namespace sluice::bench
