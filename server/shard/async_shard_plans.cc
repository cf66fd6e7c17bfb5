// Implements compression plans of a shard whose ranks do not wait for each other. Ranks need not
// change plans in the same step, because every contribution is a separate update, frames describe
// their own coding, and publications are the same for all ranks. Each party uses a plan as soon as
// it receives the plan. Shard 0 makes plans as the slowest rank advances. With its results, it
// sends the newest plan to ranks that use another one. Workers pass the plan to the other shards.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/shard/async_shard.h"

namespace sluice::server {
namespace {

// A plan number is invalid if it is this far ahead of all known plans.
constexpr uint64_t kNumbersAhead = uint64_t{1} << 40;

}  // namespace

absl::Status AsyncShard::CheckPlans(const protocol::ExchangeRequest& exchange) const {
  if (exchange.answered || exchange.announced != nullptr) {
    return InvalidRequest(exchange,
                          "refers to an earlier result; ranks of this mode do not replay steps");
  }
  const bool speaks = exchange.plan_id != 0 || exchange.plan != nullptr;
  if (!options_.control.makes_plans()) {
    if (!speaks) return absl::OkStatus();
    return InvalidRequest(exchange, "refers to a compression plan, but this job makes none");
  }
  // After a rollback, a rank may have a plan that shard 0 has not made again yet.
  if (exchange.plan_id > plans_.known.newest_id() + kNumbersAhead) {
    return InvalidRequest(exchange, absl::StrCat("is coded by plan ", exchange.plan_id,
                                                 "; the newest is ", plans_.known.newest_id()));
  }
  if (exchange.plan == nullptr) return absl::OkStatus();
  absl::Status fits = protocol::CheckPlan(*exchange.plan, options_.compression, options_.table);
  if (fits.ok() && exchange.plan->id != exchange.plan_id) {
    fits = absl::InvalidArgumentError(absl::StrCat("it is coded by plan ", exchange.plan_id));
  }
  if (fits.ok()) return fits;
  return InvalidRequest(exchange, absl::StrCat("carries compression plan ", exchange.plan->id,
                                               ", which is invalid: ", fits.message()));
}

// Expects a request that passed CheckPlans. A rank's part of a checkpoint may contain a newer plan
// than shard 0's part. Therefore shard 0 gives its plans higher numbers than all numbers that it
// receives.
void AsyncShard::RecordPlan(const protocol::ExchangeRequest& exchange) {
  if (exchange.plan_id <= plans_.known.newest_id()) return;
  if (plans_.maker != nullptr) {
    plans_.maker->Took(exchange.plan_id);
  } else if (exchange.plan != nullptr) {
    Adopt(exchange.plan);
  }
}

void AsyncShard::MakePlans(Effects* out) {
  if (plans_.maker == nullptr) return;
  for (const uint64_t open = open_step(); next_plan_ < open; ++next_plan_) {
    protocol::PlanHistory::Plan plan =
        plans_.maker->Next(next_plan_, plans_.measured.has_value() ? &*plans_.measured : nullptr);
    plans_.measured.reset();
    if (plan == nullptr) continue;
    Adopt(plan);
    out->emplace_back(PlanMade{std::move(plan)});
  }
}

void AsyncShard::Adopt(protocol::PlanHistory::Plan plan) {
  if (plan == nullptr) return;
  AdoptPlan(plan, options_, downlink_base_, &downlink_, &plan_.replica, &plans_);
  plans_.known.Replace(std::move(plan));
}

// Adapts the measurements, because plans assume one downlink frame per step. A result contains as
// many frames as were published since the rank's last result, so the usable rate of the link is
// divided by that number.
void AsyncShard::Measured(const StepMeasurements& measured) {
  if (plans_.maker == nullptr) return;
  plans_.measured = measured;
  const double frames =
      static_cast<double>(brought_) / static_cast<double>(std::max<uint64_t>(brought_in_, 1));
  brought_ = brought_in_ = 0;
  if (frames > 1) ScaleTransfers(1, 1 / frames, &*plans_.measured);
}

}  // namespace sluice::server
