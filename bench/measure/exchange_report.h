// ExchangeReport: what the turns of `sluice bench exchange` come to: spreads, rates, floors, and
// the same as a table and as JSON. Pure.
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
  double p95 = 0;  // The smallest value that 95 % of all do not exceed.
};

// All zero if there are no values.
Spread SpreadOf(std::vector<double> values);

// One exchange of all workers.
struct Turn {
  std::vector<TurnReport> workers;  // By rank.
  // Of all servers, until every worker had answered; none: they are not ours, and do not say.
  std::optional<double> server_cpu_seconds;
  std::optional<protocol::StageSeconds> server_stage_seconds{};  // Of that; none: they do not say.
};

// What was measured with one pair of codecs.
struct ExchangeSamples {
  ExchangeCodecs codecs;
  std::vector<Turn> turns;           // With all gradients ready at once.
  std::vector<Turn> computed_turns;  // With gradients that become ready over the compute time.
  double join_seconds = 0;           // From the first start to the last join.
  std::optional<uint64_t> server_peak_rss_bytes;  // The largest.
};

struct ExchangeFacts {
  std::string model;
  uint64_t elements = 0;
  size_t tensors = 0;
  uint32_t workers = 0;
  uint32_t shards = 0;
  uint32_t warmup = 0;
  double compute_ms = 0;  // 0: not asked for.
  uint64_t seed = 0;
  double largest_shard_share = 0;
  std::optional<double> link_bits_per_second;
};

// The bytes of one exchange over the link that has most of them to carry.
struct BusiestLink {
  absl::string_view link;  // "a worker's link up", "the fullest shard's link in", ...
  double bytes = 0;
};

struct ExchangeFigures {
  ExchangeCodecs codecs;
  size_t turns = 0;
  Spread exchange_ms;     // From the first worker's start to the last one's result, applied.
  double exposed_ms = 0;  // Median, from the last gradient to that; without computing the same.
  double bytes_up = 0;    // Per worker and exchange, as are stages and worker_cpu_seconds.
  double bytes_down = 0;
  BusiestLink busiest;
  double goodput_bits_per_second = 0;      // Of that link over the median exchange.
  std::optional<double> goodput_fraction;  // Of the links' rate.
  std::optional<double> floor_ms;          // The link's bytes at its rate.
  // What a worker does one after the other, and what it does meanwhile.
  double submit_ms = 0;
  double wait_ms = 0;
  double apply_ms = 0;
  double encode_ms = 0;
  double worker_cpu_seconds = 0;
  protocol::StageSeconds worker_stage_seconds{};               // Of worker_cpu_seconds.
  std::optional<double> server_cpu_seconds;                    // Per exchange, of one server.
  std::optional<protocol::StageSeconds> server_stage_seconds;  // Likewise.
  std::optional<double> worker_cpu_seconds_per_gb;  // Of all over all bytes of that side.
  std::optional<double> server_cpu_seconds_per_gb;
  uint64_t worker_peak_rss_bytes = 0;  // The largest, with the gradients it was given.
  std::optional<uint64_t> server_peak_rss_bytes;
};

// `samples` has at least one turn, and each as many workers as the facts say.
ExchangeFigures Summarize(const ExchangeFacts& facts, const ExchangeSamples& samples);

struct ExchangeReport {
  ExchangeFacts facts;
  ExchangeFigures figures;
  // The same run with other codecs; absent if not asked for.
  std::optional<ExchangeFigures> none;
  std::optional<ExchangeFigures> fp16;
};

std::string FormatExchangeReport(const ExchangeReport& report);

// "ok": true, and what bench/README.md lists. Keys stay; new ones may come.
std::string ExchangeReportJson(const ExchangeReport& report);

// What is left to say of a measurement that failed: "ok": false, and why.
std::string ExchangeFailureJson(absl::string_view failure);

}  // namespace sluice::bench
