// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/planned_reference.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/random.h"
#include "protocol/compression_plan.h"

namespace sluice {
namespace {

bool Same(const PlannedReference::Plan& a, const PlannedReference::Plan& b) {
  return a == b || (a != nullptr && b != nullptr && *a == *b);
}

std::string Text(const PlannedReference::Plan& plan) {
  return plan == nullptr ? "none" : absl::StrCat(plan->id, " (", protocol::Summary(*plan), ")");
}

}  // namespace

PlannedReference::PlannedReference(const SurvivalOptions& options,
                                   const protocol::TensorTable& table,
                                   const protocol::Layout& layout)
    : options_(options),
      table_(table),
      layout_(layout),
      course_{.ranks = options.ranks, .changes = {}} {}

std::string PlannedReference::CheckAnnounced(uint32_t rank, uint64_t step, const Plan& plan,
                                             bool* knower_lost) {
  Announcement& told = told_.try_emplace(step, Announcement{plan, {}}).first->second;
  if (!Same(told.plan, plan)) {
    if (!told.ranks.empty()) {
      return absl::StrCat("rank ", rank, " is told of another plan with step ", step, ": ",
                          Text(plan), ", rank ", *told.ranks.begin(), " of ", Text(told.plan));
    }
    *knower_lost = true;
    told.plan = plan;
    // No worker can have coded by the lost plan: that needs the results of all ranks for the step.
    reference_.reset();
  }
  told.ranks.insert(rank);
  return "";
}

void PlannedReference::Lost(uint32_t rank) {
  for (auto& [step, told] : told_) told.ranks.erase(rank);
}

void PlannedReference::LostAll() {
  for (auto& [step, told] : told_) told.ranks.clear();
}

void PlannedReference::Begin(uint32_t term, uint32_t ranks, uint32_t written_in_term,
                             uint64_t step) {
  const auto before = courses_.find(written_in_term);
  if (step == 0 || before == courses_.end()) {
    course_ = {.ranks = ranks, .changes = {}};
  } else {
    course_ = before->second;
    const RankChanges& changes = course_.changes;
    if ((changes.empty() ? course_.ranks : changes.rbegin()->second) != ranks) {
      course_.changes[step] = ranks;
    }
  }
  courses_[term] = course_;
  told_.erase(told_.upper_bound(step), told_.end());
  reference_.reset();
}

const Reference& PlannedReference::At(uint64_t step) const {
  Reference::Plans plans;
  for (const auto& [at, told] : told_) {
    if (told.plan != nullptr) plans[told.plan->effective_step] = told.plan;
  }
  if (reference_ == nullptr) {
    SurvivalOptions options = options_;
    options.ranks = course_.ranks;
    reference_ = std::make_unique<Reference>(options, table_, layout_, course_.changes);
  }
  reference_->RunTo(step, plans);
  return *reference_;
}

std::vector<std::string> PlannedReference::violations() const {
  (void)At(options_.steps);
  if (options_.control.measures()) reference_->CheckAll();
  return reference_->violations();
}

server::StepMeasurements MadeUpMeasurements(const SurvivalOptions& options,
                                            const protocol::TensorTable& table, uint64_t step,
                                            uint64_t incarnation) {
  constexpr double kComputeSeconds = 0.01;
  double dense = 0;
  for (const protocol::TensorInfo& tensor : table)
    dense += 4.0 * static_cast<double>(tensor.elements());
  server::StepMeasurements measured;
  measured.step = step;
  for (uint32_t rank = 0; rank < options.ranks; ++rank) {
    // Some consecutive steps share a measurement. Otherwise only the slowest step would count.
    CounterRandom random(options.data_seed, 2000 + rank, step / 3, incarnation);
    server::RankMeasurements& of_rank = measured.ranks.emplace_back();
    of_rank.compute_s = kComputeSeconds;
    for (std::vector<server::Transfer>* const transfers : {&of_rank.up, &of_rank.down}) {
      const double rate = dense / kComputeSeconds * 4 * std::exp(-5 * random.Uniform());
      for (const double bytes : {dense / 2, dense / 20}) {
        transfers->push_back({.bytes = static_cast<uint64_t>(bytes), .seconds = bytes / rate});
      }
    }
  }
  return measured;
}

}  // namespace sluice
