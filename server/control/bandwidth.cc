// SPDX-License-Identifier: Apache-2.0
#include "server/control/bandwidth.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "protocol/compression_plan.h"
#include "server/control/compute_time.h"
#include "server/control/link_budget.h"

namespace sluice::server {
namespace {

bool AllSparse(const std::vector<compress::CodecSpec>& candidates) {
  return candidates.size() == 1 && protocol::IsSparse(candidates[0].codec);
}

class BandwidthPolicy : public Policy {
 public:
  BandwidthPolicy(BandwidthOptions options, LinkBudget budget, Coding first)
      : options_(std::move(options)), budget_(std::move(budget)) {
    choice_.up.assign(options_.ranks, first);
    choice_.down = std::move(first);
    choice_.reason = "links are not known yet";
  }

  Choice First() override { return choice_; }
  std::optional<Choice> Next(const StepMeasurements& measured) override;
  std::unique_ptr<Policy> Clone() const override {
    return std::make_unique<BandwidthPolicy>(*this);
  }

 private:
  double Time() const;
  Coding Spend(double bytes) const;
  Choice Make() const;
  std::string Reason(BudgetChange change) const;

  const BandwidthOptions options_;
  LinkBudget budget_;
  ComputeTime compute_;
  Choice choice_;
};

double BandwidthPolicy::Time() const {
  const double hidden = options_.overlap * compute_.compute_s();
  const double time =
      options_.step_time_s ? *options_.step_time_s - compute_.compute_s() + hidden : hidden;
  // If the target step time is below the compute time, the policy sends as few bytes as possible.
  return std::max(time - compute_.server_s(), LinkBudget::kTimeMin * hidden);
}

std::optional<Choice> BandwidthPolicy::Next(const StepMeasurements& measured) {
  compute_.AddStep(measured);
  if (!compute_.known()) return std::nullopt;
  const BudgetChange change = budget_.Next(measured, Time());
  if (change == BudgetChange::kNone) return std::nullopt;
  choice_ = Make();
  choice_.reason = Reason(change);
  return choice_;
}

Coding BandwidthPolicy::Spend(double bytes) const {
  if (AllSparse(options_.candidates)) {
    return AllocateByDensity(options_.tensors, options_.sparse, bytes).coding;
  }
  const absl::StatusOr<Spent> spent = SpendOnCodecs(options_.tensors, options_.candidates, bytes);
  // This cannot fail, because MakeBandwidthPolicy has checked the prices of the candidates.
  return spent.ok() ? spent->coding : choice_.down;
}

Choice BandwidthPolicy::Make() const {
  Choice choice;
  for (const double bytes : budget_.budgets().up) choice.up.push_back(Spend(bytes));
  choice.down = Spend(budget_.budgets().down);
  return choice;
}

std::string BandwidthPolicy::Reason(BudgetChange change) const {
  constexpr double kMega = 1e-6;
  constexpr double kMilli = 1e3;
  const uint32_t rank = budget_.slowest();
  const LinkEstimate& up = budget_.up(rank);
  const LinkEstimate& down = budget_.down(rank);
  const std::string link =
      absl::StrFormat("rank %d has %.3g MB/s up and %.3g MB/s down, latency %.3g ms", rank,
                      kMega * up.rate_recent(), kMega * down.rate_recent(),
                      kMilli * (up.latency_s() + down.latency_s()));
  const std::string time =
      absl::StrFormat("the %.3g ms that communication may take", kMilli * Time());
  const std::string bytes =
      absl::StrFormat("%.3g MB up and %.3g MB down a step", kMega * budget_.budgets().up[rank],
                      kMega * budget_.budgets().down);
  switch (change) {
    case BudgetChange::kFirst:
      return absl::StrCat("links are known now: ", link, "; ", bytes, " fit into ", time);
    case BudgetChange::kEmergency:
      return absl::StrFormat("%s: it would take %.0f %% of %s; %s at once", link,
                             100 * budget_.load(), time, bytes);
    case BudgetChange::kLess:
      return absl::StrCat(link, ": somewhat more than fits into ", time, "; ", bytes);
    case BudgetChange::kMore:
      return absl::StrCat(link, ": more fits into ", time, "; ", bytes);
    case BudgetChange::kNone:
      break;
  }
  return "";
}

// Returns the bytes in one direction with the cheapest candidate and with the most expensive one.
absl::StatusOr<std::pair<double, double>> Bounds(const BandwidthOptions& options) {
  if (AllSparse(options.candidates)) {
    const Spent least = AllocateByDensity(options.tensors, options.sparse, 0);
    const Spent most = AllocateByDensity(options.tensors, options.sparse, HUGE_VAL);
    return std::make_pair(least.coding.bytes, most.coding.bytes);
  }
  const absl::StatusOr<Spent> least = SpendOnCodecs(options.tensors, options.candidates, 0);
  if (!least.ok()) return least.status();
  double most = 0;
  for (const compress::CodecSpec& candidate : options.candidates) {
    const absl::StatusOr<Spent> spent = SpendEvenly(options.tensors, candidate);
    if (!spent.ok()) return spent.status();
    most = std::max(most, spent->coding.bytes);
  }
  return std::make_pair(least->coding.bytes, most);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Policy>> MakeBandwidthPolicy(BandwidthOptions options) {
  if (options.ranks == 0 || options.tensors.empty()) {
    return absl::InvalidArgumentError("bandwidth: no ranks or no tensors to plan for");
  }
  if (!(options.overlap > 0 && options.overlap <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("bandwidth: an overlap of ", options.overlap, "; use one in (0, 1]"));
  }
  if (options.step_time_s && !(*options.step_time_s > 0 && std::isfinite(*options.step_time_s))) {
    return absl::InvalidArgumentError(
        absl::StrCat("bandwidth: a step time of ", *options.step_time_s, " s; use one above 0"));
  }
  if (AllSparse(options.candidates)) options.sparse.sparse = options.candidates[0];
  const absl::StatusOr<std::pair<double, double>> bounds = Bounds(options);
  if (!bounds.ok()) return bounds.status();
  const absl::StatusOr<Spent> first = SpendEvenly(options.tensors, options.first);
  if (!first.ok()) return first.status();
  const Budgets start{.up = std::vector<double>(options.ranks, first->coding.bytes),
                      .down = first->coding.bytes};
  LinkBudget budget(
      {.ranks = options.ranks, .bytes_min = bounds->first, .bytes_max = bounds->second}, start);
  return std::make_unique<BandwidthPolicy>(std::move(options), std::move(budget), first->coding);
}

}  // namespace sluice::server
