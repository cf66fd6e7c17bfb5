#include "server/control/auto.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/control/compute_time.h"
#include "server/control/link_estimate.h"
#include "server/control/spending.h"

namespace sluice {
namespace {

constexpr uint64_t kFirstSteps = 3;
constexpr double kCostGain = 0.2;  // Of one step in a measured cost.
// Steps of a new plan that do not count: it holds a step or two later than it was made for, and the
// first has less to wait for.
constexpr uint64_t kUnsettled = kPlanDelay + 2;
constexpr size_t kBeyondsMin = 5;
constexpr size_t kBeyondsMax = 32;
constexpr size_t kTriedMax = 64;

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Priced {
  CodecCost cost;
  Coding coding;
  double error = 0;
};

struct Link {
  LinkEstimate up;
  LinkEstimate down;
};

struct Rates {
  std::vector<double> up;  // By rank.
  std::vector<double> down;
};

// Which of the choices each rank sends with, and the shards.
struct Picked {
  std::vector<size_t> up;
  size_t down = 0;

  friend auto operator<=>(const Picked&, const Picked&) = default;
};

// What steps took beyond what was reckoned.
struct Tried {
  double beyond_s = 0;
  uint64_t step = 0;  // Then.
};

// Bytes of a step, at most.
struct Limits {
  std::vector<double> up;  // By rank.
  double down = 0;
};

class AutoPolicy : public Policy {
 public:
  AutoPolicy(AutoOptions options, std::vector<Priced> choices, Coding first)
      : options_(std::move(options)), choices_(std::move(choices)), links_(options_.ranks) {
    first_.up.assign(options_.ranks, first);
    first_.down = std::move(first);
    first_.reason = "links are not known yet";
  }

  Choice First() override { return first_; }
  std::optional<Choice> Next(const StepMeasurements& measured) override;
  std::unique_ptr<Policy> Clone() const override { return std::make_unique<AutoPolicy>(*this); }

 private:
  bool Measure(const StepMeasurements& measured);
  Rates SustainedRates() const;
  Rates LastRates() const;
  double StepTime(size_t rank, size_t up, size_t down, const Rates& rates) const;
  double StepTime(const Picked& picked, const Rates& rates) const;
  double Cost(double step_s, const Picked& picked) const;
  double Cost(const Picked& picked, const Rates& rates) const;
  double SeenCost(const Picked& picked, const Rates& rates) const;
  double Beyond(const Picked& picked) const;
  void RememberMedian();
  void Remember(double beyond_s);
  void Forget();
  std::optional<Picked> Probe(const Rates& sustained) const;
  Limits AsNow() const;
  Limits NoLimits() const;
  Limits NextLarger() const;
  double NextLarger(double bytes) const;
  size_t Beside(size_t choice, bool larger) const;
  Picked BestWith(size_t down, const Rates& rates, const Limits& limits) const;
  Picked Best(const Rates& rates, const Limits& limits) const;
  Picked BestSeen(const Rates& rates, const Limits& limits) const;
  Choice Change(const Picked& picked, const Rates& rates, const char* why);

  const AutoOptions options_;
  std::vector<Priced> choices_;
  std::vector<Link> links_;  // By rank.
  ComputeTime compute_;
  double compute_s_ = 0;  // Of compute_, which is asked often.
  double waited_s_ = 0;   // Beyond computing, in the last step.
  Choice first_;
  std::optional<Picked> now_;
  uint64_t steps_ = 0;
  uint64_t since_change_ = 0;
  uint64_t dwell_ = kAutoDwell;
  bool rose_ = false;  // With the last change.
  double over_before_ = 0;
  std::deque<double> beyonds_;  // Of steps of what is in use.
  std::map<Picked, Tried> tried_;
  std::optional<double> known_s_;  // Of what is in use, from when it was in use before.
  double noise_s_ = 0;             // Standard error of what is measured of it.
  std::optional<Picked> before_;   // What is in use is tried; this was before it.
  uint64_t probe_wait_ = kAutoProbe;
};

std::optional<Choice> AutoPolicy::Next(const StepMeasurements& measured) {
  if (!Measure(measured) || ++steps_ < kFirstSteps) return std::nullopt;
  ++since_change_;
  const Rates sustained = SustainedRates();
  if (!now_) return Change(Best(sustained, NoLimits()), sustained, "links are known now");
  RememberMedian();

  Rates last = LastRates();
  const Picked best_of_last = Best(last, AsNow());
  const double over = Cost(*now_, last) / Cost(best_of_last, last);
  const double over_before = std::exchange(over_before_, over);
  if (over > kAutoFarOver || (over > kAutoOver && over_before > kAutoOver)) {
    // Down at once; what is faster now than it mostly was may be gone in the next step.
    for (size_t rank = 0; rank < links_.size(); ++rank) {
      last.up[rank] = std::min(last.up[rank], sustained.up[rank]);
      last.down[rank] = std::min(last.down[rank], sustained.down[rank]);
    }
    const Picked picked = Best(last, AsNow());
    // Rates of few bytes are noise. The step itself was slow, too?
    const double took_s = compute_s_ + waited_s_;
    if (StepTime(picked, last) < StepTime(*now_, last) &&
        took_s > kAutoOver * StepTime(picked, last)) {
      if (rose_ && since_change_ <= kUnsettled + kAutoDwell) {
        // It was too much. The next attempt comes later.
        uint64_t& wait = before_ ? probe_wait_ : dwell_;
        wait = std::min(2 * wait, before_ ? kAutoProbeMax : kAutoDwellMax);
        Remember(took_s - StepTime(*now_, sustained));
      } else {
        if (rose_) dwell_ = std::max(dwell_ / 2, kAutoDwell);  // That was good.
        Forget();
      }
      return Change(picked, last, "slower than it need be");
    }
  }
  if (since_change_ < (before_ ? kAutoDwell : dwell_)) return std::nullopt;
  const double cost = SeenCost(*now_, sustained);
  if (const std::optional<Picked> before = std::exchange(before_, std::nullopt)) {
    if (cost > (1 - kAutoWorthwhile) * SeenCost(*before, sustained)) {
      probe_wait_ = std::min(2 * probe_wait_, kAutoProbeMax);
      return Change(*before, sustained, "what was tried is no better");
    }
    probe_wait_ = kAutoProbe;
  }
  Picked best = BestSeen(sustained, NextLarger());
  const double noise = kAutoNoise * noise_s_;
  if (SeenCost(best, sustained) > (1 - kAutoWorthwhile) * cost - noise) {
    best = BestSeen(sustained, NoLimits());
    if (SeenCost(best, sustained) > (1 - kAutoLeap) * cost) {
      std::optional<Picked> probe = Probe(sustained);
      if (!probe) return std::nullopt;
      Picked before = *now_;
      Choice choice = Change(*probe, sustained, "to see whether it is better");
      before_ = std::move(before);
      return choice;
    }
  }
  if (const auto tried = tried_.find(best);
      tried != tried_.end() && tried->second.step + 2 * dwell_ >= steps_) {
    dwell_ = std::max(dwell_, std::min(2 * dwell_, kAutoDwellAgain));  // To and fro.
  } else if (rose_) {
    dwell_ = std::max(dwell_ / 2, kAutoDwell);  // The last one is good.
  }
  return Change(best, sustained, "better by what nearly all of the last steps had");
}

// False while something is not known.
bool AutoPolicy::Measure(const StepMeasurements& measured) {
  compute_.AddStep(measured);
  compute_s_ = compute_.compute_s();
  const size_t ranks = std::min(links_.size(), measured.ranks.size());
  double encode_s = 0;
  for (size_t rank = 0; rank < ranks; ++rank) {
    links_[rank].up.AddStep(measured.ranks[rank].up);
    links_[rank].down.AddStep(measured.ranks[rank].down);
    encode_s = std::max(encode_s, measured.ranks[rank].encode_s);
  }
  // Who comes last waits least: the others wait for it, too.
  waited_s_ = HUGE_VAL;
  for (size_t rank = 0; rank < ranks; ++rank) {
    const RankMeasurements& of = measured.ranks[rank];
    waited_s_ = std::min(waited_s_, of.exposed_s + of.apply_s);
  }
  if (now_ && since_change_ >= kUnsettled) {
    beyonds_.push_back(compute_s_ + waited_s_ - StepTime(*now_, LastRates()));
    if (beyonds_.size() > kBeyondsMax) beyonds_.pop_front();
  }
  // Where all ranks have done the same for some steps, that is what was measured.
  if (now_ && encode_s > 0 && since_change_ > kPlanDelay &&
      std::count(now_->up.begin(), now_->up.end(), now_->up[0]) ==
          static_cast<ptrdiff_t>(now_->up.size())) {
    double& known = choices_[now_->up[0]].cost.encode_s;
    known += kCostGain * (encode_s - known);
  }
  return compute_s_ > 0 && std::all_of(links_.begin(), links_.end(), [](const Link& link) {
           return link.up.known() && link.down.known();
         });
}

Rates AutoPolicy::SustainedRates() const {
  Rates rates;
  for (const Link& link : links_) {
    rates.up.push_back(link.up.rate());
    rates.down.push_back(link.down.rate());
  }
  return rates;
}

Rates AutoPolicy::LastRates() const {
  Rates rates;
  for (const Link& link : links_) {
    rates.up.push_back(link.up.rate_now());
    rates.down.push_back(link.down.rate_now());
  }
  return rates;
}

// All stages one after the other, which is the most that it can be.
double AutoPolicy::StepTime(size_t rank, size_t up, size_t down, const Rates& rates) const {
  const Link& link = links_[rank];
  const Priced& sent = choices_[up];
  const Priced& answered = choices_[down];
  const double communication = link.up.latency_s() + link.down.latency_s() + sent.cost.encode_s +
                               sent.coding.bytes / rates.up[rank] +
                               std::max(sent.cost.server_s, answered.cost.server_s) +
                               answered.coding.bytes / rates.down[rank] + answered.cost.apply_s;
  return std::max(compute_s_, (1 - options_.overlap) * compute_s_ + communication);
}

double AutoPolicy::StepTime(const Picked& picked, const Rates& rates) const {
  double slowest = 0;
  for (size_t rank = 0; rank < links_.size(); ++rank) {
    slowest = std::max(slowest, StepTime(rank, picked.up[rank], picked.down, rates));
  }
  return slowest;
}

// What steps under the plan took, beside what is reckoned now.
void AutoPolicy::RememberMedian() {
  std::erase_if(tried_,
                [this](const auto& tried) { return tried.second.step + kAutoMemory < steps_; });
  if (beyonds_.size() < kBeyondsMin) return;
  double beyond_s = Median({beyonds_.begin(), beyonds_.end()});
  std::vector<double> off;
  for (const double each : beyonds_) off.push_back(std::abs(each - beyond_s));
  // Of a median of normal values, by the median of their distances from it.
  noise_s_ = 1.86 * Median(std::move(off)) / std::sqrt(static_cast<double>(beyonds_.size()));
  if (known_s_) beyond_s = std::midpoint(beyond_s, *known_s_);
  Remember(beyond_s);
}

void AutoPolicy::Remember(double beyond_s) {
  if (tried_.size() >= kTriedMax && !tried_.contains(*now_)) {
    tried_.erase(std::min_element(tried_.begin(), tried_.end(), [](const auto& a, const auto& b) {
      return a.second.step < b.second.step;
    }));
  }
  tried_[*now_] = {.beyond_s = beyond_s, .step = steps_};
}

void AutoPolicy::Forget() {
  tried_.clear();
  before_.reset();
}

// A choice beside the one in use, of which nothing is known.
std::optional<Picked> AutoPolicy::Probe(const Rates& sustained) const {
  if (since_change_ < probe_wait_) return std::nullopt;
  const double now = SeenCost(*now_, sustained);
  constexpr struct {
    bool larger, up, down;
  } kWays[] = {{false, true, true}, {false, false, true}, {false, true, false},
               {true, true, true},  {true, false, true},  {true, true, false}};
  for (const auto& way : kWays) {
    Picked beside = *now_;
    for (size_t& up : beside.up) up = way.up ? Beside(up, way.larger) : up;
    if (way.down) beside.down = Beside(beside.down, way.larger);
    if (beside == *now_ || tried_.contains(beside)) continue;
    // However fast it is, computing takes as long.
    if (Cost(compute_s_, beside) > (1 - kAutoWorthwhile) * now) continue;
    if (SeenCost(beside, sustained) < kAutoProbeCost * now) return beside;
  }
  return std::nullopt;
}

// The choice itself where there is none.
size_t AutoPolicy::Beside(size_t choice, bool larger) const {
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

double AutoPolicy::Cost(const Picked& picked, const Rates& rates) const {
  return Cost(StepTime(picked, rates), picked);
}

// By what steps took, where that is known.
double AutoPolicy::SeenCost(const Picked& picked, const Rates& rates) const {
  return Cost(std::max(compute_s_, StepTime(picked, rates) + Beyond(picked)), picked);
}

// Of the nearest that was in use, by the most bytes of a rank and those of results.
double AutoPolicy::Beyond(const Picked& picked) const {
  const auto size = [this](const Picked& of) {
    double up = 0;
    for (const size_t rank : of.up) up = std::max(up, choices_[rank].coding.bytes);
    return std::pair(std::log(up), std::log(choices_[of.down].coding.bytes));
  };
  const auto [up, down] = size(picked);
  double nearest = HUGE_VAL;
  uint64_t newest = 0;
  double beyond_s = 0;
  for (const auto& [other, tried] : tried_) {
    const auto [other_up, other_down] = size(other);
    const double distance = std::abs(up - other_up) + std::abs(down - other_down);
    if (distance > nearest || (distance == nearest && tried.step < newest)) continue;
    nearest = distance;
    newest = tried.step;
    beyond_s = tried.beyond_s;
  }
  return beyond_s;
}

double AutoPolicy::Cost(double step_s, const Picked& picked) const {
  double error = 0;
  for (const size_t up : picked.up) error += choices_[up].error;
  error = (error / static_cast<double>(links_.size()) + choices_[picked.down].error) / 2;
  return step_s * (1 + options_.error_price * error);
}

Limits AutoPolicy::NoLimits() const {
  return {.up = std::vector<double>(links_.size(), HUGE_VAL), .down = HUGE_VAL};
}

Limits AutoPolicy::AsNow() const {
  if (!now_) return NoLimits();
  Limits limits{.up = {}, .down = choices_[now_->down].coding.bytes};
  for (const size_t up : now_->up) limits.up.push_back(choices_[up].coding.bytes);
  return limits;
}

// How fast large transfers are is not told by small ones: a bucket of tokens lets a few through at
// any rate. So bytes grow by one choice at a time, each of which is measured first, unless there is
// much to win beyond.
Limits AutoPolicy::NextLarger() const {
  Limits limits = AsNow();
  for (double& bytes : limits.up) bytes = NextLarger(bytes);
  limits.down = NextLarger(limits.down);
  return limits;
}

double AutoPolicy::NextLarger(double bytes) const {
  double next = HUGE_VAL;
  for (const Priced& choice : choices_) {
    if (choice.coding.bytes > bytes) next = std::min(next, choice.coding.bytes);
  }
  return std::isfinite(next) ? next : bytes;
}

// Nobody need be faster than the slowest rank can be: the others are as faithful as that allows.
Picked AutoPolicy::BestWith(size_t down, const Rates& rates, const Limits& limits) const {
  double floor = 0;
  for (size_t rank = 0; rank < links_.size(); ++rank) {
    double fastest = HUGE_VAL;
    for (size_t up = 0; up < choices_.size(); ++up) {
      if (choices_[up].coding.bytes > limits.up[rank]) continue;
      fastest = std::min(fastest, StepTime(rank, up, down, rates));
    }
    floor = std::max(floor, fastest);
  }
  Picked picked{.up = {}, .down = down};
  for (size_t rank = 0; rank < links_.size(); ++rank) {
    size_t best = 0;
    double least = HUGE_VAL;
    for (size_t up = 0; up < choices_.size(); ++up) {
      if (choices_[up].coding.bytes > limits.up[rank]) continue;
      const double cost = std::max(floor, StepTime(rank, up, down, rates)) *
                          (1 + options_.error_price * choices_[up].error / 2);
      if (cost < least) best = up;
      least = std::min(least, cost);
    }
    picked.up.push_back(best);
  }
  return picked;
}

Picked AutoPolicy::Best(const Rates& rates, const Limits& limits) const {
  std::optional<Picked> best;
  for (size_t down = 0; down < choices_.size(); ++down) {
    if (choices_[down].coding.bytes > limits.down) continue;
    Picked other = BestWith(down, rates, limits);
    if (!best || Cost(other, rates) < Cost(*best, rates)) best = std::move(other);
  }
  return *best;
}

// The best of those that are best by the model for one coding of the results, and of those that
// were in use.
Picked AutoPolicy::BestSeen(const Rates& rates, const Limits& limits) const {
  Picked best = Best(rates, limits);
  double least = SeenCost(best, rates);
  const auto consider = [&](const Picked& other) {
    const double cost = SeenCost(other, rates);
    if (cost < least) best = other;
    least = std::min(least, cost);
  };
  for (size_t down = 0; down < choices_.size(); ++down) {
    if (choices_[down].coding.bytes <= limits.down) consider(BestWith(down, rates, limits));
  }
  for (const auto& [other, tried] : tried_) {
    bool within = choices_[other.down].coding.bytes <= limits.down;
    for (size_t rank = 0; rank < other.up.size(); ++rank) {
      within = within && choices_[other.up[rank]].coding.bytes <= limits.up[rank];
    }
    if (within) consider(other);
  }
  return best;
}

Choice AutoPolicy::Change(const Picked& picked, const Rates& rates, const char* why) {
  constexpr double kMega = 1e-6;
  constexpr double kMilli = 1e3;
  Choice choice;
  for (const size_t up : picked.up) choice.up.push_back(choices_[up].coding);
  choice.down = choices_[picked.down].coding;
  choice.reason = absl::StrFormat(
      "%s: the slowest links carry %.3g MB/s up and %.3g MB/s down; rank 0 sends %s, results are "
      "%s; a step should take %.3g ms",
      why, kMega * *std::min_element(rates.up.begin(), rates.up.end()),
      kMega * *std::min_element(rates.down.begin(), rates.down.end()),
      ToString(choices_[picked.up[0]].cost.spec), ToString(choices_[picked.down].cost.spec),
      kMilli * StepTime(picked, rates));
  if (now_) {
    absl::StrAppendFormat(&choice.reason, ", %.3g as it was", kMilli * StepTime(*now_, rates));
  }
  const Limits before = AsNow();
  now_ = picked;
  const Limits after = AsNow();
  rose_ = after.down > before.down ||
          !std::equal(after.up.begin(), after.up.end(), before.up.begin(), std::less_equal<>());
  since_change_ = 0;
  over_before_ = 0;
  beyonds_.clear();
  const auto tried = tried_.find(picked);
  known_s_ = tried == tried_.end() ? std::nullopt : std::optional(tried->second.beyond_s);
  before_.reset();
  return choice;
}

bool IsCost(double seconds) { return seconds >= 0 && std::isfinite(seconds); }

}  // namespace

absl::StatusOr<std::unique_ptr<Policy>> MakeAutoPolicy(AutoOptions options) {
  if (options.ranks == 0 || options.tensors.empty() || options.choices.empty()) {
    return absl::InvalidArgumentError("auto: no ranks, no tensors or no codecs to choose from");
  }
  if (!(options.overlap > 0 && options.overlap <= 1) || !IsCost(options.error_price)) {
    return absl::InvalidArgumentError(absl::StrCat("auto: an overlap of ", options.overlap,
                                                   " and an error price of ", options.error_price,
                                                   "; use one in (0, 1] and one from 0 on"));
  }
  std::vector<Priced> choices;
  for (const CodecCost& cost : options.choices) {
    if (!IsCost(cost.encode_s) || !IsCost(cost.server_s) || !IsCost(cost.apply_s)) {
      return absl::InvalidArgumentError(
          absl::StrCat("auto: a time of ", ToString(cost.spec), " is not a number from 0 on"));
    }
    absl::StatusOr<Spent> spent = SpendEvenly(options.tensors, cost.spec);
    if (!spent.ok()) return spent.status();
    choices.push_back({cost, std::move(spent->coding), spent->error});
  }
  absl::StatusOr<Spent> first = SpendEvenly(options.tensors, options.first);
  if (!first.ok()) return first.status();
  return std::make_unique<AutoPolicy>(std::move(options), std::move(choices),
                                      std::move(first->coding));
}

}  // namespace sluice
