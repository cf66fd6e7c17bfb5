// SPDX-License-Identifier: Apache-2.0
#include "server/control/step_model.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace sluice::server {
namespace {

constexpr double kCostGain = 0.2;  // Weight of one step in a measured cost.

// Returns the time of a step of all ranks, computed from the time of each rank.
double OfAll(const std::vector<double>& seconds, bool lockstep) {
  if (lockstep) return *std::max_element(seconds.begin(), seconds.end());
  double pace = 0;
  for (const double of_one : seconds) pace += 1 / of_one;
  return static_cast<double>(seconds.size()) / pace;
}

}  // namespace

StepModel::StepModel(std::vector<PricedCodec> choices, uint32_t ranks, double overlap,
                     double error_price, bool lockstep)
    : choices_(std::move(choices)),
      links_(ranks),
      overlap_(overlap),
      error_price_(error_price),
      lockstep_(lockstep) {}

void StepModel::AddStep(const StepMeasurements& measured) {
  compute_.AddStep(measured);
  compute_s_ = compute_.compute_s();
  std::vector<double> took;
  waited_s_ = HUGE_VAL;
  const size_t ranks = std::min(links_.size(), measured.ranks.size());
  for (size_t rank = 0; rank < ranks; ++rank) {
    const RankMeasurements& of = measured.ranks[rank];
    links_[rank].up.AddStep(of.up);
    links_[rank].down.AddStep(of.down);
    const double waited = of.exposed_s + of.apply_s;
    waited_s_ = std::min(waited_s_, waited);
    took.push_back(compute_s_ + waited);
  }
  if (!lockstep_ && compute_s_ > 0) waited_s_ = OfAll(took, lockstep_) - compute_s_;
}

void StepModel::AddEncoding(size_t choice, double encode_s) {
  double& known = choices_[choice].cost.encode_s;
  known += kCostGain * (encode_s - known);
}

bool StepModel::known() const {
  return compute_s_ > 0 && std::all_of(links_.begin(), links_.end(), [](const Link& link) {
           return link.up.known() && link.down.known();
         });
}

LinkRates StepModel::SustainedRates() const {
  LinkRates rates;
  for (const Link& link : links_) {
    rates.up.push_back(link.up.rate());
    rates.down.push_back(link.down.rate());
  }
  return rates;
}

LinkRates StepModel::LastRates() const {
  LinkRates rates;
  for (const Link& link : links_) {
    rates.up.push_back(link.up.rate_now());
    rates.down.push_back(link.down.rate_now());
  }
  return rates;
}

// Assumes that the stages run one after another, so the result is an upper bound.
double StepModel::StepTime(size_t rank, size_t up, size_t down, const LinkRates& rates) const {
  const Link& link = links_[rank];
  const PricedCodec& sent = choices_[up];
  const PricedCodec& answered = choices_[down];
  const double communication = link.up.latency_s() + link.down.latency_s() + sent.cost.encode_s +
                               sent.coding.bytes / rates.up[rank] +
                               std::max(sent.cost.server_s, answered.cost.server_s) +
                               answered.coding.bytes / rates.down[rank] + answered.cost.apply_s;
  return std::max(compute_s_, (1 - overlap_) * compute_s_ + communication);
}

double StepModel::StepTime(const CodecPick& pick, const LinkRates& rates) const {
  std::vector<double> seconds;
  for (size_t rank = 0; rank < links_.size(); ++rank) {
    seconds.push_back(StepTime(rank, pick.up[rank], pick.down, rates));
  }
  return OfAll(seconds, lockstep_);
}

double StepModel::Cost(double step_s, const CodecPick& pick) const {
  double error = 0;
  for (const size_t up : pick.up) error += choices_[up].error;
  error = (error / static_cast<double>(links_.size()) + choices_[pick.down].error) / 2;
  return step_s * (1 + error_price_ * error);
}

// In lockstep, a rank gains nothing by being faster than the slowest rank at its best. Faster ranks
// use this slack for more faithful codecs.
CodecPick StepModel::BestWith(size_t down, const LinkRates& rates, const ByteLimits& limits) const {
  double floor = 0;
  for (size_t rank = 0; lockstep_ && rank < links_.size(); ++rank) {
    double fastest = HUGE_VAL;
    for (size_t up = 0; up < choices_.size(); ++up) {
      if (choices_[up].coding.bytes > limits.up[rank]) continue;
      fastest = std::min(fastest, StepTime(rank, up, down, rates));
    }
    floor = std::max(floor, fastest);
  }
  CodecPick pick{.up = {}, .down = down};
  for (size_t rank = 0; rank < links_.size(); ++rank) {
    size_t best = 0;
    double least = HUGE_VAL;
    for (size_t up = 0; up < choices_.size(); ++up) {
      if (choices_[up].coding.bytes > limits.up[rank]) continue;
      const double cost = std::max(floor, StepTime(rank, up, down, rates)) *
                          (1 + error_price_ * choices_[up].error / 2);
      if (cost < least) best = up;
      least = std::min(least, cost);
    }
    pick.up.push_back(best);
  }
  return pick;
}

CodecPick StepModel::Best(const LinkRates& rates, const ByteLimits& limits) const {
  std::optional<CodecPick> best;
  for (size_t down = 0; down < choices_.size(); ++down) {
    if (choices_[down].coding.bytes > limits.down) continue;
    CodecPick other = BestWith(down, rates, limits);
    if (!best || Cost(other, rates) < Cost(*best, rates)) best = std::move(other);
  }
  return *best;
}

ByteLimits StepModel::NoLimits() const {
  return {.up = std::vector<double>(links_.size(), HUGE_VAL), .down = HUGE_VAL};
}

ByteLimits StepModel::BytesOf(const CodecPick& pick) const {
  ByteLimits limits{.up = {}, .down = choices_[pick.down].coding.bytes};
  for (const size_t up : pick.up) limits.up.push_back(choices_[up].coding.bytes);
  return limits;
}

ByteLimits StepModel::NextLarger(ByteLimits limits) const {
  for (double& bytes : limits.up) bytes = NextLarger(bytes);
  limits.down = NextLarger(limits.down);
  return limits;
}

double StepModel::NextLarger(double bytes) const {
  double next = HUGE_VAL;
  for (const PricedCodec& choice : choices_) {
    if (choice.coding.bytes > bytes) next = std::min(next, choice.coding.bytes);
  }
  return std::isfinite(next) ? next : bytes;
}

bool StepModel::IsWithin(const CodecPick& pick, const ByteLimits& limits) const {
  bool within = choices_[pick.down].coding.bytes <= limits.down;
  for (size_t rank = 0; rank < pick.up.size(); ++rank) {
    within = within && choices_[pick.up[rank]].coding.bytes <= limits.up[rank];
  }
  return within;
}

size_t StepModel::Beside(size_t choice, bool larger) const {
  const double bytes = choices_[choice].coding.bytes;
  size_t beside = choice;
  for (size_t other = 0; other < choices_.size(); ++other) {
    const double size = choices_[other].coding.bytes;
    if (larger ? size <= bytes : size >= bytes) continue;
    const double nearest = choices_[beside].coding.bytes;
    if (beside == choice || (larger ? size < nearest : size > nearest)) beside = other;
  }
  return beside;
}

}  // namespace sluice::server
