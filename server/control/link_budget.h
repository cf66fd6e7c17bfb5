// SPDX-License-Identifier: Apache-2.0
// LinkBudget: the bytes that each rank may send per step, and the bytes that the shards may answer,
// so that communication stays within its allotted time. Pure; the unit of time is a step.
//
// A plan's budgets are kTakes of the bytes that fit: rate x (time - latency), at rates that nearly
// all of the last steps reached. Budgets change
//   at once      in an emergency: the budgets would take kFarOver times the allotted time at the
//                last step's rates, or kOver times at the rates of each of the last two steps
//
//   after kDwell steps, if the budgets exceed what fits (by the median of five steps) or are below
//                it by more than a factor of kWorthwhile; they rise by a factor of kRise at most
// Otherwise budgets stay the same, so that noise does not cause new plans. A rank's compute time
// has no effect here: the caller gives the time, and only transfers are measured.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/types/span.h"
#include "server/control/link_estimate.h"

namespace sluice::server {

struct Budgets {
  std::vector<double> up;  // Bytes per step, by rank.
  // Bytes per step. All ranks receive the same results, so the slowest link determines this budget.
  double down = 0;
};

enum class BudgetChange : uint8_t { kNone, kFirst, kEmergency, kLess, kMore };

struct LinkBudgetOptions {
  uint32_t ranks = 1;
  // Bounds of the bytes in one direction: the bytes of the cheapest and of the most faithful
  // coding.
  double bytes_min = 0;
  double bytes_max = 0;
};

class LinkBudget {
 public:
  static constexpr double kTakes = 0.93;
  static constexpr double kFarOver = 1.5;
  static constexpr double kOver = 1.2;
  static constexpr double kSlightlyOver = 1.03;
  static constexpr double kWorthwhile = 1.1;
  static constexpr double kWorthwhileTime = 0.02;  // Share of the time.
  static constexpr double kRise = 2;
  static constexpr uint64_t kDwell = 10;
  // Number of steps with estimates before the first budgets are set.
  static constexpr uint64_t kFirstSteps = 3;
  // The share of the time that is always available for bytes. Where latency takes nearly all of the
  // time, a lower budget would gain nothing.
  static constexpr double kTimeMin = 0.1;

  // `start` applies until the links are known.
  LinkBudget(const LinkBudgetOptions& options, Budgets start);

  // Updates the budgets from the transfers of one step. `time_s` is the time that communication may
  // take in both directions together.
  BudgetChange Next(const StepMeasurements& measured, double time_s);

  const Budgets& budgets() const { return budgets_; }
  const LinkEstimate& up(uint32_t rank) const { return links_[rank].up; }
  const LinkEstimate& down(uint32_t rank) const { return links_[rank].down; }
  // The rank whose communication would have taken longest in the last step, and the share of the
  // time that it would have taken.
  uint32_t slowest() const { return slowest_; }
  double load() const { return load_; }

 private:
  struct Link {
    LinkEstimate up;
    LinkEstimate down;
    // For each step, the load of the current budgets at that step's rates.
    std::deque<double> loads;
  };
  struct Rates {
    std::vector<double> up;  // By rank.
    std::vector<double> down;
  };

  bool Known() const;
  double Free(const Link& link, double time_s) const;
  void Measure(const StepMeasurements& measured, double time_s);
  bool IsEmergency() const;
  bool IsSlightlyOver() const;
  Rates SustainedRates() const;
  Rates EmergencyRates() const;
  Budgets Fitting(const Rates& rates, double time_s) const;
  double Clamped(double bytes) const;
  void Set(const Budgets& budgets, bool rise_at_once);

  const LinkBudgetOptions options_;
  std::vector<Link> links_;  // By rank.
  Budgets budgets_;
  uint64_t steps_ = 0;  // Steps since the links became known.
  uint64_t since_change_ = 0;
  uint32_t slowest_ = 0;
  double load_ = 0;
};

}  // namespace sluice::server
