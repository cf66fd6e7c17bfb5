// LinkBudget: how many bytes each rank may send, and the shards answer, in a step, so that
// communication takes no longer than it may. Pure; a step is the unit of time.
//
// A plan's budgets are kTakes of what would fit: rate x (time - latency), by the rates that nearly
// all of the last steps had. They change
//   at once      if they would take kFarOver of the time by the last step's rates, or kOver by each
//   of
//                the last two steps': an emergency
//   after kDwell steps, if they are above what fits by the median of five steps, or more than
//                kWorthwhile below; upwards by kRise at most
// and else stay: noise must not turn into plans. What a rank computes changes nothing here: time
// is given, and only transfers are measured.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/types/span.h"
#include "server/control/link_estimate.h"

namespace sluice::server {

struct Budgets {
  std::vector<double> up;  // Bytes of a step, by rank.
  double down = 0;         // The same results go to all ranks, so that the slowest link counts.
};

enum class BudgetChange : uint8_t { kNone, kFirst, kEmergency, kLess, kMore };

struct LinkBudgetOptions {
  uint32_t ranks = 1;
  // Bounds of one direction's bytes: what the least and the most faithful coding come to.
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
  static constexpr double kWorthwhileTime = 0.02;  // Of the time.
  static constexpr double kRise = 2;
  static constexpr uint64_t kDwell = 10;
  static constexpr uint64_t kFirstSteps = 3;  // Until then estimates are waited for.
  // Where latency alone takes nearly all of the time, sending less wins nothing any more: bytes may
  // have this share of the time at least.
  static constexpr double kTimeMin = 0.1;

  // `start`: what is sent until links are known.
  LinkBudget(const LinkBudgetOptions& options, Budgets start);

  // The transfers of one step, and the time that communication may take, up and down together.
  BudgetChange Next(const StepMeasurements& measured, double time_s);

  const Budgets& budgets() const { return budgets_; }
  const LinkEstimate& up(uint32_t rank) const { return links_[rank].up; }
  const LinkEstimate& down(uint32_t rank) const { return links_[rank].down; }
  // The rank that would have taken longest in the last step, and for which share of its time.
  uint32_t slowest() const { return slowest_; }
  double load() const { return load_; }

 private:
  struct Link {
    LinkEstimate up;
    LinkEstimate down;
    std::deque<double> loads;  // Of the budgets that are held, by each step's rates.
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
  uint64_t steps_ = 0;  // Since links are known.
  uint64_t since_change_ = 0;
  uint32_t slowest_ = 0;
  double load_ = 0;
};

}  // namespace sluice::server
