// SPDX-License-Identifier: Apache-2.0
#include "cli/calibration.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/cores.h"
#include "bench/measure/codec_report.h"
#include "cli/launch/process_set.h"
#include "nlohmann/json.hpp"

namespace sluice::cli {
namespace {

using planning::MachineFigures;

// `sluice bench exchange` sends as many in turn. Like those of real training, they have a mean that
// feedback adds up, so codecs with a threshold send more than with independent gradients.
constexpr uint32_t kGradients = 3;
constexpr uint32_t kRounds = 2;
// Thresholds need this many steps until they keep the share that the spec names.
constexpr uint32_t kSettle = 40;
constexpr uint64_t kCodecElements = 8'000'000;  // Fits no cache.
constexpr absl::Duration kExchangeLimit = absl::Seconds(60);
constexpr absl::Duration kPoll = absl::Milliseconds(100);
constexpr int kTensors = 1000;
constexpr double kMicro = 1e6;  // Microseconds in a second.
constexpr double kNano = 1e9;

// A temporary folder with the tables and reports of exchanges.
class Folder {
 public:
  explicit Folder(std::string path) : path_(std::move(path)) {}
  ~Folder() {
    std::error_code ignored;  // Errors do not matter for a temporary folder.
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string File(absl::string_view name) const { return absl::StrCat(path_, "/", name); }

 private:
  const std::string path_;
};

struct ExchangeKind {
  const char* name;
  int tensors;
  const char* shape;
  const char* spec;
};
constexpr ExchangeKind kTiny = {"tiny", 1, "1024", "none"};
constexpr ExchangeKind kManyTensors = {"tensors", kTensors, "1024", "none"};
constexpr ExchangeKind kDense = {"dense", 4, "1024 1024", "none"};
// Its bundles have hardly any bytes.
constexpr int kBundles = 16;
constexpr ExchangeKind kSparse = {"sparse", kBundles, "1024 1024", "topk:0.1%+int4"};

absl::StatusOr<LoopbackFigures> MeasureExchange(const CalibrationOptions& options,
                                                const Folder& folder, const ExchangeKind& kind) {
  const std::string table = folder.File(absl::StrCat(kind.name, ".table"));
  const std::string report = folder.File(absl::StrCat(kind.name, ".json"));
  std::ofstream file(table);
  for (int i = 0; i < kind.tensors; ++i) file << "t" << i << " " << kind.shape << "\n";
  file.close();
  ChildOptions child;
  child.name = absl::StrCat("the exchange of ", kind.name);
  child.command = {options.program,
                   "bench",
                   "exchange",
                   "--table",
                   table,
                   "--workers",
                   "1",
                   "--shards",
                   "1",
                   "--spec",
                   kind.spec,
                   "--no-baselines",
                   "--warmup",
                   "5",
                   "--repeats",
                   "15",
                   "--report",
                   report};
  child.environment = options.environment;
  child.log_path = folder.File(absl::StrCat(kind.name, ".log"));
  child.guard_group = true;
  const SteadyClock clock;
  ProcessSet processes(&clock);
  if (absl::Status status = processes.Start(Role::kWorker, child); !status.ok()) return status;
  const absl::Time deadline = clock.Now() + kExchangeLimit;
  while (!processes.AllEnded()) {
    if (clock.Now() > deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat(child.name, " did not end within ", absl::FormatDuration(kExchangeLimit)));
    }
    processes.Wait(kPoll, -1);
  }
  if (!processes.AllEndedWell(Role::kWorker)) {
    return absl::InternalError(absl::StrCat(
        child.name, " failed: ", absl::StrJoin(processes.children().front()->LastLines(), "\n")));
  }
  std::ifstream result(report);
  const std::string text((std::istreambuf_iterator<char>(result)),
                         std::istreambuf_iterator<char>());
  if (options.progress) options.progress(child.name);
  return ReadLoopbackReport(text);
}

absl::Status AddCodecs(const CalibrationOptions& options, MachineFigures* machine) {
  bench::CodecReportOptions report_options;
  for (const auto& [spec, usual] : planning::UsualFigures().codecs) {
    report_options.specs.push_back(spec);
  }
  for (const std::string& spec : options.specs) report_options.specs.push_back(spec);
  report_options.model = options.model;
  report_options.table_path = options.table_path;
  report_options.elements = kCodecElements;
  report_options.steps = kRounds * kGradients;
  report_options.settle = kSettle;
  report_options.gradients = kGradients;
  report_options.done = options.progress;
  const absl::StatusOr<bench::CodecReport> report = bench::MeasureCodecs(report_options);
  if (!report.ok()) return report.status();
  for (const bench::CodecReportRow& row : report->rows) {
    if (row.spec_elements == 0) continue;
    machine->codecs[row.spec] = {.bits = 8 * row.spec_bytes / row.spec_elements,
                                 .encode_ns = row.encode_ns,
                                 .add_ns = row.add_ns};
  }
  return absl::OkStatus();
}

// Returns the time that each of `count` parts adds, and 0 if it is below the noise.
double PerPart(double with_s, double without_s, double count) {
  return std::max(0.0, with_s - without_s) / count;
}

absl::Status AddExchanges(const CalibrationOptions& options, MachineFigures* machine) {
  std::string path = absl::StrCat(options.temporary_folder, "/sluice-calibrate-XXXXXX");
  if (::mkdtemp(path.data()) == nullptr) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot make a temporary folder: ", path));
  }
  const Folder folder(path);
  std::map<std::string, LoopbackFigures> measured;
  for (const ExchangeKind* kind : {&kTiny, &kManyTensors, &kDense, &kSparse}) {
    absl::StatusOr<LoopbackFigures> figures = MeasureExchange(options, folder, *kind);
    if (!figures.ok()) return figures.status();
    measured[kind->name] = *figures;
  }
  const LoopbackFigures& tiny = measured[kTiny.name];
  const LoopbackFigures& dense = measured[kDense.name];
  const LoopbackFigures& sparse = measured[kSparse.name];
  machine->step_ms = tiny.exchange_ms;
  machine->tensor_us = kMicro * PerPart(measured[kManyTensors.name].worker_messages_s,
                                        tiny.worker_messages_s, kTensors);
  machine->worker_ns =
      kNano * PerPart(dense.worker_messages_s, tiny.worker_messages_s, dense.moved_bytes);
  machine->shard_ns =
      kNano * PerPart(dense.shard_messages_s, tiny.shard_messages_s, dense.moved_bytes);
  const double sparse_s = sparse.worker_messages_s + sparse.shard_messages_s;
  const double bytes_s = sparse.moved_bytes / kNano * (machine->worker_ns + machine->shard_ns);
  machine->bundle_us =
      kMicro *
      PerPart(sparse_s, tiny.worker_messages_s + tiny.shard_messages_s + bytes_s, 2 * kBundles);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LoopbackFigures> ReadLoopbackReport(absl::string_view json) {
  const nlohmann::json report = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  LoopbackFigures figures;
  struct Key {
    const char* path;
    double* value;
  };
  double up = 0, down = 0, worker = 0, encode = 0, apply = 0, shard = 0, sum = 0, mean = 0;
  for (const Key& key :
       {Key{"/exchange_ms/median", &figures.exchange_ms}, Key{"/cpu_seconds/worker", &worker},
        Key{"/cpu_seconds/worker_stages/encode", &encode},
        Key{"/cpu_seconds/worker_stages/apply", &apply}, Key{"/cpu_seconds/server", &shard},
        Key{"/cpu_seconds/server_stages/sum", &sum},
        Key{"/cpu_seconds/server_stages/encode", &mean}, Key{"/bytes_up", &up},
        Key{"/bytes_down", &down}}) {
    const nlohmann::json::json_pointer pointer(key.path);
    if (!report.is_object() || !report.contains(pointer) || !report.at(pointer).is_number()) {
      return absl::InternalError(
          absl::StrCat("the report of `sluice bench exchange` has no number at ", key.path));
    }
    *key.value = report.at(pointer).get<double>();
  }
  figures.worker_messages_s = worker - encode - apply;
  figures.shard_messages_s = shard - sum - mean;
  figures.moved_bytes = up + down;
  return figures;
}

absl::StatusOr<MachineFigures> CalibrateMachine(const CalibrationOptions& options) {
  MachineFigures machine;
  machine.cores = static_cast<uint32_t>(AvailableCores());
  if (absl::Status status = AddCodecs(options, &machine); !status.ok()) return status;
  if (absl::Status status = AddExchanges(options, &machine); !status.ok()) return status;
  return machine;
}

}  // namespace sluice::cli
