// SPDX-License-Identifier: Apache-2.0
// Measures codecs against plain streams over the same amount of memory, in one run. Each row has a
// floor that it should reach. bench/README.md explains the output.

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <optional>
#include <thread>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/codec_rows.h"
#include "bench/streams.h"
#include "nlohmann/json.hpp"

namespace sluice::bench {
namespace {

struct Options {
  double seconds = 1;
  std::string filter;
  std::string report_path;
  bool alone = false;
};

struct Result {
  Row row;
  Timing alone;
  std::optional<Timing> busy;
  double units = 0;
};

std::vector<int> AllowedCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

void StayOn(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, "model name")) return line.substr(line.find(": ") + 2);
  }
  return "unknown";
}

// Keeps all of `cores` busy until it is destroyed: one thread per core runs the stream over
// separate memory.
class BusyCores {
 public:
  explicit BusyCores(const std::vector<int>& cores) {
    for (const int core : cores) {
      threads_.emplace_back([this, core] {
        StayOn(core);
        const auto side = std::make_unique<Side>();
        while (!done_) {
          for (size_t chunk = 0; chunk < kChunks && !done_; ++chunk) {
            ReadModifyWrite(side->gradient.chunk(chunk).data(), side->residual.chunk(chunk).data(),
                            kChunk);
          }
        }
      });
    }
  }
  ~BusyCores() {
    done_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> done_ = false;
  std::vector<std::thread> threads_;
};

Spread FigureOf(const Row& row, const Timing& timing, double units) {
  switch (row.figure) {
    case Figure::kShare:
      return {.median = 1 / timing.times.median,
              .low = 1 / timing.times.high,
              .high = 1 / timing.times.low};
    case Figure::kTimes:
      return timing.times;
    case Figure::kNanoseconds: {
      // The spread comes from the ratios of the pairs, like the spread of the other figures.
      const double each = timing.against_ns / units;
      return {.median = timing.measured_ns / units,
              .low = timing.times.low * each,
              .high = timing.times.high * each};
    }
  }
  return {};
}

// Returns an empty string if the row has no floor.
std::string Verdict(const Row& row, const Spread& figure) {
  if (row.floor == 0) return "";
  const bool met =
      row.figure == Figure::kShare ? figure.median >= row.floor : figure.median <= row.floor;
  return met ? "met" : "NOT MET";
}

std::string FloorText(const Row& row) {
  if (row.floor == 0) return "";
  return absl::StrFormat("%s %.4g%s", row.figure == Figure::kShare ? ">=" : "<=", row.floor,
                         row.figure == Figure::kNanoseconds ? " ns" : "");
}

void PrintHead(bool busy) {
  absl::PrintF("%-7s %-32s %-16s %9s  %-15s %s%9s  %s\n", "", "", "against", "measured",
               "  half of pairs", busy ? "    busy   " : "", "floor", "");
}

void PrintRow(const Result& result) {
  const Row& row = result.row;
  const Spread figure = FigureOf(row, result.alone, result.units);
  const char* const unit = row.figure == Figure::kNanoseconds ? " ns" : " x ";
  std::string busy;
  if (result.busy) {
    busy = absl::StrFormat("%7.3f%s ", FigureOf(row, *result.busy, result.units).median, unit);
  }
  absl::PrintF("%-7s %-32s %-16s %6.3f%s  %6.3f .. %-5.3f %s%9s  %s\n", row.group, row.name,
               row.against, figure.median, unit, figure.low, figure.high, busy, FloorText(row),
               Verdict(row, figure));
  std::fflush(stdout);
}

nlohmann::ordered_json JsonOf(const Result& result, const Timing& timing) {
  const Spread figure = FigureOf(result.row, timing, result.units);
  return {{"figure", figure.median},
          {"low", figure.low},
          {"high", figure.high},
          {"pairs", timing.pairs},
          {"measured_ns", timing.measured_ns},
          {"against_ns", timing.against_ns}};
}

// {schema: 1, processor, cores, elements, seconds, rows: [{group, name, against, figure: share,
// times or ns, floor or null, met or null, alone: {figure, low, high, pairs, measured_ns,
// against_ns}, busy: likewise or null}]}.
bool WriteJson(const std::string& path, const Options& options, const std::vector<Result>& results,
               size_t cores) {
  constexpr const char* kFigures[] = {"share", "times", "ns"};
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Result& result : results) {
    const Row& row = result.row;
    const std::string verdict = Verdict(row, FigureOf(row, result.alone, result.units));
    nlohmann::ordered_json json = {{"group", row.group},
                                   {"name", row.name},
                                   {"against", row.against},
                                   {"figure", kFigures[static_cast<int>(row.figure)]},
                                   {"floor", nullptr},
                                   {"met", nullptr},
                                   {"alone", JsonOf(result, result.alone)},
                                   {"busy", nullptr}};
    if (row.floor != 0) {
      json["floor"] = row.floor;
      json["met"] = verdict == "met";
    }
    if (result.busy) json["busy"] = JsonOf(result, *result.busy);
    rows.push_back(json);
  }
  const nlohmann::ordered_json all = {{"schema", 1},
                                      {"processor", ProcessorName()},
                                      {"cores", cores},
                                      {"elements", kChunks * kChunk},
                                      {"seconds", options.seconds},
                                      {"rows", rows}};
  std::ofstream file(path);
  file << all.dump(2) << "\n";
  return file.good();
}

Result Measure(const Row& row, const Options& options, const std::vector<int>& others,
               Memory* memory) {
  Result result;
  result.row = row;
  const Work work = row.make(memory);
  result.units = work.units;
  result.alone = Alternate(work.pair, options.seconds);
  if (!others.empty()) {
    const BusyCores busy(others);
    result.busy = Alternate(work.pair, options.seconds);
  }
  return result;
}

int Run(const Options& options) {
  std::vector<int> cores = AllowedCores();
  if (!cores.empty()) StayOn(cores.front());
  std::vector<int> others;
  if (!options.alone && cores.size() > 1) others.assign(cores.begin() + 1, cores.end());
  absl::PrintF("%s, %d of its cores; %d elements in chunks of %d; %.4g s per figure\n",
               ProcessorName(), cores.size(), kChunks * kChunk, kChunk, options.seconds);
  if (others.empty() && !options.alone) {
    absl::PrintF(
        "This process may use only one core, so there are no figures with all cores busy.\n");
  }
  const auto memory = std::make_unique<Memory>();
  std::vector<Result> results;
  size_t missed = 0;
  std::string group;
  for (const Row& row : AllRows()) {
    if (!absl::StrContains(absl::StrCat(row.group, "/", row.name), options.filter)) continue;
    if (row.group != group) {
      group = row.group;
      for (const Group& each : Groups()) {
        if (each.name == group) absl::PrintF("\n%s: %s\n", each.name, each.summary);
      }
      PrintHead(!others.empty());
    }
    results.push_back(Measure(row, options, others, memory.get()));
    PrintRow(results.back());
    const Spread figure = FigureOf(row, results.back().alone, results.back().units);
    if (Verdict(row, figure) == "NOT MET") ++missed;
  }
  absl::PrintF("\n%d rows, %d below their floor.\n", results.size(), missed);
  if (options.report_path.empty()) return 0;
  if (WriteJson(options.report_path, options, results, cores.size())) return 0;
  absl::FPrintF(stderr, "--report: cannot write %s: check that its folder exists\n",
                options.report_path);
  return 1;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Speed of codecs compared with plain streams over the same amount of memory",
               "codec_bench");
  app.add_option("--filter", options.filter, "Only rows whose GROUP/NAME contains this text");
  app.add_option("--seconds", options.seconds, "Time for each figure")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_flag("--alone", options.alone, "Skip the second figure with all other cores busy");
  app.add_option("--report", options.report_path, "Write the figures to this file")
      ->type_name("FILE");
  std::string footer = "Groups:\n";
  for (const Group& group : Groups())
    absl::StrAppend(&footer, "  ", group.name, ": ", group.summary, "\n");
  app.footer(footer);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return Run(options);
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) { return sluice::bench::Main(argc, argv); }
