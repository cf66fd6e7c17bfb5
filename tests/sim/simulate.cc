// SPDX-License-Identifier: Apache-2.0
// simulate runs seeds of simulated jobs on several cores, for a number of seeds or for a time, and
// shrinks failing jobs. See docs/simulation.md.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <fstream>
#include <iostream>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/sim/runs_hash.h"
#include "tests/sim/sim_kinds.h"

namespace sluice {
namespace {

constexpr uint64_t kSeedsPerTask = 50;

struct Flags {
  std::vector<SimKind> kinds{SimKinds().begin(), SimKinds().end()};
  uint64_t first = 1;
  uint64_t seeds = 1000;  // Seeds of each kind.
  uint64_t seconds = 0;   // If above 0, runs rounds of all kinds for this time and ignores `seeds`.
  uint64_t jobs = std::max(1u, std::thread::hardware_concurrency());
  uint64_t failures = 3;  // After this many failures, the other seeds of a kind are skipped.
  uint64_t shrinks = kShrinkRunsMax;  // Jobs that shrinking one seed may run; 0 disables shrinking.
  std::string folder;                 // For replay scripts; if empty, scripts are only printed.
};

double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Tally {
  uint64_t seeds = 0;
  uint64_t failures = 0;
  double core_seconds = 0;
  std::map<Fault, uint64_t> faults;
  RunsHash runs;
};

class Simulation {
 public:
  explicit Simulation(const Flags& flags) : flags_(flags), tallies_(flags.kinds.size()) {}

  // Returns the number of seeds that failed.
  uint64_t Run() {
    std::cout << absl::StrCat("the first seed is ", flags_.first, "\n") << std::flush;
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < flags_.jobs; ++i) threads.emplace_back([this] { DoTasks(); });
    for (std::thread& thread : threads) thread.join();
    uint64_t failures = 0;
    for (size_t kind = 0; kind < tallies_.size(); ++kind) {
      const Tally& tally = tallies_[kind];
      failures += tally.failures;
      std::cout << absl::StrCat(
          flags_.kinds[kind].name, ": ", tally.seeds, " seeds from ", flags_.first, " on, ",
          tally.failures, " failed, ", static_cast<uint64_t>(tally.core_seconds), " core-seconds, ",
          Rate(tally),
          " seeds a core-second\n  faults: ", absl::StrJoin(tally.faults, ", ", FormatFault),
          "\n  hash of the runs: ", absl::Hex(tally.runs.value(), absl::kZeroPad8), "\n");
    }
    return failures;
  }

 private:
  static void FormatFault(std::string* out, const std::pair<const Fault, uint64_t>& fault) {
    absl::StrAppend(out, ToString(fault.first), " ", fault.second);
  }
  static uint64_t Rate(const Tally& tally) {
    return static_cast<uint64_t>(static_cast<double>(tally.seeds) /
                                 std::max(tally.core_seconds, 1e-3));
  }
  bool IsLate() const {
    return flags_.seconds > 0 &&
           std::chrono::steady_clock::now() - began_ >= std::chrono::seconds(flags_.seconds);
  }

  // The kinds take turns, so that each has run equally many seeds when time is up.
  void DoTasks() {
    while (!IsLate()) {
      const uint64_t task = next_task_++;
      const uint64_t kind = task % flags_.kinds.size();
      const uint64_t from = task / flags_.kinds.size() * kSeedsPerTask;
      const uint64_t most = flags_.seconds > 0 ? ~uint64_t{0} : flags_.seeds;
      if (from >= most) return;
      DoSeeds(kind, flags_.first + from, std::min(kSeedsPerTask, most - from));
    }
  }

  void DoSeeds(uint64_t kind, uint64_t first, uint64_t count) {
    const double began = CpuSeconds();
    uint64_t done = 0;
    std::map<Fault, uint64_t> faults;
    for (; done < count && !IsLate() && !HasFailedEnough(kind); ++done) {
      const SimOutcome outcome = flags_.kinds[kind].run(first + done);
      for (const auto& [fault, struck] : outcome.faults) faults[fault] += struck;
      if (!outcome.violations.empty()) Failed(kind, first + done, outcome);
      const std::lock_guard lock(mutex_);
      tallies_[kind].runs.Add(first + done - flags_.first, outcome);
    }
    const std::lock_guard lock(mutex_);
    tallies_[kind].seeds += done;
    tallies_[kind].core_seconds += CpuSeconds() - began;
    for (const auto& [fault, struck] : faults) tallies_[kind].faults[fault] += struck;
  }

  bool HasFailedEnough(uint64_t kind) {
    const std::lock_guard lock(mutex_);
    return tallies_[kind].failures >= flags_.failures;
  }

  void Failed(uint64_t kind_index, uint64_t seed, const SimOutcome& outcome) {
    const SimKind& kind = flags_.kinds[kind_index];
    std::string text =
        absl::StrCat("FAILED: simulate --kinds ", kind.name, " --first ", seed, " --seeds 1\n  ",
                     outcome.job, "\n  ", absl::StrJoin(outcome.violations, "\n  "), "\n");
    if (flags_.shrinks > 0) {
      const std::optional<Shrunk> shrunk = kind.shrink(seed, flags_.shrinks);
      if (shrunk.has_value()) {
        const std::string script = FormatReplay(shrunk->script);
        absl::StrAppend(&text, "shrunk in ", shrunk->runs, " runs to this replay script:\n",
                        script);
        if (!flags_.folder.empty()) {
          std::ofstream(absl::StrCat(flags_.folder, "/", kind.name, "_", seed, ".replay"))
              << script;
        }
      }
    }
    const std::lock_guard lock(mutex_);
    ++tallies_[kind_index].failures;
    std::cout << text << std::flush;
  }

  const Flags flags_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::atomic<uint64_t> next_task_{0};
  std::mutex mutex_;
  std::vector<Tally> tallies_;  // By kind.
};

bool SetKinds(absl::string_view names, Flags* flags) {
  flags->kinds.clear();
  for (const absl::string_view name : absl::StrSplit(names, ',')) {
    for (const SimKind& kind : SimKinds()) {
      if (name == kind.name) flags->kinds.push_back(kind);
    }
    if (flags->kinds.empty() || name != flags->kinds.back().name) return false;
  }
  return true;
}

bool ParseFlag(absl::string_view name, absl::string_view value, Flags* flags) {
  if (name == "--kinds") return SetKinds(value, flags);
  if (name == "--replays") {
    flags->folder = std::string(value);
    return true;
  }
  for (const auto& [number, field] : {std::pair{"--first", &flags->first},
                                      {"--seeds", &flags->seeds},
                                      {"--seconds", &flags->seconds},
                                      {"--jobs", &flags->jobs},
                                      {"--failures", &flags->failures},
                                      {"--shrinks", &flags->shrinks}}) {
    if (name == number) return absl::SimpleAtoi(value, field) && flags->jobs > 0;
  }
  return false;
}

int Main(int argc, char** argv) {
  Flags flags;
  bool good = argc % 2 == 1;
  for (int i = 1; i + 1 < argc && good; i += 2) good = ParseFlag(argv[i], argv[i + 1], &flags);
  if (!good) {
    std::vector<std::string> names;
    for (const SimKind& kind : SimKinds()) names.push_back(kind.name);
    std::cerr << "usage: simulate [--kinds " << absl::StrJoin(names, ",")
              << "] [--first SEED] [--seeds COUNT | --seconds LIMIT] [--jobs THREADS] "
                 "[--failures COUNT] [--shrinks RUNS] [--replays FOLDER]\n";
    return 2;
  }
  return Simulation(flags).Run() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) { return sluice::Main(argc, argv); }
