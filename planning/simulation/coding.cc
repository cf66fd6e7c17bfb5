// SPDX-License-Identifier: Apache-2.0
#include "planning/simulation/coding.h"

#include <algorithm>

namespace sluice::planning {

Coding::Coding(const ByteModel* model, uint32_t ranks,
               const std::shared_ptr<const protocol::CompressionPlan>& first)
    : model_(model), ranks_(ranks), parameters_(model->OfParameters()) {
  Begin(0, first.get());
}

void Coding::Add(const std::shared_ptr<const protocol::CompressionPlan>& plan) {
  Begin(plan->effective_step, plan.get());
}

void Coding::Begin(uint64_t from, const protocol::CompressionPlan* plan) {
  const bool by_rank =
      plan != nullptr && std::any_of(plan->entries.begin(), plan->entries.end(),
                                     [](const auto& entry) { return !entry.ranks.empty(); });
  Period period{.from = from};
  for (uint32_t rank = 0; rank < (by_rank ? ranks_ : 1); ++rank) {
    period.up.push_back(model_->CostsUnder(plan, protocol::Direction::kUplink, rank));
  }
  period.down = model_->CostsUnder(plan, protocol::Direction::kDownlink, 0);
  periods_.push_back(std::move(period));
}

const Coding::Period& Coding::At(uint64_t step) const {
  const auto after = std::find_if(periods_.begin() + 1, periods_.end(),
                                  [&](const Period& period) { return period.from > step; });
  return *(after - 1);
}

const BundleCosts& Coding::Up(uint64_t step, uint32_t rank) const {
  if (step == 0) return parameters_;
  const Period& period = At(step);
  return period.up[period.up.size() == 1 ? 0 : rank];
}

const BundleCosts& Coding::Down(uint64_t step) const {
  return step == 0 ? parameters_ : At(step).down;
}

}  // namespace sluice::planning
