// SPDX-License-Identifier: Apache-2.0
#include "server/control/plan_log.h"

#include <utility>

namespace sluice::server {

PlanLog::PlanLog(const protocol::CompressionSpec& compression, const job::ControlSpec& control,
                 std::string momentum_note) {
  codecs_.uplink = ToString(compression.uplink);
  codecs_.downlink = ToString(compression.downlink);
  codecs_.policy = std::string(NameOf(control.policy));
  codecs_.momentum = std::move(momentum_note);
}

void PlanLog::Add(const protocol::CompressionPlan& plan, std::optional<PlanBytes> bytes) {
  std::vector<PlanChange>& plans = codecs_.plans;
  while (!plans.empty() && plans.back().id >= plan.id) plans.pop_back();
  if (plans.size() == kPlansMax) plans.erase(plans.begin());
  plans.push_back({.id = plan.id,
                   .effective_step = plan.effective_step,
                   .what = protocol::Summary(plan),
                   .reason = plan.reason,
                   .bytes = std::move(bytes)});
  ++codecs_.plans_made;
}

const PlanChange* PlanIn(absl::Span<const PlanChange> plans, uint64_t step) {
  const PlanChange* in_force = nullptr;
  for (const PlanChange& plan : plans) {
    if (plan.effective_step <= step) in_force = &plan;
  }
  return in_force;
}

}  // namespace sluice::server
