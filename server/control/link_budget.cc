// SPDX-License-Identifier: Apache-2.0
#include "server/control/link_budget.h"

#include <algorithm>

#include "base/check.h"
#include "server/control/median.h"

namespace sluice::server {
namespace {

constexpr size_t kLoads = 5;

}  // namespace

LinkBudget::LinkBudget(const LinkBudgetOptions& options, Budgets start)
    : options_(options), links_(options.ranks), budgets_(std::move(start)) {
  Check(options.ranks > 0 && budgets_.up.size() == options.ranks, "a budget for each rank");
}

BudgetChange LinkBudget::Next(const StepMeasurements& measured, double time_s) {
  Measure(measured, time_s);
  ++since_change_;
  if (!Known() || time_s <= 0 || ++steps_ < kFirstSteps) return BudgetChange::kNone;
  if (steps_ == kFirstSteps) {
    Set(Fitting(SustainedRates(), time_s), true);
    return BudgetChange::kFirst;
  }
  const Budgets before = budgets_;
  if (IsEmergency()) {
    // An emergency never raises a budget.
    Budgets fitting = Fitting(EmergencyRates(), time_s);
    fitting.down = std::min(fitting.down, before.down);
    for (size_t rank = 0; rank < links_.size(); ++rank) {
      fitting.up[rank] = std::min(fitting.up[rank], before.up[rank]);
    }
    Set(fitting, false);
    return budgets_.up == before.up && budgets_.down == before.down ? BudgetChange::kNone
                                                                    : BudgetChange::kEmergency;
  }
  if (since_change_ < kDwell) return BudgetChange::kNone;
  const Budgets fitting = Fitting(SustainedRates(), time_s);
  // A higher budget justifies a new plan only if it exceeds the current one by a tenth and the
  // extra bytes take a noticeable part of the time.
  const auto worthwhile = [time_s](double held, double now, double rate) {
    return now > kWorthwhile * held && now - held > kWorthwhileTime * time_s * rate;
  };
  bool more = false;
  for (size_t rank = 0; rank < links_.size(); ++rank) {
    const Link& link = links_[rank];
    more = more || worthwhile(budgets_.up[rank], fitting.up[rank], link.up.rate()) ||
           worthwhile(budgets_.down, fitting.down, link.down.rate());
  }
  const bool less = IsSlightlyOver();
  if (!more && !less) return BudgetChange::kNone;
  Set(fitting, false);
  if (budgets_.up == before.up && budgets_.down == before.down) return BudgetChange::kNone;
  return less ? BudgetChange::kLess : BudgetChange::kMore;
}

bool LinkBudget::Known() const {
  return std::all_of(links_.begin(), links_.end(),
                     [](const Link& link) { return link.up.known() && link.down.known(); });
}

double LinkBudget::Free(const Link& link, double time_s) const {
  return std::max(time_s - link.up.latency_s() - link.down.latency_s(), kTimeMin * time_s);
}

void LinkBudget::Measure(const StepMeasurements& measured, double time_s) {
  load_ = 0;
  const size_t ranks = std::min(links_.size(), measured.ranks.size());
  for (size_t rank = 0; rank < ranks; ++rank) {
    Link& link = links_[rank];
    link.up.AddStep(measured.ranks[rank].up);
    link.down.AddStep(measured.ranks[rank].down);
    if (!link.up.known() || !link.down.known() || time_s <= 0) continue;
    const double takes =
        budgets_.up[rank] / link.up.rate_now() + budgets_.down / link.down.rate_now();
    // The load is relative to the whole time, including latency. Where latency takes most of the
    // time, bytes that take half as long again are no emergency.
    link.loads.push_back(1 + (takes - Free(link, time_s)) / time_s);
    if (link.loads.size() > kLoads) link.loads.pop_front();
    if (link.loads.back() > load_) {
      load_ = link.loads.back();
      slowest_ = static_cast<uint32_t>(rank);
    }
  }
}

bool LinkBudget::IsEmergency() const {
  return std::any_of(links_.begin(), links_.end(), [](const Link& link) {
    const size_t count = link.loads.size();
    if (count == 0) return false;
    if (link.loads[count - 1] > kFarOver) return true;
    return count > 1 && link.loads[count - 1] > kOver && link.loads[count - 2] > kOver;
  });
}

bool LinkBudget::IsSlightlyOver() const {
  return std::any_of(links_.begin(), links_.end(), [](const Link& link) {
    return link.loads.size() == kLoads &&
           Median({link.loads.begin(), link.loads.end()}) > kSlightlyOver;
  });
}

LinkBudget::Rates LinkBudget::SustainedRates() const {
  Rates rates;
  for (const Link& link : links_) {
    rates.up.push_back(link.up.rate());
    rates.down.push_back(link.down.rate());
  }
  return rates;
}

LinkBudget::Rates LinkBudget::EmergencyRates() const {
  Rates rates;
  for (const Link& link : links_) {
    const bool over = !link.loads.empty() && link.loads.back() > kOver;
    rates.up.push_back(over ? std::min(link.up.rate_now(), link.up.rate()) : link.up.rate());
    rates.down.push_back(over ? std::min(link.down.rate_now(), link.down.rate())
                              : link.down.rate());
  }
  return rates;
}

// Splits the time so that a typical link sends as many bytes up as down. The split uses the medians
// of the ranks' rates, so that one slow link does not shrink the budgets of other ranks.
Budgets LinkBudget::Fitting(const Rates& rates, double time_s) const {
  const double up = Median(rates.up);
  const double down = Median(rates.down);
  const double up_share = down / (up + down);
  Budgets fitting;
  fitting.down = options_.bytes_max;
  for (size_t rank = 0; rank < links_.size(); ++rank) {
    const double free = kTakes * Free(links_[rank], time_s);
    fitting.up.push_back(Clamped(rates.up[rank] * free * up_share));
    fitting.down = std::min(fitting.down, rates.down[rank] * free * (1 - up_share));
  }
  fitting.down = Clamped(fitting.down);
  return fitting;
}

double LinkBudget::Clamped(double bytes) const {
  return std::clamp(bytes, options_.bytes_min, options_.bytes_max);
}

void LinkBudget::Set(const Budgets& budgets, bool rise_at_once) {
  // The measured loads are cleared, because they belong to the old budgets.
  const auto limited = [&](double before, double now) {
    return rise_at_once ? now : std::min(now, kRise * before);
  };
  for (size_t rank = 0; rank < links_.size(); ++rank) {
    budgets_.up[rank] = limited(budgets_.up[rank], budgets.up[rank]);
    links_[rank].loads.clear();
  }
  budgets_.down = limited(budgets_.down, budgets.down);
  since_change_ = 0;
}

}  // namespace sluice::server
