// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/shrink.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace sluice {
namespace {

// Returns the violation without its numbers, because runs that differ only in times violate the
// same promise.
std::string KindOf(absl::string_view violation) {
  std::string kind;
  for (const char c : violation.substr(0, violation.find(':'))) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) kind.push_back(c);
  }
  return kind;
}

class Search {
 public:
  Search(ReplayScript script, std::string kind, uint64_t runs_max)
      : script_(std::move(script)), kind_(std::move(kind)), runs_max_(runs_max) {}

  // Repeats all passes, because each pass may let an earlier one remove more.
  void Run() {
    uint64_t before = ~uint64_t{0};
    while (Size() < before && runs_ < runs_max_) {
      before = Size();
      DropFaults();
      DropStruck();
      SimplifyJob();
    }
    DropDraws();
  }
  const ReplayScript& script() const { return script_; }
  uint64_t runs() const { return runs_; }

 private:
  uint64_t Size() const {
    return script_.faults.size() + script_.struck.size() + script_.options.steps +
           script_.options.ranks + script_.options.shards +
           std::accumulate(script_.racks.begin(), script_.racks.end(), uint64_t{0});
  }

  // Keeps `smaller` if it violates the same promise.
  bool Try(ReplayScript smaller) {
    if (runs_ >= runs_max_) return false;
    ++runs_;
    const SurvivalReport report = RunReplay(smaller);
    if (report.violations.empty() || KindOf(report.violations[0]) != kind_) return false;
    script_ = std::move(smaller);
    return true;
  }

  // Drops half of the faults first, then ever smaller groups, down to single faults, from the last
  // fault on.
  void DropFaults() {
    for (size_t count = script_.faults.size() / 2; count > 0; count /= 2) {
      for (size_t end = script_.faults.size(); end >= count;) {
        ReplayScript smaller = script_;
        const auto drop = [end, count](auto* list) {
          list->erase(list->begin() + static_cast<std::ptrdiff_t>(end - count),
                      list->begin() + static_cast<std::ptrdiff_t>(end));
        };
        drop(&smaller.faults);
        drop(&smaller.options.faults);
        end = Try(std::move(smaller)) ? std::min(end, script_.faults.size()) : end - 1;
      }
    }
  }

  void DropStruck() {
    ReplayScript smaller = script_;
    smaller.struck.clear();
    if (script_.struck.empty() || Try(std::move(smaller))) return;
    for (auto [of, messages] : std::map(script_.struck)) {
      smaller = script_;
      smaller.struck.erase(of);
      if (Try(std::move(smaller)) || messages.size() == 1) continue;
      for (const uint64_t message : messages) {
        smaller = script_;
        smaller.struck[of].erase(message);
        Try(std::move(smaller));
      }
    }
  }

  template <typename Change>
  bool TryJob(const Change& change) {
    ReplayScript smaller = script_;
    change(&smaller.options);
    return Try(std::move(smaller));
  }

  void SimplifyJob() {
    while (script_.options.steps > 2 && TryJob([](auto* job) { job->steps /= 2; })) continue;
    while (script_.options.shards > 1 && TryJob([](auto* job) { --job->shards; })) continue;
    SimplifyRacks();
    while (script_.racks.empty() && CanLoseARank(script_.options) &&
           TryJob([](auto* job) { --job->ranks; }))
      continue;
    if (script_.options.nan_share > 0) TryJob([](auto* job) { job->nan_share = 0; });
    if (script_.options.skip_share > 0) TryJob([](auto* job) { job->skip_share = 0; });
    if (script_.options.rule.has_value() && !IsAsync(script_.options)) {
      TryJob([](auto* job) { job->rule.reset(); });
    }
    if (script_.options.control.policy != job::PolicyKind::kFixed)
      TryJob([](auto* job) { job->control = {}; });
    if (script_.options.control.makes_plans()) return;  // A schedule needs its codecs.
    const compress::CodecSpec none = *compress::ParseCodecSpec("none");
    if (!(script_.options.compression.uplink == none)) {
      TryJob([&](auto* job) { job->compression.uplink = none; });
    }
    if (!(script_.options.compression.downlink == none)) {
      TryJob([&](auto* job) { job->compression.downlink = none; });
    }
  }

  void SimplifyRacks() {
    for (size_t rack = script_.racks.size(); rack-- > 0;) {
      ReplayScript smaller = script_;
      smaller.racks.erase(smaller.racks.begin() + static_cast<std::ptrdiff_t>(rack));
      if (!smaller.racks.empty() && Try(std::move(smaller))) continue;
      while (script_.racks[rack] > 1) {
        smaller = script_;
        --smaller.racks[rack];
        if (!Try(std::move(smaller))) break;
      }
    }
    const compress::CodecSpec none = *compress::ParseCodecSpec("none");
    if (script_.racks.empty() || script_.rack_uplink == none) return;
    ReplayScript smaller = script_;
    smaller.rack_uplink = none;
    Try(std::move(smaller));
  }

  static bool CanLoseARank(const SurvivalOptions& job) {
    return job.ranks > 1 && job.ranks > job.quorum && job.ranks > std::max(job.begin, job.least);
  }

  // Keeps the first `count` draws of each channel. Later draws come from the script's own streams.
  static ReplayScript WithDraws(const ReplayScript& script, size_t count) {
    ReplayScript smaller = script;
    for (auto& [channel, listed] : smaller.draws) listed.resize(std::min(listed.size(), count));
    std::erase_if(smaller.draws, [](const auto& entry) { return entry.second.empty(); });
    return smaller;
  }

  void DropDraws() {
    if (Try(WithDraws(script_, 0))) return;
    for (const auto& [channel, listed] : std::map(script_.draws)) {
      ReplayScript smaller = script_;
      smaller.draws.erase(channel);
      Try(std::move(smaller));
    }
    size_t enough = 0;
    for (const auto& [channel, listed] : script_.draws) enough = std::max(enough, listed.size());
    for (size_t too_few = 0; enough - too_few > 1;) {
      const size_t middle = too_few + (enough - too_few) / 2;
      (Try(WithDraws(script_, middle)) ? enough : too_few) = middle;
    }
  }

  ReplayScript script_;
  const std::string kind_;
  const uint64_t runs_max_;
  uint64_t runs_ = 0;
};

template <typename Options>
std::optional<Shrunk> ShrinkJob(const Options& options, uint64_t runs_max) {
  SurvivalReport report;
  const ReplayScript whole = Record(options, &report);
  if (report.violations.empty()) return std::nullopt;
  Search search(whole, KindOf(report.violations[0]), runs_max);
  search.Run();
  Shrunk shrunk{.script = search.script(), .runs = search.runs()};
  const SurvivalReport replayed = RunReplay(shrunk.script);
  shrunk.script.comment = absl::StrCat("Seed ", whole.options.data_seed, ".\n");
  if (!replayed.violations.empty()) shrunk.script.shows = replayed.violations[0];
  for (const char* name : {"starts_unheard", "late_failed_writes", "records_written_late"}) {
    const uint64_t count = *CountOf(name, replayed);
    if (count > 0) shrunk.script.expected.emplace_back(name, count);
  }
  for (const auto& [fault, count] : replayed.faults) {
    if (count > 0) shrunk.script.expected.emplace_back(ScriptName(fault), count);
  }
  return shrunk;
}

}  // namespace

std::optional<Shrunk> Shrink(const SurvivalOptions& options, uint64_t runs_max) {
  return ShrinkJob(options, runs_max);
}

std::optional<Shrunk> Shrink(const RelaySimOptions& options, uint64_t runs_max) {
  return ShrinkJob(options, runs_max);
}

}  // namespace sluice
