// SPDX-License-Identifier: Apache-2.0
#include "bench/measure/exchange_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "cli/launch/quantity.h"

namespace sluice::bench {
namespace {

using Json = nlohmann::ordered_json;

double Milliseconds(int64_t ns) { return static_cast<double>(ns) * 1e-6; }

double ExchangeMs(const Turn& turn) {
  int64_t first = turn.workers[0].started_ns;
  int64_t last = turn.workers[0].applied_ns;
  for (const TurnReport& worker : turn.workers) {
    first = std::min(first, worker.started_ns);
    last = std::max(last, worker.applied_ns);
  }
  return Milliseconds(last - first);
}

double ExposedMs(const Turn& turn) {
  int64_t ready = turn.workers[0].ready_ns;
  int64_t last = turn.workers[0].applied_ns;
  for (const TurnReport& worker : turn.workers) {
    ready = std::max(ready, worker.ready_ns);
    last = std::max(last, worker.applied_ns);
  }
  return Milliseconds(last - ready);
}

template <typename Figure>
std::vector<double> Each(const std::vector<Turn>& turns, Figure figure) {
  std::vector<double> values;
  values.reserve(turns.size());
  for (const Turn& turn : turns) values.push_back(figure(turn));
  return values;
}

// Returns the mean over turns and workers.
template <typename Figure>
double MeanOf(const std::vector<Turn>& turns, Figure figure) {
  double sum = 0;
  double count = 0;
  for (const Turn& turn : turns) {
    for (const TurnReport& worker : turn.workers) {
      sum += static_cast<double>(figure(worker));
      ++count;
    }
  }
  return sum / count;
}

std::optional<double> ServerCpuSeconds(const std::vector<Turn>& turns) {
  double sum = 0;
  for (const Turn& turn : turns) {
    if (!turn.server_cpu_seconds.has_value()) return std::nullopt;
    sum += *turn.server_cpu_seconds;
  }
  return sum / static_cast<double>(turns.size());
}

// Returns the sum over all servers, per exchange.
std::optional<protocol::StageSeconds> ServerStageSeconds(const std::vector<Turn>& turns) {
  protocol::StageSeconds sums{};
  for (const Turn& turn : turns) {
    if (!turn.server_stage_seconds.has_value()) return std::nullopt;
    for (size_t stage = 0; stage < protocol::kStages; ++stage) {
      sums[stage] += (*turn.server_stage_seconds)[stage] / static_cast<double>(turns.size());
    }
  }
  return sums;
}

// Assumes that every process has a separate full-duplex link.
BusiestLink FindBusiest(const ExchangeFacts& facts, double up, double down) {
  const double to_fullest = facts.workers * facts.largest_shard_share;
  const std::array<BusiestLink, 4> links = {{{"a worker's link, up", up},
                                             {"a worker's link, down", down},
                                             {"the fullest shard's link, in", up * to_fullest},
                                             {"the fullest shard's link, out", down * to_fullest}}};
  return *std::max_element(links.begin(), links.end(),
                           [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
}

void SummarizeStages(const std::vector<Turn>& turns, ExchangeFigures* figures) {
  const auto milliseconds = [&turns](auto figure) { return MeanOf(turns, figure) * 1e-6; };
  figures->submit_ms =
      milliseconds([](const TurnReport& t) { return t.submitted_ns - t.started_ns; });
  figures->wait_ms =
      milliseconds([](const TurnReport& t) { return t.applied_ns - t.submitted_ns - t.apply_ns; });
  figures->apply_ms = milliseconds([](const TurnReport& t) { return t.apply_ns; });
  figures->encode_ms = milliseconds([](const TurnReport& t) { return t.encode_ns; });
}

void SummarizeCpu(const ExchangeFacts& facts, const std::vector<Turn>& turns,
                  ExchangeFigures* figures) {
  figures->worker_cpu_seconds = MeanOf(turns, [](const TurnReport& t) { return t.cpu_ns; }) * 1e-9;
  const double worker_gb = (figures->bytes_up + figures->bytes_down) * 1e-9;
  const std::optional<double> servers = ServerCpuSeconds(turns);
  if (servers.has_value()) figures->server_cpu_seconds = *servers / facts.shards;
  for (size_t stage = 0; stage < protocol::kStages; ++stage) {
    const auto of_stage = [stage](const TurnReport& t) { return t.stage_cpu_ns[stage]; };
    figures->worker_stage_seconds[stage] = MeanOf(turns, of_stage) * 1e-9;
  }
  figures->server_stage_seconds = ServerStageSeconds(turns);
  if (figures->server_stage_seconds.has_value()) {
    for (double& seconds : *figures->server_stage_seconds) seconds /= facts.shards;
  }
  if (worker_gb == 0) return;
  figures->worker_cpu_seconds_per_gb = figures->worker_cpu_seconds / worker_gb;
  if (servers.has_value()) {
    figures->server_cpu_seconds_per_gb = *servers / (worker_gb * facts.workers);
  }
}

}  // namespace

Spread SpreadOf(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const size_t count = values.size();
  const auto p95 = static_cast<size_t>(std::ceil(0.95 * static_cast<double>(count)));
  return {.min = values[0],
          .median = (values[(count - 1) / 2] + values[count / 2]) / 2,
          .p95 = values[p95 - 1]};
}

ExchangeFigures Summarize(const ExchangeFacts& facts, const ExchangeSamples& samples) {
  Check(!samples.turns.empty(), "something was measured");
  const std::vector<Turn>& turns = samples.turns;
  ExchangeFigures figures;
  figures.codecs = samples.codecs;
  figures.turns = turns.size();
  figures.exchange_ms = SpreadOf(Each(turns, ExchangeMs));
  figures.exposed_ms = samples.computed_turns.empty()
                           ? figures.exchange_ms.median
                           : SpreadOf(Each(samples.computed_turns, ExposedMs)).median;
  figures.bytes_up = MeanOf(turns, [](const TurnReport& t) { return t.bytes_up; });
  figures.bytes_down = MeanOf(turns, [](const TurnReport& t) { return t.bytes_down; });
  figures.busiest = FindBusiest(facts, figures.bytes_up, figures.bytes_down);
  if (figures.exchange_ms.median > 0) {
    figures.goodput_bits_per_second =
        figures.busiest.bytes * 8 / (figures.exchange_ms.median * 1e-3);
  }
  if (facts.link_bits_per_second.has_value()) {
    figures.goodput_fraction = figures.goodput_bits_per_second / *facts.link_bits_per_second;
    figures.floor_ms = figures.busiest.bytes * 8e3 / *facts.link_bits_per_second;
  }
  SummarizeStages(turns, &figures);
  SummarizeCpu(facts, turns, &figures);
  for (const Turn& turn : turns) {
    for (const TurnReport& worker : turn.workers) {
      figures.worker_peak_rss_bytes =
          std::max(figures.worker_peak_rss_bytes, worker.peak_rss_bytes);
    }
  }
  figures.server_peak_rss_bytes = samples.server_peak_rss_bytes;
  return figures;
}

namespace {

std::string Megabytes(double bytes) {
  return absl::StrFormat("%.*f", bytes < 1e7 ? 3 : 1, bytes * 1e-6);
}

std::string OrDash(const std::optional<double>& value, int digits, double factor = 1) {
  return value.has_value() ? absl::StrFormat("%.*f", digits, *value * factor) : "-";
}

std::vector<const ExchangeFigures*> Columns(const ExchangeReport& report) {
  std::vector<const ExchangeFigures*> columns = {&report.figures};
  if (report.none.has_value()) columns.push_back(&*report.none);
  if (report.fp16.has_value()) columns.push_back(&*report.fp16);
  return columns;
}

std::string Heading(const ExchangeReport& report) {
  const ExchangeFacts& facts = report.facts;
  std::string text = absl::StrFormat(
      "%s: %d elements in %d tensors, %d workers, %d shards, seed %d\n"
      "%s up, %s down; %d exchanges after %d to warm up%s%s\n\n",
      facts.model, facts.elements, facts.tensors, facts.workers, facts.shards, facts.seed,
      report.figures.codecs.uplink, report.figures.codecs.downlink, report.figures.turns,
      facts.warmup,
      facts.compute_ms > 0 ? absl::StrFormat("; gradients computed over %g ms", facts.compute_ms)
                           : "",
      facts.link_bits_per_second.has_value()
          ? absl::StrFormat("; links of %g Mb/s", *facts.link_bits_per_second * 1e-6)
          : "");
  return text;
}

using Cell = std::string (*)(const ExchangeFigures&);
struct Row {
  absl::string_view name;
  absl::string_view unit;
  Cell cell;
};

std::string OneDigit(double value) { return absl::StrFormat("%.1f", value); }

std::string Mebibytes(uint64_t bytes) {
  return absl::StrFormat("%.0f", static_cast<double>(bytes) / (1 << 20));
}

constexpr std::array<Row, 3> kTimes = {{
    {"exchange, median", "ms", [](const auto& f) { return OneDigit(f.exchange_ms.median); }},
    {"  least", "ms", [](const auto& f) { return OneDigit(f.exchange_ms.min); }},
    {"  95 % within", "ms", [](const auto& f) { return OneDigit(f.exchange_ms.p95); }},
}};
constexpr Row kExposed = {"exposed, median", "ms",
                          [](const auto& f) { return OneDigit(f.exposed_ms); }};
constexpr Row kFloor = {"floor of the busiest link", "ms",
                        [](const auto& f) { return OrDash(f.floor_ms, 1); }};
constexpr std::array<Row, 4> kTraffic = {{
    {"up, a worker and exchange", "MB", [](const auto& f) { return Megabytes(f.bytes_up); }},
    {"down, a worker and exchange", "MB", [](const auto& f) { return Megabytes(f.bytes_down); }},
    {"busiest link", "MB", [](const auto& f) { return Megabytes(f.busiest.bytes); }},
    {"  its goodput", "Gb/s",
     [](const auto& f) { return absl::StrFormat("%.3f", f.goodput_bits_per_second * 1e-9); }},
}};
constexpr Row kOfItsRate = {"  of its rate", "",
                            [](const auto& f) { return OrDash(f.goodput_fraction, 3); }};
constexpr std::array<Row, 3> kTimesOfAWorker = {{
    {"wait, a worker", "ms", [](const auto& f) { return OneDigit(f.wait_ms); }},
    {"  encode meanwhile", "ms", [](const auto& f) { return OneDigit(f.encode_ms); }},
    {"apply, a worker", "ms", [](const auto& f) { return OneDigit(f.apply_ms); }},
}};
constexpr Row kWorkerCpu = {"processor, a worker", "ms",
                            [](const auto& f) { return OneDigit(f.worker_cpu_seconds * 1e3); }};
constexpr Row kServerCpu = {"processor, a server", "ms",
                            [](const auto& f) { return OrDash(f.server_cpu_seconds, 1, 1e3); }};
constexpr std::array<Row, 4> kCosts = {{
    {"a GB moved, of workers", "s",
     [](const auto& f) { return OrDash(f.worker_cpu_seconds_per_gb, 2); }},
    {"a GB moved, of servers", "s",
     [](const auto& f) { return OrDash(f.server_cpu_seconds_per_gb, 2); }},
    {"peak memory, a worker", "MiB",
     [](const auto& f) { return Mebibytes(f.worker_peak_rss_bytes); }},
    {"peak memory, a server", "MiB",
     [](const auto& f) {
       return f.server_peak_rss_bytes.has_value() ? Mebibytes(*f.server_peak_rss_bytes) : "-";
     }},
}};

// Rows with one figure per column.
class Table {
 public:
  explicit Table(const ExchangeReport& report) : columns_(Columns(report)) {}

  const std::vector<const ExchangeFigures*>& columns() const { return columns_; }
  template <typename ToText>
  void Add(absl::string_view name, absl::string_view unit, const ToText& to_text) {
    std::string line = absl::StrFormat("%-28s %4s", name, unit);
    for (const ExchangeFigures* figures : columns_) {
      absl::StrAppendFormat(&line, " %12s", to_text(*figures));
    }
    absl::StrAppend(&text_, line, "\n");
  }
  void Add(const Row& row) { Add(row.name, row.unit, row.cell); }
  void Add(absl::Span<const Row> rows) {
    for (const Row& row : rows) Add(row);
  }
  const std::string& text() const { return text_; }

 private:
  const std::vector<const ExchangeFigures*> columns_;
  std::string text_;
};

struct StageCost {
  absl::string_view name;
  std::optional<double> seconds;
};

// Returns the cost of each stage in the order of `stages`, and then the part of `all` that no stage
// accounts for. If `seconds` is empty, so are the costs' seconds.
std::vector<StageCost> StageCosts(absl::Span<const protocol::Stage> stages,
                                  std::optional<double> all,
                                  const std::optional<protocol::StageSeconds>& seconds) {
  std::vector<StageCost> costs;
  std::optional<double> rest = seconds.has_value() ? all : std::nullopt;
  for (const protocol::Stage stage : stages) {
    costs.push_back({protocol::ToString(stage), {}});
    if (!seconds.has_value()) continue;
    costs.back().seconds = (*seconds)[static_cast<size_t>(stage)];
    if (rest.has_value()) *rest -= *costs.back().seconds;
  }
  costs.push_back({"other", rest});
  return costs;
}

std::vector<StageCost> WorkerCosts(const ExchangeFigures& figures) {
  return StageCosts(protocol::kWorkerStages, figures.worker_cpu_seconds,
                    figures.worker_stage_seconds);
}

std::vector<StageCost> ServerCosts(const ExchangeFigures& figures) {
  return StageCosts(protocol::kServerStages, figures.server_cpu_seconds,
                    figures.server_stage_seconds);
}

// Adds a row's stages below the row.
void AddParts(std::vector<StageCost> (*costs_of)(const ExchangeFigures&), Table* table) {
  const size_t rows = costs_of(*table->columns()[0]).size();
  for (size_t row = 0; row < rows; ++row) {
    const absl::string_view name = costs_of(*table->columns()[0])[row].name;
    table->Add(absl::StrCat("  ", name), "ms", [&](const ExchangeFigures& figures) {
      return OrDash(costs_of(figures)[row].seconds, 1, 1e3);
    });
  }
}

template <typename Value>
Json OrNull(const std::optional<Value>& value) {
  return value.has_value() ? Json(*value) : Json();
}

Json StagesJson(const std::vector<StageCost>& costs) {
  Json stages = Json::object();
  for (const StageCost& cost : costs) stages[std::string(cost.name)] = OrNull(cost.seconds);
  return stages;
}

Json FiguresJson(const ExchangeFigures& figures) {
  return {{"uplink", figures.codecs.uplink},
          {"downlink", figures.codecs.downlink},
          {"repeats", figures.turns},
          {"exchange_ms",
           {{"min", figures.exchange_ms.min},
            {"median", figures.exchange_ms.median},
            {"p95", figures.exchange_ms.p95}}},
          {"exposed_ms", figures.exposed_ms},
          {"bytes_up", figures.bytes_up},
          {"bytes_down", figures.bytes_down},
          {"busiest_link",
           {{"link", std::string(figures.busiest.link)}, {"bytes", figures.busiest.bytes}}},
          {"goodput_bits_per_second", figures.goodput_bits_per_second},
          {"goodput_fraction", OrNull(figures.goodput_fraction)},
          {"floor_ms", OrNull(figures.floor_ms)},
          {"cpu_seconds",
           {{"worker", figures.worker_cpu_seconds},
            {"server", OrNull(figures.server_cpu_seconds)},
            {"worker_stages", StagesJson(WorkerCosts(figures))},
            {"server_stages", StagesJson(ServerCosts(figures))},
            {"workers_per_gb", OrNull(figures.worker_cpu_seconds_per_gb)},
            {"servers_per_gb", OrNull(figures.server_cpu_seconds_per_gb)}}},
          {"stage_ms",
           {{"submit", figures.submit_ms},
            {"wait", figures.wait_ms},
            {"apply", figures.apply_ms},
            {"encode", figures.encode_ms}}},
          {"peak_rss_bytes",
           {{"worker", figures.worker_peak_rss_bytes},
            {"server", OrNull(figures.server_peak_rss_bytes)}}}};
}

}  // namespace

std::string FormatExchangeReport(const ExchangeReport& report) {
  const ExchangeFigures* const measured = &report.figures;
  const bool has_rate = report.facts.link_bits_per_second.has_value();
  Table table(report);
  if (table.columns().size() > 1) {
    table.Add("", "", [measured](const ExchangeFigures& figures) {
      return &figures == measured ? std::string("measured") : figures.codecs.uplink;
    });
  }
  table.Add(kTimes);
  if (table.columns().size() > 1) {
    table.Add("  times as long", "", [measured](const ExchangeFigures& figures) {
      return cli::FormatRatio(figures.exchange_ms.median / measured->exchange_ms.median);
    });
  }
  if (report.facts.compute_ms > 0) table.Add(kExposed);
  if (has_rate) table.Add(kFloor);
  table.Add(kTraffic);
  if (has_rate) table.Add(kOfItsRate);
  table.Add(kTimesOfAWorker);
  table.Add(kWorkerCpu);
  AddParts(&WorkerCosts, &table);
  table.Add(kServerCpu);
  AddParts(&ServerCosts, &table);
  table.Add(kCosts);
  return absl::StrCat(Heading(report), table.text(), "\nBusiest link: ", measured->busiest.link,
                      ". How to read this: bench/README.md.\n");
}

std::string ExchangeReportJson(const ExchangeReport& report) {
  const ExchangeFacts& facts = report.facts;
  Json all = {{"schema", 1},
              {"ok", true},
              {"model", facts.model},
              {"elements", facts.elements},
              {"tensors", facts.tensors},
              {"workers", facts.workers},
              {"shards", facts.shards},
              {"warmup", facts.warmup},
              {"compute_ms", facts.compute_ms},
              {"seed", facts.seed},
              {"link_bits_per_second", OrNull(facts.link_bits_per_second)}};
  all.update(FiguresJson(report.figures));
  Json baselines = Json::object();
  if (report.none.has_value()) baselines["none"] = FiguresJson(*report.none);
  if (report.fp16.has_value()) baselines["fp16"] = FiguresJson(*report.fp16);
  for (Json& baseline : baselines) {
    baseline["times_as_long"] =
        baseline["exchange_ms"]["median"].get<double>() / report.figures.exchange_ms.median;
  }
  all["baselines"] = baselines;
  return all.dump(2) + "\n";
}

std::string ExchangeFailureJson(absl::string_view failure) {
  return Json{{"schema", 1}, {"ok", false}, {"failure", std::string(failure)}}.dump(2) + "\n";
}

}  // namespace sluice::bench
