// SPDX-License-Identifier: Apache-2.0
#include "planning/estimate/recommendation.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"

namespace sluice::planning {
namespace {

// From the mildest to the strongest. The downlink of the strongest sends more values, because all
// workers share its error.
struct Rung {
  const char* up;
  const char* down;
};
constexpr Rung kLadder[] = {
    {"fp16", "fp16"},
    {"int8", "int8"},
    {"int4", "int4"},
    {"ternary:0.5", "ternary:0.5"},
    {"topk:1%+int4", "topk:3%+int4"},
};
constexpr size_t kRungs = std::size(kLadder);

// The numbers of local steps whose accuracy was measured (docs/training.md), also streaming.
constexpr LocalSteps kLocalSteps[] = {
    {.steps = 5},
    {.steps = 20},
    {.steps = 20, .fragments = 4, .delay = 2},
    {.steps = 80},
    {.steps = 80, .fragments = 4, .delay = 5},
};

compress::CodecSpec SpecOf(const char* text) {
  const absl::StatusOr<compress::CodecSpec> spec = compress::ParseCodecSpec(text);
  Check(spec.ok(), "the ladder has valid specs");
  return *spec;
}

struct CodecPair {
  compress::CodecSpec up{}, down{};
  size_t loss = 0;  // Sum of the rungs.
};

struct Candidate {
  Choice choice{};
  size_t loss = 0;
};

std::vector<CodecPair> CodecPairs(const Scenario& scenario, bool search) {
  if (!search) return {{scenario.up, scenario.down, 0}};
  std::vector<CodecPair> pairs;
  for (size_t up = 0; up < kRungs; ++up) {
    // All workers share the error of the results, so they are not compressed more strongly.
    for (size_t down = 0; down <= up; ++down) {
      pairs.push_back({SpecOf(kLadder[up].up), SpecOf(kLadder[down].down), up + down});
    }
  }
  return pairs;
}

std::vector<uint32_t> ShardCounts(const Scenario& scenario, bool search) {
  if (!search) return {scenario.shards};
  const uint32_t most = std::min(scenario.workers, kShardsMax);
  std::vector<uint32_t> counts;
  for (uint32_t count = 1; count < most; count *= 2) counts.push_back(count);
  counts.push_back(most);
  return counts;
}

std::vector<Placement> Placements(const Scenario& scenario, bool search) {
  if (!search || scenario.placement == Placement::kOneMachine) return {scenario.placement};
  return {Placement::kWithWorkers, Placement::kSeparate};
}

std::vector<bool> RelayChoices(const Scenario& scenario, bool search) {
  if (!search || scenario.sites == 0) return {scenario.relays};
  return {false, true};
}

// Calls `consider` with every combination of choices, except those of local steps.
template <typename Consider>
absl::Status ForEach(const Scenario& scenario, const SearchLimits& limits, LocalSteps local,
                     const Consider& consider) {
  Scenario other = scenario;
  other.local = local;
  for (const CodecPair& codecs : CodecPairs(scenario, limits.codecs)) {
    other.up = codecs.up;
    other.down = codecs.down;
    for (const uint32_t shards : ShardCounts(scenario, limits.shards)) {
      other.shards = shards;
      for (const Placement placement : Placements(scenario, limits.placement)) {
        other.placement = placement;
        for (const bool relays : RelayChoices(scenario, limits.relays)) {
          other.relays = relays;
          if (absl::Status status = consider(other, codecs.loss); !status.ok()) return status;
        }
      }
    }
  }
  return absl::OkStatus();
}

bool IsFaster(const Candidate& a, const Candidate& b) {
  return a.choice.estimate.time.step_s < b.choice.estimate.time.step_s;
}

// The order of candidates that are nearly equally fast. Machines for shards cost more than milder
// codecs gain.
auto Preference(const Candidate& candidate) {
  const Scenario& scenario = candidate.choice.scenario;
  return std::make_tuple(scenario.local.steps, scenario.placement == Placement::kSeparate,
                         candidate.loss, scenario.relays, scenario.shards,
                         candidate.choice.estimate.time.step_s);
}

struct Found {
  Candidate best;
  Candidate fastest;
};

Found Select(const std::vector<Candidate>& candidates) {
  const Candidate& fastest = *std::min_element(candidates.begin(), candidates.end(), IsFaster);
  const double limit = (1 + kWithin) * fastest.choice.estimate.time.step_s;
  const Candidate* best = &fastest;
  for (const Candidate& candidate : candidates) {
    if (candidate.choice.estimate.time.step_s > limit) continue;
    if (Preference(candidate) < Preference(*best)) best = &candidate;
  }
  return {*best, fastest};
}

std::string Milliseconds(double seconds) { return absl::StrFormat("%.4g ms", 1e3 * seconds); }

std::string CodecsOf(const Scenario& scenario) {
  return absl::StrCat(ToString(scenario.up), " / ", ToString(scenario.down));
}

// Explains a choice by the time of the same choice with one change.
class Explanation {
 public:
  Explanation(const MachineFigures& machine, Recommendation* recommendation)
      : machine_(machine), recommendation_(recommendation) {}

  void Add(std::string what, std::string choice, std::string why) {
    recommendation_->reasons.push_back({std::move(what), std::move(choice), std::move(why)});
  }

  // Returns "a step would take 12 ms", or nothing if the changed choice is impossible.
  std::optional<std::string> With(const Scenario& changed) const {
    const absl::StatusOr<Estimate> estimate = EstimateOf(changed, machine_);
    if (!estimate.ok()) return std::nullopt;
    return absl::StrCat("a step would take ", Milliseconds(estimate->time.step_s));
  }

  void AddCodecs(const SearchLimits& limits) {
    const Scenario& scenario = recommendation_->choice.scenario;
    const Choice& fastest = recommendation_->fastest;
    std::string why = "as given";
    if (limits.codecs) {
      why = CodecsOf(scenario) == CodecsOf(fastest.scenario)
                ? "no milder codecs are within 3 % of its step time"
                : absl::StrCat("the mildest codecs within 3 % of the fastest choice (",
                               CodecsOf(fastest.scenario), ", ",
                               Milliseconds(fastest.estimate.time.step_s), ")");
    }
    Add("codec up", ToString(scenario.up), why);
    Add("codec down", ToString(scenario.down), why);
  }

  void AddShards(const SearchLimits& limits) {
    Scenario changed = recommendation_->choice.scenario;
    const std::string count = absl::StrCat(changed.shards);
    if (!limits.shards) return Add("shards", count, "as given");
    if (changed.shards == 1) return Add("shards", count, "more gain less than 3 %");
    changed.shards /= 2;
    Add("shards", count,
        absl::StrCat("with ", changed.shards, ", ", With(changed).value_or("it is impossible")));
  }

  void AddPlacement(const SearchLimits& limits) {
    Scenario changed = recommendation_->choice.scenario;
    const std::string name(NameOf(changed.placement));
    if (!limits.placement || changed.placement == Placement::kOneMachine) {
      return Add("placement", name, "as given");
    }
    const bool together = changed.placement == Placement::kWithWorkers;
    changed.placement = together ? Placement::kSeparate : Placement::kWithWorkers;
    const std::string other = With(changed).value_or("it is impossible");
    Add("placement", name,
        together ? absl::StrCat("needs no more machines; with machines for shards, ", other)
                 : absl::StrCat("with shards on workers' machines, ", other));
  }

  void AddRelays(const SearchLimits& limits) {
    Scenario changed = recommendation_->choice.scenario;
    if (changed.sites == 0) return;
    const std::string choice =
        changed.relays ? absl::StrCat(changed.sites, ", one in each site") : "none";
    if (!limits.relays) return Add("relays", choice, "as given");
    changed.relays = !changed.relays;
    Add("relays", choice,
        absl::StrCat(changed.relays ? "with one in each site, " : "without relays, ",
                     With(changed).value_or("it is impossible")));
  }

  void AddLocalSteps(const SearchLimits& limits, const Choice& each_step) {
    const LocalSteps& local = recommendation_->choice.scenario.local;
    const std::string choice = local.steps == 1 ? "none"
                                                : absl::StrCat(local.steps, ", ", local.fragments,
                                                               " fragments, delay ", local.delay);
    if (!limits.local_steps) return Add("local steps", choice, "as given");
    std::string why =
        absl::StrFormat("%.0f %% of a step is computing", 100 * each_step.estimate.efficiency);
    if (local.steps > 1) {
      why = absl::StrCat("with an exchange in each step, ",
                         Milliseconds(each_step.estimate.time.step_s), " would be the best time");
    } else if (each_step.scenario.compute_s == 0) {
      why = "the time of computing is not given";
    }
    Add("local steps", choice, why);
  }

 private:
  const MachineFigures& machine_;
  Recommendation* const recommendation_;
};

}  // namespace

absl::StatusOr<Recommendation> Recommend(const Scenario& scenario, const MachineFigures& machine,
                                         const SearchLimits& limits) {
  if (absl::Status status = CheckScenario(scenario); !status.ok()) return status;
  Recommendation recommendation;
  std::vector<Candidate> candidates;
  const auto consider = [&](const Scenario& other, size_t loss) -> absl::Status {
    const absl::StatusOr<Estimate> estimate = EstimateOf(other, machine);
    if (!estimate.ok()) return estimate.status();
    candidates.push_back({{other, *estimate}, loss});
    ++recommendation.considered;
    return absl::OkStatus();
  };
  const LocalSteps given = limits.local_steps ? LocalSteps{} : scenario.local;
  if (absl::Status status = ForEach(scenario, limits, given, consider); !status.ok()) return status;
  Found found = Select(candidates);
  const Choice each_step = found.best.choice;
  if (limits.local_steps && scenario.compute_s > 0 &&
      each_step.estimate.efficiency < kLocalStepsBelow) {
    candidates.clear();
    for (const LocalSteps& local : kLocalSteps) {
      absl::Status status = ForEach(scenario, limits, local, consider);
      if (!status.ok()) return status;
    }
    found = Select(candidates);
  }
  recommendation.choice = found.best.choice;
  recommendation.fastest = found.fastest.choice;
  Explanation explanation(machine, &recommendation);
  explanation.AddCodecs(limits);
  explanation.AddShards(limits);
  explanation.AddPlacement(limits);
  explanation.AddRelays(limits);
  explanation.AddLocalSteps(limits, each_step);
  return recommendation;
}

}  // namespace sluice::planning
