// SPDX-License-Identifier: Apache-2.0
#include "server/control/auto.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/control/bit_allocation.h"
#include "server/control/step_memory.h"
#include "server/control/step_model.h"

namespace sluice::server {
namespace {

constexpr uint64_t kFirstSteps = 3;
// The first steps of a new plan do not count, because the plan takes effect a step or two after the
// decision and its first step waits less than later ones.
constexpr uint64_t kUnsettled = job::kPlanDelay + 2;

class AutoPolicy : public Policy {
 public:
  AutoPolicy(StepModel model, uint32_t ranks, Coding first) : model_(std::move(model)) {
    first_.up.assign(ranks, first);
    first_.down = std::move(first);
    first_.reason = "links are not known yet";
  }

  Choice First() override { return first_; }
  std::optional<Choice> Next(const StepMeasurements& measured) override;
  std::unique_ptr<Policy> Clone() const override { return std::make_unique<AutoPolicy>(*this); }

 private:
  void Measure(const StepMeasurements& measured);
  std::optional<Choice> Hurry(const LinkRates& sustained);
  std::optional<Choice> Improve(const LinkRates& sustained);
  std::optional<Choice> Try(const LinkRates& sustained);
  double SeenTime(const CodecPick& pick, const LinkRates& rates) const;
  double SeenCost(const CodecPick& pick, const LinkRates& rates) const;
  CodecPick BestSeen(const LinkRates& rates, const ByteLimits& limits) const;
  Choice Change(const CodecPick& pick, const LinkRates& rates, const char* why);

  StepModel model_;
  StepMemory memory_;
  Choice first_;
  std::optional<CodecPick> now_;
  std::optional<CodecPick> before_;  // During a trial: the pick that was in use before the trial.
  uint64_t steps_ = 0;
  uint64_t since_change_ = 0;
  uint64_t dwell_ = kAutoDwell;
  uint64_t try_after_ = kAutoTry;
  bool rose_ = false;  // True if the last change raised bytes.
  // Cost of the pick in use at the last step's rates, relative to the best pick with no more bytes.
  double over_ = 0;
};

std::optional<Choice> AutoPolicy::Next(const StepMeasurements& measured) {
  Measure(measured);
  if (!model_.known() || ++steps_ < kFirstSteps) return std::nullopt;
  ++since_change_;
  const LinkRates sustained = model_.SustainedRates();
  if (!now_) {
    return Change(model_.Best(sustained, model_.NoLimits()), sustained, "links are known now");
  }
  memory_.Settle(steps_);
  if (std::optional<Choice> choice = Hurry(sustained)) return choice;
  if (since_change_ < (before_ ? kAutoDwell : dwell_)) return std::nullopt;
  if (const std::optional<CodecPick> before = std::exchange(before_, std::nullopt)) {
    if (SeenCost(*now_, sustained) > (1 - kAutoWorthwhile) * SeenCost(*before, sustained)) {
      try_after_ = std::min(2 * try_after_, kAutoTryMax);
      return Change(*before, sustained, "the tried choice is no better");
    }
    try_after_ = kAutoTry;
  }
  if (std::optional<Choice> choice = Improve(sustained)) return choice;
  return Try(sustained);
}

void AutoPolicy::Measure(const StepMeasurements& measured) {
  model_.AddStep(measured);
  if (!now_) return;
  if (since_change_ >= kUnsettled) {
    memory_.Add(model_.compute_s() + model_.waited_s() -
                model_.StepTime(*now_, model_.LastRates()));
  }
  double encode_s = 0;
  for (const RankMeasurements& rank : measured.ranks) {
    encode_s = std::max(encode_s, rank.encode_s);
  }
  // The measurement belongs to one choice only if all ranks have used that choice for some steps.
  const bool alike =
      std::all_of(now_->up.begin(), now_->up.end(), [&](size_t up) { return up == now_->up[0]; });
  if (alike && encode_s > 0 && since_change_ > job::kPlanDelay) {
    model_.AddEncoding(now_->up[0], encode_s);
  }
}

// Reduces bytes at once when steps are slow. If a link was faster than usual in the last step, the
// extra speed is ignored, because it may not last.
std::optional<Choice> AutoPolicy::Hurry(const LinkRates& sustained) {
  LinkRates last = model_.LastRates();
  const ByteLimits as_now = model_.BytesOf(*now_);
  const double over = model_.Cost(*now_, last) / model_.Cost(model_.Best(last, as_now), last);
  const double over_before = std::exchange(over_, over);
  if (over <= kAutoFarOver && (over <= kAutoOver || over_before <= kAutoOver)) return std::nullopt;
  for (size_t rank = 0; rank < last.up.size(); ++rank) {
    last.up[rank] = std::min(last.up[rank], sustained.up[rank]);
    last.down[rank] = std::min(last.down[rank], sustained.down[rank]);
  }
  const CodecPick pick = model_.Best(last, as_now);
  // Rates that are measured from few bytes are noisy, so the step itself must have been slow too.
  const double took_s = model_.compute_s() + model_.waited_s();
  if (model_.StepTime(pick, last) >= model_.StepTime(*now_, last) ||
      took_s <= kAutoOver * model_.StepTime(pick, last)) {
    return std::nullopt;
  }
  if (rose_ && since_change_ <= kUnsettled + kAutoDwell) {
    // The rise was too large, so the policy waits longer before the next attempt.
    if (before_) {
      try_after_ = std::min(2 * try_after_, kAutoTryMax);
    } else {
      dwell_ = std::min(2 * dwell_, kAutoDwellMax);
    }
    memory_.Put(took_s - model_.StepTime(*now_, sustained), steps_);
  } else {
    if (rose_) dwell_ = std::max(dwell_ / 2, kAutoDwell);  // The rise was justified.
    memory_.Forget();
  }
  return Change(pick, last, "slower than necessary");
}

// Small transfers do not reveal the rate of large ones: a token bucket lets small transfers pass at
// full speed. Bytes therefore grow by one choice at a time, and each choice is measured before the
// next, unless a larger change promises a large gain.
std::optional<Choice> AutoPolicy::Improve(const LinkRates& sustained) {
  const double cost = SeenCost(*now_, sustained);
  CodecPick best = BestSeen(sustained, model_.NextLarger(model_.BytesOf(*now_)));
  const double noise = kAutoNoise * memory_.noise_s();
  if (SeenCost(best, sustained) > (1 - kAutoWorthwhile) * cost - noise) {
    best = BestSeen(sustained, model_.NoLimits());
    if (SeenCost(best, sustained) > (1 - kAutoLeap) * cost) return std::nullopt;
  }
  const StepMemory::Tried* const tried = memory_.Find(best);
  if (tried != nullptr && tried->step + 2 * dwell_ >= steps_) {
    // The policy is alternating between two picks, so it waits longer.
    dwell_ = std::max(dwell_, std::min(2 * dwell_, kAutoDwellAgain));
  } else if (rose_) {
    dwell_ = std::max(dwell_ / 2, kAutoDwell);  // The last rise was justified.
  }
  return Change(best, sustained, "better at the rates of nearly all of the last steps");
}

// Tries a choice next to the one in use, if no measurement of that choice is known.
std::optional<Choice> AutoPolicy::Try(const LinkRates& sustained) {
  if (since_change_ < try_after_) return std::nullopt;
  const double now = SeenCost(*now_, sustained);
  constexpr struct {
    bool larger, up, down;
  } kWays[] = {{false, true, true}, {false, false, true}, {false, true, false},
               {true, true, true},  {true, false, true},  {true, true, false}};
  for (const auto& way : kWays) {
    CodecPick beside = *now_;
    for (size_t& up : beside.up) up = way.up ? model_.Beside(up, way.larger) : up;
    if (way.down) beside.down = model_.Beside(beside.down, way.larger);
    if (beside == *now_ || memory_.Find(beside) != nullptr) continue;
    // Even with infinitely fast communication, a step takes at least the compute time.
    if (model_.Cost(model_.compute_s(), beside) > (1 - kAutoWorthwhile) * now) continue;
    if (SeenCost(beside, sustained) >= kAutoTryCost * now) continue;
    CodecPick before = *now_;
    Choice choice = Change(beside, sustained, "to see whether it is better");
    before_ = std::move(before);
    return choice;
  }
  return std::nullopt;
}

// Returns the predicted time plus the measured excess of the nearest known pick.
double AutoPolicy::SeenTime(const CodecPick& pick, const LinkRates& rates) const {
  return std::max(model_.compute_s(),
                  model_.StepTime(pick, rates) + memory_.Beyond(model_.BytesOf(pick)));
}

double AutoPolicy::SeenCost(const CodecPick& pick, const LinkRates& rates) const {
  return model_.Cost(SeenTime(pick, rates), pick);
}

// Returns the cheapest pick from two groups: the model's best picks for each coding of the results,
// and the picks that were in use before.
CodecPick AutoPolicy::BestSeen(const LinkRates& rates, const ByteLimits& limits) const {
  CodecPick best = model_.Best(rates, limits);
  double least = SeenCost(best, rates);
  const auto consider = [&](const CodecPick& other) {
    const double cost = SeenCost(other, rates);
    if (cost < least) best = other;
    least = std::min(least, cost);
  };
  for (size_t down = 0; down < model_.choices(); ++down) {
    if (model_.choice(down).coding.bytes > limits.down) continue;
    consider(model_.BestWith(down, rates, limits));
  }
  for (const auto& [other, tried] : memory_.tried()) {
    if (model_.IsWithin(other, limits)) consider(other);
  }
  return best;
}

Choice AutoPolicy::Change(const CodecPick& pick, const LinkRates& rates, const char* why) {
  constexpr double kMega = 1e-6;
  constexpr double kMilli = 1e3;
  Choice choice;
  for (const size_t up : pick.up) choice.up.push_back(model_.choice(up).coding);
  choice.down = model_.choice(pick.down).coding;
  choice.reason = absl::StrFormat(
      "%s: the slowest links carry %.3g MB/s up and %.3g MB/s down; rank 0 sends %s, results are "
      "%s; a step should take %.3g ms",
      why, kMega * *std::min_element(rates.up.begin(), rates.up.end()),
      kMega * *std::min_element(rates.down.begin(), rates.down.end()),
      compress::ToString(model_.choice(pick.up[0]).cost.spec),
      compress::ToString(model_.choice(pick.down).cost.spec), kMilli * SeenTime(pick, rates));
  if (now_) {
    absl::StrAppendFormat(&choice.reason, ", %.3g before", kMilli * SeenTime(*now_, rates));
  }
  const ByteLimits before = now_ ? model_.BytesOf(*now_) : model_.NoLimits();
  const ByteLimits after = model_.BytesOf(pick);
  rose_ = after.down > before.down ||
          !std::equal(after.up.begin(), after.up.end(), before.up.begin(), std::less_equal<>());
  now_ = pick;
  before_.reset();
  since_change_ = 0;
  over_ = 0;
  memory_.Begin(pick, after);
  return choice;
}

bool IsCost(double seconds) { return seconds >= 0 && std::isfinite(seconds); }

}  // namespace

absl::StatusOr<std::unique_ptr<Policy>> MakeAutoPolicy(const AutoOptions& options) {
  if (options.ranks == 0 || options.tensors.empty() || options.choices.empty()) {
    return absl::InvalidArgumentError("auto: no ranks, no tensors or no codecs to choose from");
  }
  if (!(options.overlap > 0 && options.overlap <= 1) || !IsCost(options.error_price)) {
    return absl::InvalidArgumentError(
        absl::StrCat("auto: an overlap of ", options.overlap, " and an error price of ",
                     options.error_price, "; use an overlap in (0, 1] and a price of at least 0"));
  }
  std::vector<PricedCodec> choices;
  for (const CodecCpuTime& cost : options.choices) {
    if (!IsCost(cost.encode_s) || !IsCost(cost.server_s) || !IsCost(cost.apply_s)) {
      return absl::InvalidArgumentError(absl::StrCat("auto: a time of ",
                                                     compress::ToString(cost.spec),
                                                     " is not a finite number of at least 0"));
    }
    absl::StatusOr<Spent> spent = SpendEvenly(options.tensors, cost.spec);
    if (!spent.ok()) return spent.status();
    choices.push_back({cost, std::move(spent->coding), spent->error});
  }
  absl::StatusOr<Spent> first = SpendEvenly(options.tensors, options.first);
  if (!first.ok()) return first.status();
  StepModel model(std::move(choices), options.ranks, options.overlap, options.error_price,
                  options.lockstep);
  return std::make_unique<AutoPolicy>(std::move(model), options.ranks, std::move(first->coding));
}

}  // namespace sluice::server
