// SPDX-License-Identifier: Apache-2.0
#include "planning/simulation/outages.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/random.h"

namespace sluice::planning {
namespace {

absl::Status InLine(size_t line, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("line ", line, ": ", what, "; a line is: TIME WORKER down|up"));
}

void SortByBegin(std::vector<Outage>* outages) {
  std::stable_sort(outages->begin(), outages->end(), [](const Outage& a, const Outage& b) {
    return a.begin_s != b.begin_s ? a.begin_s < b.begin_s : a.worker < b.worker;
  });
}

// Draws from the exponential distribution.
double Exponential(double mean, CounterRandom* random) {
  return -mean * std::log(1 - random->Uniform());
}

}  // namespace

absl::StatusOr<std::vector<Outage>> ParseOutages(absl::string_view trace, uint32_t workers) {
  std::vector<Outage> outages;
  std::map<uint32_t, double> down;  // By worker: since when.
  size_t line = 0;
  double last = 0;
  for (const absl::string_view whole : absl::StrSplit(trace, '\n')) {
    ++line;
    if (line > kOutagesMax) return InLine(line, absl::StrCat("the limit is ", kOutagesMax));
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(whole, absl::MaxSplits('#', 1));
    const std::vector<absl::string_view> words =
        absl::StrSplit(parts.first, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty()) continue;
    double at = 0;
    uint32_t worker = 0;
    if (words.size() != 3) return InLine(line, absl::StrCat("it has ", words.size(), " words"));
    if (!absl::SimpleAtod(words[0], &at) || !(at >= last && at < kForGood)) {
      return InLine(line, absl::StrCat("\"", words[0], "\" is no time from ", last, " s on"));
    }
    if (!absl::SimpleAtoi(words[1], &worker) || worker >= workers) {
      return InLine(line, absl::StrCat("\"", words[1], "\" is none of the ", workers, " workers"));
    }
    last = at;
    const auto found = down.find(worker);
    if (words[2] == "down" && found == down.end()) {
      down[worker] = at;
    } else if (words[2] == "up" && found != down.end() && at > found->second) {
      outages.push_back({.begin_s = found->second, .end_s = at, .worker = worker});
      down.erase(found);
    } else {
      return InLine(line, absl::StrCat("worker ", worker, " cannot go \"", words[2], "\" now"));
    }
  }
  for (const auto& [worker, since] : down) {
    outages.push_back({.begin_s = since, .end_s = kForGood, .worker = worker});
  }
  SortByBegin(&outages);
  return outages;
}

absl::StatusOr<std::vector<Outage>> DrawOutages(const FailureSpec& failures, uint32_t workers,
                                                double until_s, uint64_t seed) {
  std::vector<Outage> outages;
  if (failures.mtbf_s == 0) return outages;
  if (!(failures.mtbf_s > 0 && failures.repair_s > 0)) {
    return absl::InvalidArgumentError(absl::StrCat("workers fail after ", failures.mtbf_s,
                                                   " s and are back after ", failures.repair_s,
                                                   " s on average: both times must be positive"));
  }
  if (workers * until_s / failures.mtbf_s > kOutagesMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat(workers, " workers would fail more than ", kOutagesMax, " times in ", until_s,
                     " s: raise the time between failures, or simulate a shorter time"));
  }
  for (uint32_t worker = 0; worker < workers; ++worker) {
    CounterRandom random(seed, worker, 7);
    double at = 0;
    while (true) {
      at += Exponential(failures.mtbf_s, &random);
      if (at >= until_s) break;
      const double back = at + std::max(Exponential(failures.repair_s, &random), 1e-3);
      outages.push_back({.begin_s = at, .end_s = back, .worker = worker});
      at = back;
    }
  }
  SortByBegin(&outages);
  return outages;
}

}  // namespace sluice::planning
