// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/survival_job.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/sim_data.h"

namespace sluice {
namespace {

constexpr uint64_t kSurvivalEventsMax = 400'000;  // A run with more events counts as endless.
constexpr Micros kSurvivalTimeMax = 120'000'000;  // A run that takes longer counts as endless.
constexpr Micros kFaultSpread = 25'000;  // Longest time before the first fault and between faults.
// Message faults end at this time if there are no other faults.
constexpr Micros kMessagesUntil = 60'000;
constexpr uint32_t kRanksMax = 5;  // Of a resumed job.

}  // namespace

SurvivalJob::SurvivalJob(const SurvivalOptions& options, SimWorld* world)
    : options_(options),
      world_(*world),
      table_(SimTable(options)),
      layout_(SimLayout(options, table_)),
      reference_(options, table_, layout_),
      planned_(options, table_, layout_) {
  world_.report.violations = reference_.violations();
}

bool SurvivalJob::IsFollowed() const {
  if (IsAsync(options_) || GoesManyWays(options_)) return false;
  return options_.control.measures() || std::find(options_.faults.begin(), options_.faults.end(),
                                                  Fault::kOtherWorkers) != options_.faults.end();
}

void SurvivalJob::Begin() {
  const JobReference* const reference =
      IsFollowed() ? static_cast<const JobReference*>(&planned_) : &reference_;
  run_ = std::make_unique<SurvivalRun>(options_, &world_, reference, run_.get());
  if (IsFollowed()) run_->Follow(&planned_);
  run_->StartAll();
}

SurvivalReport SurvivalJob::Run() {
  Begin();
  ScheduleFaults();
  SurvivalReport& report = world_.report;
  while (!world_.events.empty() && report.violations.empty() && !run_->JobIsOver()) {
    if (world_.handled >= kSurvivalEventsMax || world_.now > kSurvivalTimeMax) {
      report.violations.push_back(absl::StrCat("the job does not end: after ", world_.handled,
                                               " events and ", world_.now / 1000,
                                               " ms the ranks are at ", run_->WhereRanksAre()));
      break;
    }
    world_.DoNext();
    run_->CollectViolations();
  }
  const bool ended_early = report.ended_by_alarm || report.ended_by_timeout;
  if (report.violations.empty() && !ended_early) run_->CheckAtTheEnd();
  if (IsFollowed() && report.violations.empty() && !ended_early) {
    report.violations = planned_.violations();
  }
  return report;
}

void SurvivalJob::ScheduleFaults() {
  Micros at = 0;
  Micros last = kMessagesUntil;
  for (size_t i = 0; i < options_.faults.size(); ++i) {
    at = world_.chance.FaultAt(i, options_.faults[i], at + 500, kFaultSpread);
    last = std::max(last, at);
    faults_at_.push_back(at);
  }
  ScheduleFrom(0);
  world_.faults_until = last;
}

void SurvivalJob::ScheduleFrom(size_t index) {
  for (; index < faults_at_.size(); ++index) {
    world_.At(std::max<Micros>(faults_at_[index] - world_.now, 0), nullptr,
              [this, index] { Strike(index); });
  }
}

void SurvivalJob::Strike(size_t index) {
  world_.chance.BeginFault(index);
  if (options_.faults[index] == Fault::kOtherWorkers) return Resume(index);
  run_->Strike(options_.faults[index]);
}

// Ends all processes, with everything that they have sent or begun to write. Then starts the job
// again. Its settings must be valid for the new number of workers.
void SurvivalJob::Resume(size_t index) {
  if (run_->IsFinished()) return;
  const auto other = static_cast<uint32_t>(world_.chance.Choose("workers", kRanksMax - 1));
  ++world_.report.faults[Fault::kOtherWorkers];
  planned_.LostAll();
  world_.report.parameters_hash = 0;
  world_.events = {};
  options_.ranks = 1 + (options_.ranks + other) % kRanksMax;
  options_.quorum = std::min(options_.quorum, options_.ranks);
  options_.begin = std::min(options_.begin, options_.ranks);
  options_.least = std::min(options_.least, std::max(options_.begin, 1u));
  Begin();
  ScheduleFrom(index + 1);
}

SurvivalReport RunJob(const SurvivalOptions& options, SimWorld* world) {
  return SurvivalJob(options, world).Run();
}

}  // namespace sluice
